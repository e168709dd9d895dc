"""The state of a run that a checkpoint keeps, as the parts of whole tensors that a rank holds.

A whole tensor is a matrix here, as in `parallel/layout.py`: all its dimensions but the last are its rows, and
a vector is a column. Weights have the names of the model; what an optimizer remembers of a weight has that
name behind `optimizer.KIND.`.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from titan_tpu.optimizers import Optimizer
from titan_tpu.parallel.mesh import Mesh
from titan_tpu.parallel.simple_fsdp import Placement


@dataclass(frozen=True)
class StatePart:
    """A part of a tensor, on this rank."""

    name: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    rows: tuple[int, int]
    """First and last row of the part, the latter not included."""
    columns: tuple[int, int]
    live: Tensor
    """What the run computes with: the elements of the part, row by row."""
    host: Tensor
    """The same in the memory of the host: on a CPU the live tensor itself, elsewhere a copy."""
    is_saved_here: bool
    """Whether this rank is the one that saves the part; others may hold it too."""

    @property
    def dtype(self) -> str:
        """The number format, by the name that safetensors has for it."""
        return {"torch.float32": "F32"}[str(self.live.dtype)]

    @property
    def address(self) -> int:
        """Where the part begins in the memory of the host; it has no gaps."""
        return self.host.data_ptr()

    @property
    def bytes(self) -> int:
        """Size of the part."""
        return self.host.nbytes

    def take_back(self) -> None:
        """Make what is in the memory of the host live."""
        if self.host is not self.live:
            self.live.copy_(self.host)


def parts(
    model: nn.Module,
    placements: dict[str, Placement],
    optimizer: Optimizer,
    balance_LE: Tensor | None,
    mesh: Mesh,
) -> list[StatePart]:
    """All parts of this rank, in an order that is the same on all ranks; empty ones are left out.

    Replicas hold equal parts and take turns in saving them.
    """
    found = []
    kinds = {"": {parameter: parameter.detach() for parameter in model.parameters()}}
    kinds |= {f"optimizer.{kind}.": tensors for kind, tensors in optimizer.state().items()}
    for prefix, tensors in kinds.items():
        for name, parameter in model.named_parameters():
            if parameter in tensors:
                turn = len(found) % mesh.replicate.degree
                found.append(_part(prefix + name, placements[name], tensors[parameter], mesh, turn))
    if balance_LE is not None:
        rows, columns = ((0, size) for size in balance_LE.shape)
        is_first = mesh.world.index == 0
        part = _state_part("experts.balance", balance_LE.shape, rows, columns, balance_LE, is_first)
        found.append(part)
    return [part for part in found if part.live.numel() > 0]


def _part(name: str, placement: Placement, shard: Tensor, mesh: Mesh, turn: int) -> StatePart:
    """The rows of a shard that are not padding."""
    layout, part = placement
    rows = layout.own_rows(part.axis.index, part.shard.index)
    columns = layout.own_columns(part.axis.index)
    first = 0 if columns.start is None else columns.start
    width = layout.width
    own = shard.view(layout.shard_rows, width)[: rows[1] - rows[0]]
    return _state_part(name, layout.shape, rows, (first, first + width), own, mesh.replicate.index == turn)


def _state_part(name, shape, rows, columns, live: Tensor, is_saved_here: bool) -> StatePart:
    return StatePart(name, tuple(shape), rows, columns, live, live.to("cpu"), is_saved_here)
