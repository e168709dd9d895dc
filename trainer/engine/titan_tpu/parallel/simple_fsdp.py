"""Fully sharded data parallelism without hooks, also over replicas (HSDP).

A rank keeps its shard of every parameter (see `layout.py`). When a unit, which is a transformer block or the
rest of the model, runs forward, its whole weights are gathered; the transpose of that gather, in the backward
pass, sums the gradients and scatters them. A compiler sees one graph, with collectives as ordinary operators.
The idea is SimpleFSDP's (arXiv 2411.00284).

Shards are plain padded tensors and not DTensors, for three reasons, all measured:
- DTensor gives the last ranks shorter shards, so ranks trace different graphs. Here all ranks trace the same
  bytes.
- Over replicas DTensor all-reduces the whole gradient across slices and only then scatters it. The order here
  (scatter inside a slice, then all-reduce the shard) sends `degree` times fewer bytes over the slow network.
- A DTensor dispatches in Python; a small step in eager mode takes up to a third longer.
The price is that a border, such as a checkpoint, must know the layout.

Whole weights live for one forward pass of their unit only. Where autograd wants to keep one, it keeps a note
instead, and the first of a unit's notes that the backward pass redeems gathers the unit again (ZeRO stage 3,
arXiv 1910.02054): a rank never holds more whole weights than those of two blocks and of the ends of the
model.

A unit travels as one message, and blocks too small to be worth one join the rest of the model: on a CPU, a
block of nine parameters gathers five times faster than parameter by parameter.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from titan_tpu.device import Device
from titan_tpu.parallel.layout import Layout
from titan_tpu.parallel.mesh import Mesh


@dataclass(frozen=True)
class Precision:
    """Types of what travels; the shards themselves are float32."""

    compute: torch.dtype
    """Type of the gathered weights."""
    reduce: torch.dtype
    """Type in which gradients are summed over ranks."""


@dataclass
class _Unit:
    """Parameters that are gathered together."""

    mesh: Mesh
    precision: Precision
    layouts: list[Layout]
    shards: list[nn.Parameter]
    slots: list[list[tuple[nn.Module, str]]]
    """For each parameter the modules, and their attributes, that refer to it; more than one if it is tied."""
    keeps_weights: bool
    """Whether autograd keeps the whole weights. True for the rest of the model and for the last block,
    whose backward pass begins when its forward pass ends, and for blocks that are computed again, which
    gather again by themselves.
    """
    again: tuple[Tensor, ...] | None = None
    """The whole weights, from their first use in the backward pass to their last."""

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Within this context the modules see whole weights in place of shards."""
        weights = _Gather.apply(self, *self.shards)
        self._place(weights)
        try:
            if self.mesh.shard.degree == 1 or self.keeps_weights or not torch.is_grad_enabled():
                yield
            else:
                with self._notes_in_place_of(weights):
                    yield
        finally:
            self._place(self.shards)

    def _notes_in_place_of(self, weights: tuple[Tensor, ...]):
        """Hooks with which autograd keeps notes in place of `weights` and of views of them."""
        indices = {weight.untyped_storage().data_ptr(): i for i, weight in enumerate(weights)}

        def pack(tensor: Tensor) -> "Tensor | _Note":
            index = indices.get(tensor.untyped_storage().data_ptr())
            if index is None:
                return tensor
            return _Note(index, tensor.size(), tensor.stride(), tensor.storage_offset())

        def unpack(kept: "Tensor | _Note") -> Tensor:
            if not isinstance(kept, _Note):
                return kept
            if self.again is None:
                with torch.no_grad():
                    self.again = _gather(self, self.shards)
            return self.again[kept.index].as_strided(kept.size, kept.stride, kept.offset)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def _place(self, tensors: list[Tensor]) -> None:
        for tensor, slots in zip(tensors, self.slots, strict=True):
            for module, attribute in slots:
                module._parameters[attribute] = tensor


@dataclass(frozen=True)
class _Note:
    """A view of a whole weight that can be made again."""

    index: int
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


