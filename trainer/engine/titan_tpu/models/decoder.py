"""What all decoder-only families are: a stack of pre-norm blocks between an embedding and an output head.

A family says what its feed-forward layer is and whether queries and keys are normalised. Attribute names
are those of Hugging Face's classes, so state dicts are interchangeable. Dimensions as in `layers.py`: B
sequences, T tokens, D hidden size, R rotated pairs, V vocabulary.
"""

import math

from torch import Tensor, nn

from titan_tpu.config import ModelConfig
from titan_tpu.models.layers import Attention, Embedding, Linear, RMSNorm, rotary_tables
from titan_tpu.models.loss import linear_cross_entropy_sum


class DecoderLayer(nn.Module):
    """One transformer block."""

    feed_forward: type[nn.Module]
    """Made from (config, standard deviation of the weights that write to the residual stream)."""
    qk_norm: bool

    def __init__(self, config: ModelConfig):
        super().__init__()
        # Each layer adds two terms to the residual stream. Scaling both keeps its variance independent of
        # depth at the start (Radford et al., "Language models are unsupervised multitask learners", section
        # 2.3).
        output_std = config.init_std / math.sqrt(2 * config.num_layers)
        self.self_attn = Attention(config, output_std, self.qk_norm)
        self.mlp = self.feed_forward(config, output_std)
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x_BTD: Tensor, cos_TR: Tensor, sin_TR: Tensor) -> Tensor:
        """x_BTD -> x_BTD."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_TR, sin_TR)
        return x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))


class DecoderModel(nn.Module):
    """The stack between tokens and the output projection."""

    def __init__(self, config: ModelConfig, layer: type[DecoderLayer]):
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.init_std)
        self.layers = nn.ModuleList(layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT -> x_BTD, normalised."""
        cos_TR, sin_TR = rotary_tables(self.config, tokens_BT.shape[1], tokens_BT.device)
        x_BTD = self.embed_tokens(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, cos_TR, sin_TR)
        return self.norm(x_BTD)


class DecoderForCausalLM(nn.Module):
    """A language model; families set `layer`."""

    layer: type[DecoderLayer]

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.model = DecoderModel(config, self.layer)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, config.init_std)
        if config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor | None = None) -> Tensor:
        """tokens_BT -> logits_BTV of the token after each position, in the type of the weights.

        With `targets_BT`, the sum over B and T of -log softmax(logits)[target] instead, without ever
        holding all logits; see `loss.linear_cross_entropy_sum`.
        """
        x_BTD = self.model(tokens_BT)
        if targets_BT is None:
            return self.lm_head(x_BTD)
        return linear_cross_entropy_sum(x_BTD, self.lm_head.weight, targets_BT)
