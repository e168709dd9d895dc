"""Marks in the tokens themselves: which of them are no targets.

A buffer of tokens has the tokens that are read and the targets in one, since each token but the first is the
target of the one before it. A negative value v stands for the token ~v (that is -1 - v), which is read like
any other, but is not to be predicted: the prompt before a response, or what fills up a row.
"""

import torch
from torch import Tensor

IGNORED = -100
"""A target that is none; what torch's cross entropy ignores by default."""


def read_marks(marked: Tensor) -> tuple[Tensor, Tensor]:
    """Marked tokens -> the tokens, and the same as targets; both of the shape of `marked`."""
    is_marked = marked < 0
    return torch.where(is_marked, ~marked, marked), marked.masked_fill(is_marked, IGNORED)


def count_targets(targets: Tensor) -> Tensor:
    """How many there are, as a scalar of int32: a float32 would not tell 2^24 from 2^24 + 1."""
    return (targets != IGNORED).sum(dtype=torch.int32)
