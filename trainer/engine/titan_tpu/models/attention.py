"""Attention. Dimensions as in `layers.py`: B sequences, T tokens, D hidden size, H query heads, K key and
value heads, C head dimension, R rotated pairs; and Q queries, where they are fewer than the keys.

There are two ways to compute it, which the recipe chooses between (`training.attention`):

fused   torch's scaled_dot_product_attention. On TPUs TorchTPU turns it into a kernel of its own, on CPUs it
        is a flash kernel (Dao et al., arXiv 2205.14135): scores are never all in memory. The default
        everywhere.
plain   softmax(Q K^T / sqrt(C)) V written out. Holds B * H * Q * T scores, and is several times slower; for
        comparing numbers, and for devices whose fused kernel is in doubt.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_tpu.config import ModelConfig
from titan_tpu.models.layers import Linear, RMSNorm, rotate


class Attention(nn.Module):
    """Causal grouped-query attention (Ainslie et al., arXiv 2305.13245): H / K query heads per key head.

    With `qk_norm` each head of the queries and keys is normalised before it is rotated (Qwen3, arXiv
    2505.09388).
    """

    def __init__(self, config: ModelConfig, output_std: float, qk_norm: bool):
        super().__init__()
        self.head_dim = config.head_dim
        self.kernel = {"fused": fused_attention, "plain": plain_attention}[config.attention]
        query_size = config.num_heads * config.head_dim
        kv_size = config.num_kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, query_size, config.init_std)
        self.k_proj = Linear(config.hidden_size, kv_size, config.init_std)
        self.v_proj = Linear(config.hidden_size, kv_size, config.init_std)
        self.o_proj = Linear(query_size, config.hidden_size, output_std)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if qk_norm else None

    def forward(self, x_BTD: Tensor, cos_TR: Tensor, sin_TR: Tensor, mask: Tensor | None) -> Tensor:
        """x_BTD -> x_BTD."""
        q_BTHC = self.q_proj(x_BTD).unflatten(-1, (-1, self.head_dim))
        k_BTKC = self.k_proj(x_BTD).unflatten(-1, (-1, self.head_dim))
        v_BTKC = self.v_proj(x_BTD).unflatten(-1, (-1, self.head_dim))
        if self.q_norm is not None:
            q_BTHC, k_BTKC = self.q_norm(q_BTHC), self.k_norm(k_BTKC)
        q_BTHC = rotate(q_BTHC, cos_TR, sin_TR)
        k_BTKC = rotate(k_BTKC, cos_TR, sin_TR)
        return self.o_proj(self.attend(q_BTHC, k_BTKC, v_BTKC, mask).flatten(2))

    def attend(self, q_BTHC: Tensor, k_BTKC: Tensor, v_BTKC: Tensor, mask: Tensor | None) -> Tensor:
        """Queries of all tokens that are here look at the keys of all tokens: -> y_BTHC."""
        return attention(self.kernel, q_BTHC, k_BTKC, v_BTKC, mask)


def attention(kernel, q_BQHC: Tensor, k_BTKC: Tensor, v_BTKC: Tensor, mask: Tensor | None) -> Tensor:
    """-> y_BQHC. `mask` (bool, [Q, T] or [B, 1, Q, T]) is true where a query may look at a key; None is
    causal, with as many queries as keys.
    """
    y_BHQC = kernel(q_BQHC.transpose(1, 2), k_BTKC.transpose(1, 2), v_BTKC.transpose(1, 2), mask)
    return y_BHQC.transpose(1, 2)


def fused_attention(q_BHQC: Tensor, k_BKTC: Tensor, v_BKTC: Tensor, mask: Tensor | None) -> Tensor:
    """Torch's kernel; the softmax runs in float32 inside of it, whatever the type of the queries."""
    return F.scaled_dot_product_attention(
        q_BHQC, k_BKTC, v_BKTC, attn_mask=mask, is_causal=mask is None, enable_gqa=True
    )


def plain_attention(q_BHQC: Tensor, k_BKTC: Tensor, v_BKTC: Tensor, mask: Tensor | None) -> Tensor:
    """The formula; scores in float32."""
    groups = q_BHQC.shape[1] // k_BKTC.shape[1]
    k_BHTC, v_BHTC = (x.repeat_interleave(groups, dim=1) for x in (k_BKTC, v_BKTC))
    scores_BHQT = (q_BHQC @ k_BHTC.transpose(2, 3)).float() / math.sqrt(q_BHQC.shape[-1])
    if mask is None:
        mask = torch.ones(scores_BHQT.shape[2:], dtype=torch.bool, device=q_BHQC.device).tril()
    weights_BHQT = scores_BHQT.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights_BHQT.to(v_BHTC.dtype) @ v_BHTC


def attention_mask(positions_Q: Tensor, length: int, documents_BT: Tensor | None) -> Tensor:
    """Which of the keys 0 .. `length` each query may look at: those before it and its own, and only those of
    its document where `documents_BT` numbers the documents.

    -> bool, [Q, T] or [B, 1, Q, T].
    """
    causal_QT = positions_Q.unsqueeze(1) >= torch.arange(length, device=positions_Q.device)
    if documents_BT is None:
        return causal_QT
    own_BQ = documents_BT.index_select(1, positions_Q)
    return (causal_QT & (own_BQ.unsqueeze(2) == documents_BT.unsqueeze(1))).unsqueeze(1)


def documents(tokens_BT: Tensor, end: int) -> Tensor:
    """Number of the document, within its sequence, that each token belongs to; `end` is the last token of
    one.
    """
    ends_BT = (tokens_BT == end).int()
    return ends_BT.cumsum(dim=1) - ends_BT
