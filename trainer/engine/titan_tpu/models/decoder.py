"""What all decoder-only families are: a stack of pre-norm blocks between an embedding and an output head.

A family says what its feed-forward layer is and whether queries and keys are normalised. Attribute names are
those of Hugging Face's classes, so state dicts are interchangeable. Dimensions as in `layers.py`: B
sequences, T tokens, D hidden size, R rotated pairs, V vocabulary; and, where ranks share sequences, N tokens
of a sequence that a rank works on outside of attention.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from titan_tpu.config import ModelConfig
from titan_tpu.models.attention import Attention
from titan_tpu.models.layers import Embedding, Linear, RMSNorm, rotary_tables
from titan_tpu.models.loss import linear_cross_entropy_sum


class Sums(NamedTuple):
    """What a language model has to say of its tokens, summed over B and T."""

    objective: Tensor
    """What is minimised: cross entropy and, if it is on, the z-loss."""
    cross_entropy: Tensor
    """In nats; carries no gradient."""
    loads_L3E: Tensor | None
    """Of L layers with experts; see `experts.SparseMoe`."""


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

    def forward(
        self, x_BND: Tensor, cos_TR: Tensor, sin_TR: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """x_BND -> x_BND, and the loads of the experts if the feed-forward layer has some."""
        x_BND = x_BND + self.self_attn(self.input_layernorm(x_BND), cos_TR, sin_TR, mask)
        y_BND, load_3E = self.mlp(self.post_attention_layernorm(x_BND)), None
        if isinstance(y_BND, tuple):
            y_BND, load_3E = y_BND
        return x_BND + y_BND, load_3E


class DecoderModel(nn.Module):
    """The stack between tokens and the output projection."""

    def __init__(self, config: ModelConfig, layer: type[DecoderLayer]):
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.init_std)
        self.layers = nn.ModuleList(layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(
        self, tokens_BN: Tensor, positions_T: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """tokens_BN -> x_BND, normalised, and loads_L3E."""
        if positions_T is None:
            positions_T = torch.arange(tokens_BN.shape[1], device=tokens_BN.device)
        cos_TR, sin_TR = rotary_tables(self.config, positions_T)
        x_BND = self.embed_tokens(tokens_BN)
        loads = []
        for layer in self.layers:
            x_BND, load_3E = layer(x_BND, cos_TR, sin_TR, mask)
            loads.append(load_3E)
        return self.norm(x_BND), None if loads[0] is None else torch.stack(loads)


class DecoderForCausalLM(nn.Module):
    """A language model; families set `layer`."""

    layer: type[DecoderLayer]

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.model = DecoderModel(config, self.layer)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, config.init_std)
        if config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self,
        tokens_BN: Tensor,
        targets_BN: Tensor | None = None,
        positions_T: Tensor | None = None,
        mask: Tensor | None = None,
        z_loss: float = 0.0,
        is_masked: bool = False,
    ) -> Tensor | Sums:
        """tokens_BN -> logits_BNV of the token after each position, in the type of the weights.

        With `targets_BN`, `Sums` of these targets instead, without ever holding all logits; see
        `loss.linear_cross_entropy_sum`, also for `z_loss` and `is_masked`. Attention sees `positions_T`, by
        default 0, 1, ..., through `mask` (see `attention.attention`), by default a causal one.
        """
        x_BND, loads_L3E = self.model(tokens_BN, positions_T, mask)
        if targets_BN is None:
            return self.lm_head(x_BND)
        weight_VD = self.lm_head.weight
        return Sums(*linear_cross_entropy_sum(x_BND, weight_VD, targets_BN, z_loss, is_masked), loads_L3E)
