"""Context parallelism: ranks share sequences, inside of attention too.

A sequence is cut into twice as many pieces as there are ranks. Rank i holds the piece i from the front and
the piece i from the back: under a causal mask an early query sees few keys and a late one many, and so all
ranks have the same work. Keys and values are gathered, which costs little where several query heads share one
(Grattafiori et al., arXiv 2407.21783, section 3.3.2). The early piece of every rank lies in the first half of
the sequence, and its queries look at that half only: shapes are the same on all ranks, and three quarters of
the scores are computed, where a causal mask needs half.

Dimensions as in `models/attention.py`; T tokens of a sequence that are here, L all of them.
"""

import functools

import torch
from torch import Tensor, nn

from titan_tpu.models.attention import Attention, attention
from titan_tpu.parallel.collectives import all_gather
from titan_tpu.parallel.mesh import Axis, Mesh


def own_positions(length: int, axis: Axis, device: torch.device) -> Tensor:
    """Positions in the sequence, ascending, of the tokens that this rank holds: [length / degree]."""
    if axis.degree == 1:
        return torch.arange(length, device=device)
    pieces = torch.arange(length, device=device).view(2 * axis.degree, -1)
    return torch.cat((pieces[axis.index], pieces[2 * axis.degree - 1 - axis.index]))


def spread_sequences(model: nn.Module, mesh: Mesh) -> None:
    """Let attention reach the keys of all ranks of `mesh.context`."""
    if mesh.context.degree == 1:
        return
    for module in model.modules():
        if isinstance(module, Attention):
            module.__class__ = _spread_class(type(module))
            module.context = mesh.context


@functools.cache
def _spread_class(base: type[Attention]) -> type[Attention]:
    return type(f"Context{base.__name__}", (base,), {"attend": _attend})


def _attend(self: Attention, q_BTHC: Tensor, k_BTKC: Tensor, v_BTKC: Tensor, mask: Tensor) -> Tensor:
    """`Attention.attend`; `mask` is of the queries that are here and the keys of all ranks."""
    kv_BL2KC = _in_order(torch.stack((k_BTKC, v_BTKC), dim=2), self.context)
    k_BLKC, v_BLKC = kv_BL2KC.unbind(dim=2)
    piece, half = q_BTHC.shape[1] // 2, k_BLKC.shape[1] // 2
    early_BTHC = attention(
        self.kernel, q_BTHC[:, :piece], k_BLKC[:, :half], v_BLKC[:, :half], mask[..., :piece, :half]
    )
    late_BTHC = attention(self.kernel, q_BTHC[:, piece:], k_BLKC, v_BLKC, mask[..., piece:, :])
    return torch.cat((early_BTHC, late_BTHC), dim=1)


def _in_order(x: Tensor, axis: Axis) -> Tensor:
    """The whole sequences, from what each rank holds of them: [B, T, ...] -> [B, L, ...]."""
    gathered = all_gather(x, axis, dim=1).unflatten(1, (axis.degree, 2, -1))
    front, back = gathered.unbind(dim=2)
    return torch.cat((front, back.flip(1)), dim=1).flatten(1, 2)
