"""Qwen3 with experts (Yang et al., arXiv 2505.09388): every feed-forward layer is a mixture, and no expert
is shared.
"""

from titan_tpu.models.decoder import DecoderForCausalLM, DecoderLayer
from titan_tpu.models.experts import SparseMoe


class Qwen3MoeLayer(DecoderLayer):
    """A block of Qwen3 with experts."""

    feed_forward = SparseMoe
    qk_norm = True


class Qwen3MoeForCausalLM(DecoderForCausalLM):
    """Qwen3 with experts, with the names of Hugging Face's class of this name."""

    layer = Qwen3MoeLayer
