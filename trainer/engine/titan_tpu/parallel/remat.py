"""Rematerialisation: what the backward pass computes again instead of keeping (Chen et al., arXiv
1604.06174).

Applied from outside, to the blocks of a model whose parameters are sharded already: a block gathers its
weights again when it is computed again, so they are not kept either.
"""

import functools
from collections import deque

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._grouped_mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default,
}
"""What `selective` keeps: results of matrix products and attention, which cost the most to compute again."""


def rematerialise(model: nn.Module, policy: str) -> None:
    """Let every member of a module list compute its forward again in the backward pass.

    `policy` is `none` (changes nothing), `selective` or `full`.
    """
    if policy == "none":
        return
    for modules in list(model.modules()):
        if isinstance(modules, nn.ModuleList):
            for module in modules:
                module.__class__ = _rematerialised_class(type(module), policy)


class _Keep(TorchDispatchMode):
    """Keeps the results of some operators, in their order."""

    def __init__(self, kept: deque):
        super().__init__()
        self._kept = kept

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if operator in _KEPT:
            self._kept.append(torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, result))
        return result


class _Reuse(TorchDispatchMode):
    """Takes what was kept for the result of the same operators, which are called in the same order."""

    def __init__(self, kept: deque):
        super().__init__()
        self._kept = kept

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return self._kept.popleft() if operator in _KEPT else operator(*args, **(kwargs or {}))


def _keep_and_reuse() -> tuple[_Keep, _Reuse]:
    """Contexts of the forward pass and of its repetition.

    Torch has such contexts too (`create_selective_checkpoint_contexts`), but while a graph is traced they
    keep everything and leave it to a compiler to decide.
    """
    kept = deque()
    return _Keep(kept), _Reuse(kept)


@functools.cache
def _rematerialised_class(base: type[nn.Module], policy: str) -> type[nn.Module]:
    """A subclass of `base`, and not a wrapper module, which would change the names of all parameters."""
    options = {"use_reentrant": False, "preserve_rng_state": False}
    if policy == "selective":
        options["context_fn"] = _keep_and_reuse

    def forward(self, *args):
        return checkpoint(functools.partial(base.forward, self), *args, **options)

    return type(f"Rematerialised{base.__name__}", (base,), {"forward": forward})
