"""Expert parallelism: the experts of a block are spread over ranks, and tokens travel to them and back
(Lepikhin et al., arXiv 2006.16668).

Dimensions as in `models/experts.py`: N tokens of this rank, K experts of a token, P pairs (N * K), D hidden
size; and X ranks of the expert axis, S slots of a rank for each of these ranks.

Shapes are static: a rank sends S rows to every rank, filled or not. Without a capacity factor S is what the
worst case needs, in which every token chooses as many experts of one rank as it can, and no pair is ever left
out; but most rows travel empty. With one, S is that multiple of an even share, and the pairs beyond it are
left out: those with the smallest weights.
"""

import functools
import math

import torch
from torch import Tensor, nn

from titan_tpu.models.experts import SparseMoe
from titan_tpu.parallel.collectives import all_to_all
from titan_tpu.parallel.mesh import Axis, Mesh
from titan_tpu.parallel.simple_fsdp import Part


def spread_experts(model: nn.Module, mesh: Mesh, capacity_factor: float | None) -> dict[str, Part]:
    """Let mixtures send tokens to the ranks of `mesh.expert`; returns how their weights are cut, by name."""
    parts = {}
    if mesh.expert.degree == 1:
        return parts
    for name, module in model.named_modules():
        if isinstance(module, SparseMoe):
            module.__class__ = _spread_class(type(module))
            module.axis, module.capacity_factor = mesh.expert, capacity_factor
            for weight, _ in module.experts.named_parameters():
                parts[f"{name}.experts.{weight}"] = Part(mesh.expert, mesh.expert_shard, dim=0)
    return parts


def slots_of(tokens: int, experts_per_token: int, experts: int, ranks: int, factor: float | None) -> int:
    """Rows that a rank with this many tokens reserves for each of the ranks that share `experts`."""
    most = tokens * min(experts_per_token, experts // ranks)
    if factor is None:
        return most
    return min(most, math.ceil(factor * tokens * experts_per_token / ranks))


@functools.cache
def _spread_class(base: type[SparseMoe]) -> type[SparseMoe]:
    return type(f"Spread{base.__name__}", (base,), {"ask_experts": _ask_experts})


def _ask_experts(self: SparseMoe, x_ND: Tensor, weights_NK: Tensor, experts_NK: Tensor):
    """`SparseMoe.ask_experts` of experts that live on several ranks."""
    axis: Axis = self.axis
    experts = self.gate.weight.shape[0]
    own_experts = experts // axis.degree
    slots = slots_of(*experts_NK.shape, experts, axis.degree, self.capacity_factor)
    experts_P = experts_NK.flatten()
    weights_P = None if self.capacity_factor is None else weights_NK.detach().flatten()
    slot_P = _slots(experts_P // own_experts, weights_P, axis.degree, slots)

    # One row more than is sent: where pairs without a slot go.
    rows = axis.degree * slots
    x_PD = x_ND.repeat_interleave(experts_NK.shape[1], dim=0)
    sent = x_PD.new_zeros(rows + 1, x_PD.shape[1]).index_copy(0, slot_P, x_PD)[:rows]
    experts_sent = experts_P.new_full((rows + 1,), own_experts).index_copy(0, slot_P, experts_P % own_experts)

    received = all_to_all(sent, axis)
    experts_received = axis.all_to_all(experts_sent[:rows])
    answers = self.experts(received, experts_received)
    is_filled = (experts_received < own_experts).unsqueeze(1)
    answers = all_to_all(torch.where(is_filled, answers, 0), axis)

    # The row more: nothing, for those that were not asked.
    y_PD = torch.cat((answers, answers.new_zeros(1, answers.shape[1])))[slot_P]
    return y_PD.view(*experts_NK.shape, -1), (slot_P == rows).view_as(experts_NK)


def _slots(ranks_P: Tensor, weights_P: Tensor | None, degree: int, slots: int) -> Tensor:
    """The row of each pair among the rows sent, which are grouped by rank, or the row behind the last if the
    slots of its rank are taken by pairs with larger weights. Without weights there is a slot for every pair.
    """
    if weights_P is None:
        order_P = ranks_P.argsort(stable=True)
    else:
        by_weight_P = weights_P.argsort(descending=True, stable=True)
        order_P = by_weight_P[ranks_P[by_weight_P].argsort(stable=True)]
    sorted_P = ranks_P[order_P]
    starts = torch.searchsorted(sorted_P, torch.arange(degree, device=ranks_P.device))
    place_P = torch.arange(len(ranks_P), device=ranks_P.device) - starts[sorted_P]
    slot_P = torch.where(place_P < slots, sorted_P * slots + place_P, degree * slots)
    return torch.empty_like(slot_P).index_copy(0, order_P, slot_P)
