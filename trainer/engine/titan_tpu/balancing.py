"""Keeping experts evenly busy, and saying how busy they are.

Dimensions: L layers with experts, E experts of each. Loads are counts of pairs of a token and one of its
experts; see `models/experts.py`. There are two ways to balance them:

auxiliary-loss  A term of the objective grows with the product of an expert's share of the pairs and its share
                of the probability (Fedus et al., arXiv 2101.03961, equation 4). Shares of the pairs are those
                of a global batch, since within a few sequences experts may well specialise (Qiu et al., arXiv
                2501.11873): of the last one, for this one's are not known before its last micro-step, when
                most gradients are done. They carry no gradient and change little from step to step.
bias            After each step, a bias of each expert that got more than an even share goes down, the others'
                go up; it takes part in the choice of experts and in nothing else (Wang et al., arXiv
                2408.15664).

Neither depends on how a global batch is cut into ranks and micro-steps, and neither sends a message: the
loads of a step travel with its loss. What they remember from step to step is part of the state of a run.
"""

import torch
from torch import Tensor

from titan_tpu.config import ExpertsConfig


def initial(config: ExpertsConfig, layers: int, device: torch.device) -> Tensor | None:
    """What balances the first step, [L, E]: even shares, with which the auxiliary loss has no gradient, or
    biases of zero. None where nothing is balanced.
    """
    value = {"none": None, "auxiliary-loss": 1 / config.num_experts, "bias": 0.0}[config.load_balancing]
    return None if value is None else torch.full((layers, config.num_experts), value, device=device)


def following(config: ExpertsConfig, balance_LE: Tensor, pairs_LE: Tensor) -> Tensor:
    """What balances the step after one with these loads, over all ranks, that `balance_LE` has balanced."""
    if config.load_balancing == "auxiliary-loss":
        return pairs_LE / pairs_LE.sum(dim=1, keepdim=True)
    too_few_LE = (pairs_LE.mean(dim=1, keepdim=True) - pairs_LE).sign()
    return balance_LE + config.load_balancing_coefficient * too_few_LE


def auxiliary_loss(probability_LE: Tensor, share_LE: Tensor, config: ExpertsConfig, tokens: int) -> Tensor:
    """E * sum over e of (pairs of e / tokens) * (mean probability of e), averaged over layers: the
    `num_experts * sum(f * P)` of Hugging Face's mixtures, which is K, the experts of a token, when all are
    equally busy.

    `probability_LE` are sums over some of the `tokens` of a global batch; so the results for all of them add
    up. Each row of `share_LE` adds up to 1.
    """
    pairs_per_token = config.experts_per_token * share_LE
    per_layer_L = (pairs_per_token * probability_LE / tokens).sum(dim=1) * config.num_experts
    return per_layer_L.mean()


def summary(pairs_LE: Tensor, left_out_LE: Tensor) -> Tensor:
    """[pairs left out, largest load, smallest load, load of each expert over all layers]: [3 + E].

    A load is relative to an even share: 1 means even. The largest and the smallest are those of any expert in
    any layer.
    """
    load_LE = pairs_LE / pairs_LE.mean(dim=1, keepdim=True)
    ends = torch.stack((left_out_LE.sum(), load_LE.max(), load_LE.min()))
    return torch.cat((ends, load_LE.mean(dim=0)))
