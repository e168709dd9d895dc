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

A unit travels as one message for each group of ranks that its weights are cut among: one for most, a second
for the matrices or experts that are spread over ranks (see `tensor_parallel.py`, `expert_parallel.py`).
Blocks too small to be worth a message join the rest of the model: on a CPU, a block of nine parameters
gathers five times faster than parameter by parameter.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from titan_tpu.device import Device
from titan_tpu.parallel.layout import Layout
from titan_tpu.parallel.mesh import Axis, Mesh


@dataclass(frozen=True)
class Precision:
    """Types of what travels; the shards themselves are float32."""

    compute: torch.dtype
    """Type of the gathered weights."""
    reduce: torch.dtype
    """Type in which gradients are summed over ranks."""


@dataclass(frozen=True)
class Part:
    """How a weight is spread over ranks that do not gather it from each other."""

    axis: Axis
    """These ranks: each computes with a part of its own."""
    shard: Axis
    """The ranks that compute with the same part, and keep one shard of it each."""
    dim: int
    """The dimension that is cut along `axis`."""


class Placement(NamedTuple):
    """Where a parameter is, and which of its shards this rank holds."""

    layout: Layout
    part: Part


@dataclass
class _Unit:
    """Parameters that are gathered at the same time."""

    mesh: Mesh
    precision: Precision
    keeps_weights: bool
    """Whether autograd keeps the whole weights. True for the rest of the model and for the last block,
    whose backward pass begins when its forward pass ends, and for blocks that are computed again, which
    gather again by themselves.
    """
    layouts: list[Layout] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    """For each parameter the ranks that its part is cut among."""
    shards: list[Tensor] = field(default_factory=list)
    slots: list[list[tuple[nn.Module, str]]] = field(default_factory=list)
    """For each parameter the modules, and their attributes, that refer to it; more than one if it is tied."""
    again: tuple[Tensor, ...] | None = None
    """The whole weights, from their first use in the backward pass to their last."""

    def messages(self) -> Iterator[tuple[Axis, list[int]]]:
        """Which parameters travel together, and along which axis."""
        for axis in dict.fromkeys(self.axes):
            yield axis, [i for i, other in enumerate(self.axes) if other == axis]

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Within this context the modules see whole weights in place of shards."""
        weights = _Gather.apply(self, *self.shards)
        self._place(weights)
        try:
            if self.mesh.copy.degree == 1 or self.keeps_weights or not torch.is_grad_enabled():
                yield
            else:
                with self._notes_in_place_of(weights):
                    yield
        finally:
            self._place(self.shards)

    def _notes_in_place_of(self, weights: tuple[Tensor, ...]):
        """Hooks with which autograd keeps notes in place of `weights` and of views of them."""
        # By storage, but not by its address: a tensor that is only being traced has none. The hooks must not
        # refer to the weights themselves, for they live as long as what autograd keeps.
        shapes = {
            weight.untyped_storage()._cdata: (i, weight.shape, weight.stride())
            for i, weight in enumerate(weights)
        }

        def pack(tensor: Tensor) -> "Tensor | _Note":
            weight = shapes.get(tensor.untyped_storage()._cdata)
            return tensor if weight is None else _Note.of(tensor, *weight)

        def unpack(kept: "Tensor | _Note") -> Tensor:
            if not isinstance(kept, _Note):
                return kept
            if self.again is None:
                with torch.no_grad():
                    self.again = _gather(self, self.shards)
            return kept.view(self.again[kept.index])

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def _place(self, tensors: Sequence[Tensor]) -> None:
        for tensor, slots in zip(tensors, self.slots, strict=True):
            for module, attribute in slots:
                module._parameters[attribute] = tensor


@dataclass(frozen=True)
class _Note:
    """A view of a whole weight that can be made again."""

    index: int
    dims: tuple[int, ...]
    """Dimensions of the weight in the order of the view."""

    @classmethod
    def of(cls, view: Tensor, index: int, shape: torch.Size, stride: tuple[int, ...]) -> "Tensor | _Note":
        """A note of a view of a weight, or the view itself if more than the order of dimensions differs."""
        for dims in permutations(range(len(shape))):
            if view.shape == tuple(shape[i] for i in dims) and view.stride() == tuple(
                stride[i] for i in dims
            ):
                return cls(index, dims)
        return view

    def view(self, weight: Tensor) -> Tensor:
        """The view, of the weight gathered again."""
        return weight.permute(self.dims)


def _gather(unit: _Unit, shards: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The whole weights of a unit, in the type that is computed in."""
    weights: dict[int, Tensor] = {}
    for axis, indices in unit.messages():
        if axis.degree == 1:
            for i in indices:
                weights[i] = shards[i].to(unit.precision.compute).view(unit.layouts[i].part_shape)
            continue
        # Cast before sending: in bfloat16 half as many bytes travel.
        message = torch.cat([shards[i].flatten() for i in indices]).to(unit.precision.compute)
        sizes = [shards[i].numel() for i in indices]
        parts = axis.all_gather(message).view(axis.degree, -1).split(sizes, dim=1)
        weights |= {i: unit.layouts[i].join(part) for i, part in zip(indices, parts, strict=True)}
    return tuple(weights[i] for i in range(len(shards)))


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
        shards: dict[int, Tensor] = {}
        for axis, indices in unit.messages():
            shards |= _reduce(unit, axis, {i: gradients[i].to(unit.precision.reduce) for i in indices})
        return None, *(shards[i].float().view(layout.shard_shape) for i, layout in enumerate(unit.layouts))