def _gather(unit: _Unit, shards: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The whole weights of a unit, in the type that is computed in."""
    axis = unit.mesh.shard
    if axis.degree == 1:
        whole = zip(unit.layouts, shards, strict=True)
        return tuple(shard.to(unit.precision.compute).view(layout.shape) for layout, shard in whole)
    # Cast before sending: in bfloat16 half as many bytes travel.
    message = torch.cat([shard.flatten() for shard in shards]).to(unit.precision.compute)
    parts = axis.all_gather(message).view(axis.degree, -1).split([s.numel() for s in shards], dim=1)
    return tuple(layout.join(part) for layout, part in zip(unit.layouts, parts, strict=True))


class _Gather(torch.autograd.Function):
    """A unit's shards -> its whole weights; backwards, gradients of weights -> summed gradients of shards.

    `setup_context` is separate from `forward`, and `backward` builds no graph of its own, because that is
    what torch.func and make_fx need in order to trace through it.
    """

    @staticmethod
    def forward(unit: _Unit, *shards: Tensor) -> tuple[Tensor, ...]:
        return _gather(unit, shards)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.unit = inputs[0]

    @staticmethod
    @torch.no_grad()
    def backward(ctx, *gradients: Tensor):
        unit: _Unit = ctx.unit
        unit.again = None
        gradients = [gradient.to(unit.precision.reduce) for gradient in gradients]
        if unit.mesh.world.degree > 1:
            gradients = _reduce(unit, gradients)
        shards = zip(unit.layouts, gradients, strict=True)
        return None, *(gradient.float().reshape(layout.shard_shape) for layout, gradient in shards)


def _reduce(unit: _Unit, gradients: list[Tensor]) -> list[Tensor]:
    """Sum whole gradients over all ranks, and keep this rank's shard of each."""
    parts = [layout.split(gradient) for layout, gradient in zip(unit.layouts, gradients, strict=True)]
    message = torch.cat(parts, dim=1).flatten()
    message = unit.mesh.replicate.all_reduce(unit.mesh.shard.reduce_scatter(message))
    shards = message.split([part.shape[1] for part in parts])
    return [shard.view(layout.shard_shape) for layout, shard in zip(unit.layouts, shards, strict=True)]


def shard_parameters(
    model: nn.Module,
    mesh: Mesh,
    precision: Precision,
    device: Device,
    initial_rows: Callable[[nn.Module, str, torch.Size, int, int], Tensor],
    recomputes_blocks: bool = False,
) -> dict[str, Layout]:
    """Replace every parameter of `model`, which may live on the meta device, by this rank's shard, in place.

    `initial_rows(module, name, shape, start, stop)` makes rows of one parameter (see `Layout`): no rank
    ever holds the whole model. With `recomputes_blocks` each block is a unit, however small, and gathers
    by itself when it is computed again. Names do not change, and tied parameters stay tied. Returns the
    layout of each parameter, by the name under which `named_parameters` lists it.
    """
    slots: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for attribute, parameter in module._parameters.items():
            slots.setdefault(parameter, []).append((module, attribute))

    layouts: dict[str, Layout] = {}
    names = _unit_names(model, 0 if recomputes_blocks else device.smallest_message)
    units = {
        name: _Unit(mesh, precision, [], [], [], keeps_weights=recomputes_blocks or name in ("", names[-1]))
        for name in names
    }
    for name, parameter in list(model.named_parameters()):
        layout = layouts[name] = Layout(parameter.shape, mesh.shard.degree)
        module, _ = slots[parameter][0]
        start, stop = layout.own_rows(mesh.shard.index)
        shard = layout.shard(initial_rows(module, name, parameter.shape, start, stop))
        unit = units[max((prefix for prefix in units if name.startswith(prefix)), key=len)]
        unit.layouts.append(layout)
        unit.shards.append(nn.Parameter(shard.to(device.torch_device)))
        unit.slots.append(slots[parameter])

    for prefix, unit in units.items():
        unit._place(unit.shards)
        module = model.get_submodule(prefix.removesuffix("."))
        module._unit = unit
        module.__class__ = _gathering_class(type(module))
    return layouts


def _unit_names(model: nn.Module, smallest_message: int) -> list[str]:
    """Name prefixes of the units: members of module lists that are worth a message, and "" for the rest."""
    names = [""]
    for list_name, modules in model.named_modules():
        if isinstance(modules, nn.ModuleList):
            sizes = [sum(parameter.nbytes for parameter in member.parameters()) for member in modules]
            names += [f"{list_name}.{i}." for i, size in enumerate(sizes) if size >= smallest_message]
    return names


@functools.cache
def _gathering_class(base: type[nn.Module]) -> type[nn.Module]:
    """A subclass of `base` that runs forward with its whole weights.

    A subclass and not a wrapper module, which would change the names of all parameters.
    """

    def forward(self, *args, **kwargs):
        with self._unit.gathered():
            return base.forward(self, *args, **kwargs)

    return type(f"Sharded{base.__name__}", (base,), {"forward": forward})
