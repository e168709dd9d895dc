"""Rematerialisation: what the backward pass computes again instead of keeping (Chen et al., arXiv
1604.06174).

Applied from outside, to the blocks of a model whose parameters are sharded already: a block gathers its
weights again when it is computed again, so they are not kept either.
"""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

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


def _policy(_, op, *args, **kwargs) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


@functools.cache
def _rematerialised_class(base: type[nn.Module], policy: str) -> type[nn.Module]:
    """A subclass of `base`, and not a wrapper module, which would change the names of all parameters."""
    options = {"use_reentrant": False, "preserve_rng_state": False}
    if policy == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)

    def forward(self, *args):
        return checkpoint(functools.partial(base.forward, self), *args, **options)

    return type(f"Rematerialised{base.__name__}", (base,), {"forward": forward})
