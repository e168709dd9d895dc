"""Layers shared by the decoder-only families.

Tensor names end in their dimensions:
    B sequences   T tokens of a sequence   D hidden size   F intermediate size   V vocabulary
    H query heads   K key and value heads   C head dimension   R rotated pairs of a head (C / 2)

Weights keep the layout and the names of Hugging Face ([out, in], no bias). Layers know nothing of
parallelism: a weight is whatever `self.weight` returns, and `parallel/simple_fsdp.py` decides that from
outside.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_tpu.config import ModelConfig


class Linear(nn.Module):
    """y = x W^T, without bias; `init_std` is the standard deviation of its initial weights."""

    def __init__(self, in_features: int, out_features: int, init_std: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.init_std = init_std

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] -> [..., out_features]."""
        return F.linear(x, self.weight)


class Embedding(nn.Module):
    """A table of V rows; `init_std` is the standard deviation of its initial weights."""

    def __init__(self, vocab_size: int, hidden_size: int, init_std: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))
        self.init_std = init_std

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT (int32 or int64) -> x_BTD. Raises `IndexError` for a token outside the vocabulary."""
        return F.embedding(tokens_BT, self.weight)


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last dimension (Zhang and Sennrich, arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape and type; float32 inside, where small squares do not vanish."""
        weight = self.weight.float()
        return F.rms_norm(x.float(), weight.shape, weight, self.eps).to(x.dtype)


def rotary_frequencies(config: ModelConfig, device: torch.device) -> Tensor:
    """Radians per token of each rotated pair, [R] (Su et al., arXiv 2104.09864).

    With Llama 3.1's scaling (Grattafiori et al., arXiv 2407.21783, section 3.4.2, as its released code has
    it), a pair that turns less often within the original length than `low_frequency_factor` times is
    slowed down by `factor`, one that turns more often than `high_frequency_factor` times is kept, and
    those between are blended.
    """
    exponents_R = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device) / config.head_dim
    frequencies_R = config.rope_theta**-exponents_R
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies_R
    turns_R = scaling.original_length * frequencies_R / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept_R = ((turns_R - low) / (high - low)).clamp(0, 1)
    return frequencies_R * (kept_R + (1 - kept_R) / scaling.factor)


def rotary_tables(config: ModelConfig, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of these positions, each [T, R] in float32.

    Computed in each forward pass: it costs microseconds, and there is no buffer to move between devices or to
    keep out of checkpoints.
    """
    angles_TR = torch.outer(positions_T.float(), rotary_frequencies(config, positions_T.device))
    return angles_TR.cos(), angles_TR.sin()


def rotate(x_BTHC: Tensor, cos_TR: Tensor, sin_TR: Tensor) -> Tensor:
    """Rotate the pairs (c, c + C/2) of every head by the angle of its position; float32 inside, type kept.

    This "half-split" pairing is Hugging Face's, so its query and key weights load without a permutation.
    """
    first_BTHR, second_BTHR = x_BTHC.float().chunk(2, dim=-1)
    cos_T1R, sin_T1R = cos_TR.unsqueeze(1), sin_TR.unsqueeze(1)
    rotated_BTHC = torch.cat(
        (
            first_BTHR * cos_T1R - second_BTHR * sin_T1R,
            second_BTHR * cos_T1R + first_BTHR * sin_T1R,
        ),
        dim=-1,
    )
    return rotated_BTHC.to(x_BTHC.dtype)


class SwiGLU(nn.Module):
    """Feed-forward layer with a gate (Shazeer, arXiv 2002.05202): down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, output_std: float):
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, config.init_std)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, config.init_std)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, output_std)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD -> x_BTD, through two activations of [B, T, F]."""
        return self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))
