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


@dataclass(frozen=True)
class Mesh:
    """The axes of this rank, and all ranks together as one more axis."""

    replicate: Axis
    """Ranks that hold the same shard of every parameter."""
    shard: Axis
    """Ranks that together hold one copy of every parameter."""
    world: Axis


def build_mesh(config: MeshConfig, rank: int) -> Mesh:
    """Arrange the ranks as rank = replicate_index * shard + shard_index.

    If there is more than one rank the default process group must exist, and all ranks must call this
    together.
    """
    ranks = torch.arange(config.world).view(config.replicate, config.shard)
    replicate_index, shard_index = divmod(rank, config.shard)
    return Mesh(
        replicate=_build_axis("titan_replicate", ranks.t().tolist(), replicate_index),
        shard=_build_axis("titan_shard", ranks.tolist(), shard_index),
        world=_build_axis("titan_world", [ranks.flatten().tolist()], rank),
    )


def _build_axis(name: str, groups: list[list[int]], index: int) -> Axis:
    """The axis along which the ranks of each list in `groups` are neighbours; `index` is our place in it."""
    degree = len(groups[0])
    if degree > 1:
        # One list holds all ranks: the default group serves, and no further connections are made.
        group = dist.group.WORLD if len(groups) == 1 else dist.new_subgroups_by_enumeration(groups)[0]
        _register_process_group(name, group)
    return Axis(name, degree, index)
