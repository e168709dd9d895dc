"""The training loss. Dimensions: B sequences, T tokens, V vocabulary."""

import torch.nn.functional as F
from torch import Tensor


def cross_entropy_sum(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Sum over B and T of -log softmax(logits)[target], in nats, as a float32 scalar.

    A sum, not a mean: divided by the token count of the global batch it gives gradients that are plain sums
    over micro-steps and ranks, however the batch is cut. Float32, because in bfloat16 a sum of thousands
    stops growing.
    """
    return F.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten().long(), reduction="sum")
