"""Model families, one file each, over shared layers."""

import torch

from titan_tpu.config import ModelConfig
from titan_tpu.models.llama3 import LlamaForCausalLM
from titan_tpu.models.qwen3 import Qwen3ForCausalLM
from titan_tpu.models.qwen3_moe import Qwen3MoeForCausalLM

_FAMILIES = {"llama3": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM, "qwen3-moe": Qwen3MoeForCausalLM}


def build_model(config: ModelConfig) -> torch.nn.Module:
    """The model of `config`, with uninitialised parameters on torch's current default device.

    Raises `KeyError` for an unknown family.
    """
    return _FAMILIES[config.family](config)
