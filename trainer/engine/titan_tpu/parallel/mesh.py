"""The mesh: how ranks are arranged in axes, and the collectives along an axis.

Collectives are the raw functional operators with one wait each: torch.compile, make_fx and functorch can all
trace them, and the Python wrappers around them add a second wait.

Groups are called by names of our own. Torch numbers its process groups, and the number of "my shard group"
differs from rank to rank; as that name is a constant of a traced graph, ranks would compile different
programs.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _register_process_group

from titan_tpu.config import MeshConfig


@dataclass(frozen=True)
class Axis:
    """One axis of the mesh as seen by this rank. Along an axis of degree 1 nothing is sent."""

    group_name: str
    """Registered name of the process group; not registered when the degree is 1."""
    degree: int
    """Number of ranks along the axis."""
    index: int
    """This rank's place among them."""

    def all_gather(self, x: Tensor) -> Tensor:
        """Concatenation of every rank's x along dimension 0, in rank order: [n, ...] -> [degree * n, ...]."""
        if self.degree == 1:
            return x
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.all_gather_into_tensor(x.contiguous(), self.degree, self.group_name))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """This rank's part of the sum of every rank's x: [degree * n, ...] -> [n, ...]."""
        if self.degree == 1:
            return x
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.reduce_scatter_tensor(x.contiguous(), "sum", self.degree, self.group_name))

    def all_reduce(self, x: Tensor) -> Tensor:
        """Sum of every rank's x, of the same shape and bitwise equal on all ranks."""
        if self.degree == 1:
            return x
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.all_reduce(x.contiguous(), "sum", self.group_name))

    def all_to_all(self, x: Tensor) -> Tensor:
        """Part i of x goes to rank i, and part j of the result comes from rank j: [degree * n, ...] -> the
        same shape.
        """
        if self.degree == 1:
            return x
        ops = torch.ops._c10d_functional
        parts = [x.shape[0] // self.degree] * self.degree
        return ops.wait_tensor(ops.all_to_all_single(x.contiguous(), parts, parts, self.group_name))


@dataclass(frozen=True)
class Mesh:
    """The axes of this rank.

    World = replicate x shard x context x tensor. The other axes combine these: they are the ranks that a
    collective of some kind has to reach.
    """

    replicate: Axis
    """Ranks that hold the same shard of every parameter."""
    copy: Axis
    """Ranks that together hold one copy of the model; no two of them work on the same tokens."""
    fully_shard: Axis
    """Those of a copy at one place along tensor (shard x context): they hold the same part of each matrix."""
    context: Axis
    """Ranks that share sequences."""
    tensor: Axis
    """Ranks that share matrices, and the sequences between the matrices."""
    expert: Axis
    """Ranks that share the experts of a block: neighbours within a copy."""
    expert_shard: Axis
    """Those of a copy at one place along expert: they hold the same experts."""
    world: Axis


def build_mesh(config: MeshConfig, rank: int) -> Mesh:
    """Arrange the ranks as rank = ((replicate * S + shard) * C + context) * T + tensor, for degrees S, C, T.

    If there is more than one rank the default process group must exist, and all ranks must call this
    together.
    """
    ranks = torch.arange(config.world)
    copies = ranks.view(config.replicate, config.copy)
    mesh = ranks.view(-1, config.context, config.tensor)
    # In each, the ranks of one row are neighbours along the axis.
    groups = {
        "world": ranks.view(1, -1),
        "replicate": copies.t(),
        "copy": copies,
        "fully_shard": copies.unflatten(1, (-1, config.tensor)).transpose(1, 2).flatten(0, 1),
        "context": mesh.transpose(1, 2).flatten(0, 1),
        "tensor": mesh.flatten(0, 1),
        "expert": ranks.view(-1, config.expert),
        "expert_shard": copies.unflatten(1, (-1, config.expert)).transpose(1, 2).flatten(0, 1),
    }
    made: dict[str, dist.ProcessGroup] = {}
    return Mesh(**{name: _build_axis(name, rows.tolist(), rank, made) for name, rows in groups.items()})


def _build_axis(name: str, groups: list[list[int]], rank: int, made: dict[str, dist.ProcessGroup]) -> Axis:
    """The axis along which the ranks of each list in `groups` are neighbours.

    `made` remembers process groups, for axes that join the same ranks.
    """
    own = next(group for group in groups if rank in group)
    axis = Axis(f"titan_{name}", len(own), own.index(rank))
    if axis.degree > 1:
        key = str(groups)
        if key not in made:
            # One list holds all ranks: the default group serves, and no further connections are made.
            whole = len(groups) == 1
            made[key] = dist.group.WORLD if whole else dist.new_subgroups_by_enumeration(groups)[0]
        _register_process_group(axis.group_name, made[key])
    return axis
