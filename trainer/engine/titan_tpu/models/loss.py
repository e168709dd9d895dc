"""The training loss. Dimensions: B sequences, T tokens, N tokens of all sequences, n those of a part, D
hidden size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from titan_tpu.models.marks import IGNORED

LARGEST_LOGITS = 1 << 24
"""Logits that are held at once, at the most: 64 MiB in float32."""


def cross_entropy_sum(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Sum over B and T of -log softmax(logits)[target], in nats, as a float32 scalar; a target that is
    `IGNORED` adds nothing.

    A sum, not a mean: divided by the token count of the global batch it gives gradients that are plain sums
    over micro-steps and ranks, however the batch is cut. Float32, because in bfloat16 a sum of thousands
    stops growing.
    """
    logits_NV, targets_N = logits_BTV.float().flatten(0, 1), targets_BT.flatten().long()
    return F.cross_entropy(logits_NV, targets_N, ignore_index=IGNORED, reduction="sum")


def linear_cross_entropy_sum(
    x_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, z_loss: float = 0.0, is_masked: bool = False
) -> tuple[Tensor, Tensor]:
    """What is minimised, and `cross_entropy_sum`, of the logits x W^T; the latter carries no gradient.

    `z_loss` is the weight of the squared log of the softmax's denominator, which keeps logits from drifting
    (Chowdhery et al., arXiv 2204.02311, section 5). With `is_masked` some targets may be `IGNORED`, which add
    nothing to either.

    Where there are more than `LARGEST_LOGITS` logits they are made part by part, and their gradient is
    worked out at once: with a vocabulary of 150,000 the logits of 16,000 tokens would take 10 GB, and
    their gradient as much again.
    """
    if targets_BT.numel() * weight_VD.shape[0] <= LARGEST_LOGITS:
        return _sums_of_all_logits(x_BTD, weight_VD, targets_BT, z_loss, is_masked)
    flat = (x_BTD.flatten(0, 1), weight_VD, targets_BT.flatten(), z_loss, is_masked)
    if torch.is_grad_enabled():
        objective, cross_entropy, *_ = _ChunkedCrossEntropy.apply(*flat)
        return objective, cross_entropy
    return _sums_of_parts(*flat)


def _sums_of_all_logits(
    x_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, z_loss: float, is_masked: bool
) -> tuple[Tensor, Tensor]:
    """`linear_cross_entropy_sum` of tokens whose logits can be held at once."""
    logits_BTV = F.linear(x_BTD, weight_VD)
    objective = cross_entropy_sum(logits_BTV, targets_BT)
    cross_entropy = objective.detach()
    if z_loss > 0:
        logsumexp_BT = logits_BTV.float().logsumexp(dim=-1)
        if is_masked:
            logsumexp_BT = logsumexp_BT.masked_fill(targets_BT == IGNORED, 0.0)
        objective = objective + z_loss * logsumexp_BT.square().sum()
    return objective, cross_entropy


def _sums_of_parts(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, z_loss: float, is_masked: bool
) -> tuple[Tensor, Tensor]:
    """`linear_cross_entropy_sum` of any number of tokens, without a gradient."""
    rows = _rows_of_part(weight_VD)
    sums = [
        torch.stack(_sums_of_all_logits(x_nD.unsqueeze(0), weight_VD, targets_n, z_loss, is_masked))
        for x_nD, targets_n in zip(x_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    objective, cross_entropy = torch.stack(sums).sum(dim=0).unbind()
    return objective, cross_entropy


def _rows_of_part(weight_VD: Tensor) -> int:
    """For how many tokens logits are held at once."""
    return max(1, LARGEST_LOGITS // weight_VD.shape[0])


class _ChunkedCrossEntropy(torch.autograd.Function):
    """(x_ND, weight_VD, targets_N, z_loss, is_masked) -> the objective and the sum of cross entropies;
    backward scales what forward has kept.
    """

    @staticmethod
    def forward(
        x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, z_loss: float, is_masked: bool
    ) -> tuple[Tensor, ...]:
        total = x_ND.new_zeros((), dtype=torch.float32)
        z_total = x_ND.new_zeros((), dtype=torch.float32)
        x_gradients = []
        # Summed in float32 over many parts, whatever the type of the weights is.
        weight_gradient_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        rows = _rows_of_part(weight_VD)
        for x_nD, targets_n in zip(x_ND.split(rows), targets_N.split(rows), strict=True):
            logits_nV = F.linear(x_nD, weight_VD).float()
            targets_n1 = targets_n.long().unsqueeze(1)
            logsumexp_n1 = logits_nV.logsumexp(dim=1, keepdim=True)
            if is_masked:
                is_ignored_n1 = targets_n1 == IGNORED
                # Any token of the vocabulary: what comes of it is cleared.
                targets_n1 = targets_n1.masked_fill(is_ignored_n1, 0)
            loss_n1 = logsumexp_n1 - logits_nV.gather(1, targets_n1)
            total += (loss_n1.masked_fill(is_ignored_n1, 0.0) if is_masked else loss_n1).sum()
            # softmax(logits) * (1 + 2 z logsumexp) - one_hot(target)
            gradient_nV = (logits_nV - logsumexp_n1).exp_()
            if z_loss > 0:
                counted_n1 = logsumexp_n1.masked_fill(is_ignored_n1, 0.0) if is_masked else logsumexp_n1
                z_total += counted_n1.square().sum()
                gradient_nV *= 1 + 2 * z_loss * logsumexp_n1
            gradient_nV.scatter_add_(1, targets_n1, -torch.ones_like(targets_n1, dtype=torch.float32))
            if is_masked:
                gradient_nV.masked_fill_(is_ignored_n1, 0.0)
            gradient_nV = gradient_nV.to(x_ND.dtype)
            x_gradients.append(gradient_nV @ weight_VD)
            weight_gradient_VD += gradient_nV.T @ x_nD
        gradients = (torch.cat(x_gradients), weight_gradient_VD.to(weight_VD.dtype))
        return total + z_loss * z_total, total, *gradients

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, cross_entropy, x_gradient_ND, weight_gradient_VD = output
        ctx.mark_non_differentiable(cross_entropy, x_gradient_ND, weight_gradient_VD)
        ctx.save_for_backward(x_gradient_ND, weight_gradient_VD)

    @staticmethod
    @torch.no_grad()
    def backward(ctx, scale: Tensor, *_: Tensor):
        x_gradient_ND, weight_gradient_VD = ctx.saved_tensors
        return (
            x_gradient_ND * scale.to(x_gradient_ND.dtype),
            weight_gradient_VD * scale.to(weight_gradient_VD.dtype),
            None,
            None,
            None,
        )
