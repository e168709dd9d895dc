"""Qwen3 (Yang et al., arXiv 2505.09388), dense: as Llama 3, but each head of queries and keys is
normalised, and heads have a width of their own.
"""

from titan_tpu.models.decoder import DecoderForCausalLM, DecoderLayer
from titan_tpu.models.layers import SwiGLU


class Qwen3Layer(DecoderLayer):
    """A block of Qwen3."""

    feed_forward = SwiGLU
    qk_norm = True


class Qwen3ForCausalLM(DecoderForCausalLM):
    """Qwen3, with the names of Hugging Face's class of this name."""

    layer = Qwen3Layer
