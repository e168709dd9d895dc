"""The training loss. Dimensions: B sequences, T tokens, N tokens of all sequences, D hidden size, V
vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LARGEST_LOGITS = 1 << 24
"""Logits that are held at once, at the most: 64 MiB in float32."""


def cross_entropy_sum(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Sum over B and T of -log softmax(logits)[target], in nats, as a float32 scalar.

    A sum, not a mean: divided by the token count of the global batch it gives gradients that are plain sums
    over micro-steps and ranks, however the batch is cut. Float32, because in bfloat16 a sum of thousands
    stops growing.
    """
    return F.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten().long(), reduction="sum")


def linear_cross_entropy_sum(x_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor) -> Tensor:
    """`cross_entropy_sum` of the logits x W^T.

    Where there are more than `LARGEST_LOGITS` of them they are made part by part, and their gradient is
    worked out at once: with a vocabulary of 150,000 the logits of 16,000 tokens would take 10 GB, and
    their gradient as much again.
    """
    if targets_BT.numel() * weight_VD.shape[0] <= LARGEST_LOGITS:
        return cross_entropy_sum(F.linear(x_BTD, weight_VD), targets_BT)
    total, *_ = _ChunkedCrossEntropy.apply(x_BTD.flatten(0, 1), weight_VD, targets_BT.flatten())
    return total


class _ChunkedCrossEntropy(torch.autograd.Function):
    """(x_ND, weight_VD, targets_N) -> the sum of cross entropies; backward scales what forward has kept."""

    @staticmethod
    def forward(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = x_ND.new_zeros((), dtype=torch.float32)
        x_gradient_ND = torch.empty_like(x_ND)
        # Summed in float32 over many parts, whatever the type of the weights is.
        weight_gradient_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        rows = max(1, LARGEST_LOGITS // weight_VD.shape[0])
        for start in range(0, len(x_ND), rows):
            part = slice(start, start + rows)
            logits_nV = F.linear(x_ND[part], weight_VD).float()
            targets_n1 = targets_N[part].long().unsqueeze(1)
            logsumexp_n1 = logits_nV.logsumexp(dim=1, keepdim=True)
            total += (logsumexp_n1 - logits_nV.gather(1, targets_n1)).sum()
            # softmax(logits) - one_hot(target)
            gradient_nV = (logits_nV - logsumexp_n1).exp_()
            gradient_nV.scatter_add_(1, targets_n1, -torch.ones_like(targets_n1, dtype=torch.float32))
            gradient_nV = gradient_nV.to(x_ND.dtype)
            x_gradient_ND[part] = gradient_nV @ weight_VD
            weight_gradient_VD += gradient_nV.T @ x_ND[part]
        return total, x_gradient_ND, weight_gradient_VD.to(weight_VD.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, x_gradient_ND, weight_gradient_VD = output
        ctx.mark_non_differentiable(x_gradient_ND, weight_gradient_VD)
        ctx.save_for_backward(x_gradient_ND, weight_gradient_VD)

    @staticmethod
    @torch.no_grad()
    def backward(ctx, scale: Tensor, *_: Tensor):
        x_gradient_ND, weight_gradient_VD = ctx.saved_tensors
        return (
            x_gradient_ND * scale.to(x_gradient_ND.dtype),
            weight_gradient_VD * scale.to(weight_gradient_VD.dtype),
            None,
        )
