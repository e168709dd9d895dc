"""Tensor parallelism: matrices of a block are spread over ranks (Shoeybi et al., arXiv 1909.08053), and
between the matrices each rank works on a part of every sequence (Korthikanti et al., arXiv 2205.05198,
"sequence parallelism").

Attention and the dense feed-forward layer gather the parts of the sequences, compute with some of the heads
or of the inner width, and sum up what all ranks say while they scatter it again. Norms, embedding, router and
loss work on a rank's own tokens with whole weights, so no two ranks of a copy do the same work, and gradients
are plain sums over all ranks whatever the layer.
"""

import functools

from torch import Tensor, nn

from titan_tpu.models.attention import Attention
from titan_tpu.models.layers import SwiGLU
from titan_tpu.parallel.collectives import all_gather, reduce_scatter
from titan_tpu.parallel.mesh import Mesh
from titan_tpu.parallel.simple_fsdp import Part

_CUTS = {
    Attention: {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": -1},
    SwiGLU: {"gate_proj": 0, "up_proj": 0, "down_proj": -1},
}
"""The dimension along which each matrix is cut: rows of those that are applied first, columns of the last."""

SEQUENCE = 1
"""The dimension of tokens in x_BTD."""


def spread_matrices(model: nn.Module, mesh: Mesh) -> dict[str, Part]:
    """Let layers share their matrices along `mesh.tensor`; returns how these are cut, by name."""
    parts = {}
    if mesh.tensor.degree == 1:
        return parts
    for name, module in model.named_modules():
        for layer, cuts in _CUTS.items():
            if isinstance(module, layer):
                module.__class__ = _spread_class(type(module))
                module.axis = mesh.tensor
                for matrix, dim in cuts.items():
                    parts[f"{name}.{matrix}.weight"] = Part(mesh.tensor, mesh.fully_shard, dim)
    return parts


@functools.cache
def _spread_class(base: type[nn.Module]) -> type[nn.Module]:
    """A subclass, and not a wrapper module, which would change the names of all parameters."""

    def forward(self, x_BND: Tensor, *args) -> Tensor:
        whole_BTD = all_gather(x_BND, self.axis, SEQUENCE)
        return reduce_scatter(base.forward(self, whole_BTD, *args), self.axis, SEQUENCE)

    return type(f"Spread{base.__name__}", (base,), {"forward": forward})
