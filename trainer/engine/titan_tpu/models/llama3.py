"""Llama 3 (Grattafiori et al., arXiv 2407.21783): pre-norm, RoPE, grouped-query attention, SwiGLU, no biases.

Attribute names are those of Hugging Face's LlamaForCausalLM, so state dicts are interchangeable.
Dimensions as in `layers.py`: B sequences, T tokens, D hidden size, R rotated pairs, V vocabulary.
"""

import math

from torch import Tensor, nn

from titan_tpu.config import ModelConfig
from titan_tpu.models.layers import Attention, Embedding, Linear, RMSNorm, SwiGLU, rotary_tables


class LlamaLayer(nn.Module):
    """One transformer block."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        # Each layer adds two terms to the residual stream. Scaling both keeps its variance independent of
        # depth at the start (Radford et al., "Language models are unsupervised multitask learners", section
        # 2.3).
        output_std = config.init_std / math.sqrt(2 * config.num_layers)
        self.self_attn = Attention(config, output_std)
        self.mlp = SwiGLU(config, output_std)
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x_BTD: Tensor, cos_TR: Tensor, sin_TR: Tensor) -> Tensor:
        """x_BTD -> x_BTD."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_TR, sin_TR)
        return x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))


class LlamaModel(nn.Module):
    """The stack between tokens and the output projection."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.init_std)
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT -> x_BTD, normalised."""
        cos_TR, sin_TR = rotary_tables(self.config, tokens_BT.shape[1], tokens_BT.device)
        x_BTD = self.embed_tokens(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, cos_TR, sin_TR)
        return self.norm(x_BTD)


class LlamaForCausalLM(nn.Module):
    """The language model."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.model = LlamaModel(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, config.init_std)
        if config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT -> logits_BTV of the token after each position, in the type of the weights."""
        return self.lm_head(self.model(tokens_BT))
