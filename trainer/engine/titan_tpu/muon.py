"""Muon: the momentum of a matrix, made orthogonal, is its update (Jordan, "Muon: an optimizer for hidden
layers in neural networks", 2024).

Dimensions: M matrices of the same shape, R rows and C columns of each, X ranks that a matrix is cut among.

It is for the matrices of blocks; embedding, output head and norms get AdamW's update. Updates are scaled as
Liu et al. do (arXiv 2502.16982, section 2.2), to the size that AdamW's have: one learning rate and one weight
decay serve both.

A matrix can be made orthogonal only as a whole, and its shards are spread over ranks. Matrices of the same
shape, of all layers, are dealt out to these ranks: each receives the whole of every X-th matrix, works on it,
and sends back the shards. Replicas, and ranks that share a matrix by tensor parallelism, repeat the work. All
ranks run the same program.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from titan_tpu.config import AdamWConfig, MuonConfig
from titan_tpu.optimizers import AdamW, Optimizer
from titan_tpu.parallel.simple_fsdp import Placement

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial that is applied to the singular values: it takes small ones up in few steps, and leaves
all of them somewhere around one.
"""
ROUNDS = 5
SMALLEST_NORM = 1e-7
"""A matrix of zeros stays one."""


def orthogonalise(x_MRC: Tensor) -> Tensor:
    """Matrices with the same singular vectors, and singular values close to one (Newton and Schulz's
    iteration).
    """
    a, b, c = COEFFICIENTS
    is_tall = x_MRC.shape[1] > x_MRC.shape[2]
    x = x_MRC.transpose(1, 2) if is_tall else x_MRC
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ROUNDS):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(1, 2) if is_tall else x


@dataclass(frozen=True)
class HiddenMatrix:
    """A parameter that consists of matrices."""

    parameter: nn.Parameter
    placement: Placement
    stacked: int
    """Matrices above each other in it: experts, and of each expert those that are applied to the same input.
    """


def hidden_matrices(model: nn.Module, placements: dict[str, Placement]) -> list[HiddenMatrix]:
    """The matrices of the blocks of a sharded model."""
    matrices = []
    for list_name, blocks in model.named_modules():
        if not isinstance(blocks, nn.ModuleList):
            continue
        for name, parameter in blocks.named_parameters():
            placement = placements[f"{list_name}.{name}"]
            shape = placement.layout.shape
            if len(shape) > 1:
                owner, _, attribute = name.rpartition(".")
                fused = getattr(blocks.get_submodule(owner), "fused", {}).get(attribute, 1)
                matrices.append(HiddenMatrix(parameter, placement, shape[:-2].numel() * fused))
    return matrices


class Muon(Optimizer):
    """Muon for `matrices`, AdamW for the others of `parameters`.

    `compute` is the type in which matrices travel and are made orthogonal: bfloat16 does for both.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        matrices: list[HiddenMatrix],
        config: MuonConfig,
        compute: torch.dtype,
    ):
        super().__init__(parameters)
        of_matrices = {matrix.parameter for matrix in matrices}
        rest = [parameter for parameter in parameters if parameter not in of_matrices]
        self._adamw = AdamW(rest, AdamWConfig(config.betas, config.epsilon, config.weight_decay))
        self._config = config
        self._compute = compute
        self._averages = {matrix.parameter: torch.zeros_like(matrix.parameter) for matrix in matrices}
        self._groups: dict[tuple, list[HiddenMatrix]] = {}
        for matrix in matrices:
            self._groups.setdefault((matrix.placement, matrix.stacked), []).append(matrix)

    @torch.no_grad()
    def step(self, learning_rate: float, divisor: Tensor | None = None) -> None:
        """Update every parameter in place, after dividing its gradient, which it must have, by `divisor`."""
        self._adamw.step(learning_rate, divisor)
        if divisor is not None:
            torch._foreach_div_([parameter.grad for parameter in self._averages], divisor)
        for group in self._groups.values():
            momenta = torch.stack([self._momentum(matrix.parameter) for matrix in group])
            updates = self._update(momenta.to(self._compute), group[0]).to(momenta.dtype)
            for matrix, update in zip(group, updates, strict=True):
                matrix.parameter.mul_(1 - learning_rate * self._config.weight_decay)
                matrix.parameter.sub_(update, alpha=learning_rate)

    def state(self) -> dict[str, dict[nn.Parameter, Tensor]]:
        """See `Optimizer.state`."""
        return {"average": self._averages} | self._adamw.state()

    def resume(self, step: int) -> None:
        """See `Optimizer.resume`."""
        self._adamw.resume(step)

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        """Nesterov's, of a shard."""
        average, momentum = self._averages[parameter], self._config.momentum
        average.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(average, momentum)

    def _update(self, momenta: Tensor, like: HiddenMatrix) -> Tensor:
        """Shards of the momenta of several parameters, [n, shard shape] -> shards of their updates."""
        layout, part = like.placement
        ranks = part.shard.degree
        each = -(-len(momenta) // ranks)
        dealt = torch.cat((momenta, momenta.new_zeros(ranks * each - len(momenta), *momenta.shape[1:])))
        # [X * each, ...]: rank i gets `each` parameters, of which it receives X shards.
        shards = part.shard.all_to_all(dealt).view(ranks, each, -1)
        wholes = [layout.join(own) for own in shards.unbind(dim=1)]
        whole = torch.stack([self._orthogonalise_whole(x, like) for x in wholes])
        shards = torch.stack([layout.split(x) for x in whole], dim=1)
        return part.shard.all_to_all(shards.flatten(0, 1)).view(-1, *momenta.shape[1:])[: len(momenta)]

    def _orthogonalise_whole(self, momentum: Tensor, like: HiddenMatrix) -> Tensor:
        """The update of a part, [part shape], from its momentum."""
        layout, part = like.placement
        # Experts are matrices of their own, but a matrix that is cut has to be put together first.
        is_cut = layout.parts > 1 and len(layout.shape) == 2
        if is_cut:
            momentum = part.axis.all_gather(momentum.movedim(layout.dim, 0)).movedim(0, layout.dim)
        stacked = 1 if is_cut else like.stacked // layout.parts
        matrices = momentum.reshape(stacked, -1, layout.shape[-1])
        update = orthogonalise(matrices) * (0.2 * max(matrices.shape[1:]) ** 0.5)
        update = update.reshape(momentum.shape)
        return update.chunk(layout.parts, layout.dim)[part.axis.index] if is_cut else update
