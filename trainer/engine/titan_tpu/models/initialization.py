"""Initial weights: a function of the seed and the parameter's name alone.

The mesh takes no part, so a model starts from the same weights on every number of devices, and a rank can
make any parameter without making those before it.
"""

import hashlib

import torch
from torch import Tensor, nn

from titan_tpu.models.layers import RMSNorm


def initial_weight(module: nn.Module, name: str, shape: torch.Size, seed: int) -> Tensor:
    """The whole initial value, in float32 on the CPU, of `module`'s parameter with the qualified name `name`.

    Ones for norms, otherwise a normal distribution around zero with the module's own `init_std`.
    """
    if isinstance(module, RMSNorm):
        return torch.ones(shape)
    generator = torch.Generator().manual_seed(_seed_of(name, seed))
    return torch.empty(shape).normal_(0.0, module.init_std, generator=generator)


def _seed_of(name: str, seed: int) -> int:
    """63 bits that differ for every name; Python's own hash() would differ between processes."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