def _reduce(unit: _Unit, axis: Axis, gradients: dict[int, Tensor]) -> dict[int, Tensor]:
    """Sum whole gradients over all ranks, and keep this rank's shard of each."""
    if axis.degree * unit.mesh.replicate.degree == 1:
        return {i: gradient.contiguous() for i, gradient in gradients.items()}
    parts = [unit.layouts[i].split(gradient) for i, gradient in gradients.items()]
    message = torch.cat(parts, dim=1).flatten()
    message = unit.mesh.replicate.all_reduce(axis.reduce_scatter(message))
    return dict(zip(gradients, message.split([part.shape[1] for part in parts]), strict=True))


def shard_parameters(
    model: nn.Module,
    mesh: Mesh,
    precision: Precision,
    device: Device,
    initial_rows: Callable[[nn.Module, str, torch.Size, int, int], Tensor],
    parts: dict[str, Part],
    recomputes_blocks: bool = False,
) -> dict[str, Placement]:
    """Replace every parameter of `model`, which may live on the meta device, by this rank's shard, in place.

    `initial_rows(module, name, shape, start, stop)` makes rows of one parameter (see `Layout`): no rank ever
    holds the whole model. `parts` says, by name, which weights are spread over ranks. With
    `recomputes_blocks` each block is a unit, however small, and gathers by itself when it is computed again.
    Names do not change, and tied parameters stay tied. Returns the placement of each parameter, by the name
    under which `named_parameters` lists it.
    """
    slots: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for attribute, parameter in module._parameters.items():
            slots.setdefault(parameter, []).append((module, attribute))

    placements: dict[str, Placement] = {}
    names = _unit_names(model, 0 if recomputes_blocks else device.smallest_message)
    units = {
        name: _Unit(mesh, precision, keeps_weights=recomputes_blocks or name in ("", names[-1]))
        for name in names
    }
    whole = Part(Axis("", degree=1, index=0), mesh.copy, dim=0)
    for name, parameter in list(model.named_parameters()):
        part = parts.get(name, whole)
        layout = Layout(parameter.shape, part.shard.degree, part.axis.degree, part.dim)
        module, _ = slots[parameter][0]
        start, stop = layout.own_rows(part.axis.index, part.shard.index)
        rows = initial_rows(module, name, parameter.shape, start, stop)
        shard = layout.shard(rows[:, layout.own_columns(part.axis.index)])
        unit = units[max((prefix for prefix in units if name.startswith(prefix)), key=len)]
        unit.layouts.append(layout)
        unit.axes.append(part.shard)
        unit.shards.append(nn.Parameter(shard.to(device.torch_device)))
        unit.slots.append(slots[parameter])
        placements[name] = Placement(layout, part)

    for prefix, unit in units.items():
        unit._place(unit.shards)
        module = model.get_submodule(prefix.removesuffix("."))
        module._unit = unit
        module.__class__ = _gathering_class(type(module))
    return placements


@contextmanager
def replaced(model: nn.Module, shards: dict[nn.Parameter, Tensor]) -> Iterator[None]:
    """Within this context the model gathers other tensors in place of its shards: those of a trace."""
    units = [module._unit for module in model.modules() if hasattr(module, "_unit")]
    own = [unit.shards for unit in units]
    for unit in units:
        unit.shards = [shards[shard] for shard in unit.shards]
    try:
        yield
    finally:
        for unit, tensors in zip(units, own, strict=True):
            unit.shards = tensors
            unit._place(tensors)


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
