"""Model families, one file each, over shared layers."""

import torch

from titan_tpu.config import ModelConfig
from titan_tpu.models.llama3 import LlamaForCausalLM

_FAMILIES = {"llama3": LlamaForCausalLM}


def build_model(config: ModelConfig) -> torch.nn.Module:
    """The model of `config`, with uninitialised parameters on torch's current default device.

    Raises `KeyError` for an unknown family.
    """
    return _FAMILIES[config.family](config)
