"""Llama 3 (Grattafiori et al., arXiv 2407.21783): pre-norm, RoPE, grouped-query attention, SwiGLU."""

from titan_tpu.models.decoder import DecoderForCausalLM, DecoderLayer
from titan_tpu.models.layers import SwiGLU


class LlamaLayer(DecoderLayer):
    """A block of Llama 3."""

    feed_forward = SwiGLU
    qk_norm = False


class LlamaForCausalLM(DecoderForCausalLM):
    """Llama 3, with the names of Hugging Face's class of this name."""

    layer = LlamaLayer
