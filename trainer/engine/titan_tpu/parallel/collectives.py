"""Collectives that gradients pass through. Each is the transpose of another, or of itself.

`setup_context` is separate from `forward`, and `backward` builds no graph of its own, because that is what
torch.func and make_fx need in order to trace through them.
"""

import torch
from torch import Tensor

from titan_tpu.parallel.mesh import Axis


def all_gather(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Concatenation of every rank's x along `dim`; its transpose sums gradients and scatters them."""
    return _AllGather.apply(x, axis, dim) if axis.degree > 1 else x


def reduce_scatter(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum of every rank's x; its transpose gathers gradients."""
    return _ReduceScatter.apply(x, axis, dim) if axis.degree > 1 else x


def all_to_all(x: Tensor, axis: Axis) -> Tensor:
    """Part i along dimension 0 goes to rank i; the gradient takes the same way back."""
    return _AllToAll.apply(x, axis) if axis.degree > 1 else x


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, axis: Axis, dim: int) -> Tensor:
        return axis.all_gather(x.movedim(dim, 0)).movedim(0, dim)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, ctx.axis, ctx.dim = inputs

    @staticmethod
    @torch.no_grad()
    def backward(ctx, gradient: Tensor):
        return ctx.axis.reduce_scatter(gradient.movedim(ctx.dim, 0)).movedim(0, ctx.dim), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, axis: Axis, dim: int) -> Tensor:
        return axis.reduce_scatter(x.movedim(dim, 0)).movedim(0, dim)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, ctx.axis, ctx.dim = inputs

    @staticmethod
    @torch.no_grad()
    def backward(ctx, gradient: Tensor):
        return ctx.axis.all_gather(gradient.movedim(ctx.dim, 0)).movedim(0, ctx.dim), None, None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, axis: Axis) -> Tensor:
        return axis.all_to_all(x)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.axis = inputs[1]

    @staticmethod
    @torch.no_grad()
    def backward(ctx, gradient: Tensor):
        return ctx.axis.all_to_all(gradient), None
