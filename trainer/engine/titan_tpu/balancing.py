"""Keeping experts evenly busy, and saying how busy they are.

Dimensions: L layers with experts, E experts of each. Loads are counts of pairs of a token and one of its
experts; see `models/experts.py`. There are two ways to balance them:

auxiliary-loss  A term of the objective grows with the product of an expert's share of the pairs and its share
                of the probability (Fedus et al., arXiv 2101.03961, equation 4). Shares are those of a
                micro-step over all ranks, since within one sequence experts may well specialise (Qiu et al.,
                arXiv 2501.11873).
bias            After each step, a bias of each expert that got more than an even share goes down, the others'
                go up; it takes part in the choice of experts and in nothing else (Wang et al., arXiv
                2408.15664).
"""

from collections.abc import Callable

import torch
from torch import Tensor


def auxiliary_loss(loads_L3E: Tensor, tokens: int, all_reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """This rank's part of E * sum over e of (pairs of e / tokens) * (mean probability of e), averaged over
    layers.

    `tokens` is their number on all ranks, and `all_reduce` sums over ranks. Summed over ranks this is
    `num_experts * sum(f * P)` as in Hugging Face's mixtures: K, the experts of a token, when all are equally
    busy.
    """
    probability_LE, pairs_LE = loads_L3E[:, 0], all_reduce(loads_L3E[:, 1].detach())
    per_layer_L = (pairs_LE / tokens * probability_LE / tokens).sum(dim=1) * loads_L3E.shape[2]
    return per_layer_L.mean()


def move_biases(biases: list[Tensor], pairs_LE: Tensor, step: float) -> None:
    """Change each layer's `bias_E` by `step`, in place, against the loads of the step that is over."""
    too_few_LE = (pairs_LE.mean(dim=1, keepdim=True) - pairs_LE).sign()
    for bias_E, too_few_E in zip(biases, too_few_LE, strict=True):
        bias_E += step * too_few_E


def summary(pairs_LE: Tensor, left_out_LE: Tensor) -> Tensor:
    """[pairs left out, largest load, smallest load, load of each expert over all layers]: [3 + E].

    A load is relative to an even share: 1 means even. The largest and the smallest are those of any expert in
    any layer.
    """
    load_LE = pairs_LE / pairs_LE.mean(dim=1, keepdim=True)
    ends = torch.stack((left_out_LE.sum(), load_LE.max(), load_LE.min()))
    return torch.cat((ends, load_LE.mean(dim=0)))
