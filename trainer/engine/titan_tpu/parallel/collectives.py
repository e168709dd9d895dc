"""Collectives that gradients pass through. Each is the transpose of another, or of itself.

`setup_context` is separate from `forward`, and `backward` builds no graph of its own, because that is what
torch.func and make_fx need in order to trace through them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from titan_tpu.parallel.mesh import Axis


def all_gather(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Concatenation of every rank's x along `dim`; its transpose sums gradients and scatters them."""
    return _Collective.apply(x, axis.all_gather, axis.reduce_scatter, dim) if axis.degree > 1 else x


def reduce_scatter(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum of every rank's x; its transpose gathers gradients."""
    return _Collective.apply(x, axis.reduce_scatter, axis.all_gather, dim) if axis.degree > 1 else x


def all_to_all(x: Tensor, axis: Axis) -> Tensor:
    """Part i along dimension 0 goes to rank i; the gradient takes the same way back."""
    return _Collective.apply(x, axis.all_to_all, axis.all_to_all, 0) if axis.degree > 1 else x


class _Collective(torch.autograd.Function):
    """(x, collective along dimension 0, its transpose, the dimension that stands for 0)."""

    @staticmethod
    def forward(x: Tensor, there: Callable, back: Callable, dim: int) -> Tensor:
        return there(x.movedim(dim, 0)).movedim(0, dim)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, _, ctx.back, ctx.dim = inputs

    @staticmethod
    @torch.no_grad()
    def backward(ctx, gradient: Tensor):
        return ctx.back(gradient.movedim(ctx.dim, 0)).movedim(0, ctx.dim), None, None, None
