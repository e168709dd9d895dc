"""Initial weights: a function of the seed, the parameter's name and the row alone.

The mesh takes no part, so a model starts from the same weights on every number of devices, and a rank can
make its rows without making the others: a model that fits no single process starts all the same.
"""

import hashlib

import torch
from torch import Tensor, nn

from titan_tpu.models.layers import RMSNorm

BLOCK = 1 << 20
"""About so many elements are drawn from one generator: a rank draws at most two blocks that it only needs
in part.
"""


def initial_rows(module: nn.Module, name: str, shape: torch.Size, seed: int, start: int, stop: int) -> Tensor:
    """Rows [start, stop) of the initial value, in float32 on the CPU, of the parameter with the qualified
    name `name`.

    Rows are those of the parameter as a matrix with its own last dimension; a vector is a column. Ones for
    norms, otherwise a normal distribution around zero with the module's own `init_std`.
    """
    width = shape[-1] if len(shape) > 1 else 1
    if isinstance(module, RMSNorm):
        return torch.ones(stop - start, width)
    std = module.init_std
    if isinstance(std, dict):
        std = std[name.rpartition(".")[2]]
    rows = torch.empty(stop - start, width)
    step = max(1, BLOCK // width)
    for block in range(start // step, -(-stop // step)):
        generator = torch.Generator().manual_seed(_seed_of(name, block, seed))
        first, last = block * step, min((block + 1) * step, shape.numel() // width)
        drawn = torch.empty(last - first, width).normal_(0.0, std, generator=generator)
        rows[max(first, start) - start : min(last, stop) - start] = drawn[
            max(start - first, 0) : min(stop, last) - first
        ]
    return rows


def _seed_of(name: str, block: int, seed: int) -> int:
    """63 bits that differ for every block; Python's own hash() would differ between processes."""
    digest = hashlib.sha256(f"{seed}/{name}/{block}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
