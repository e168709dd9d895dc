"""The counts of `titan-tpu plan` against the modules of transformers and diffusers, to the unit.

The modules are made on the meta device: they have shapes and no memory.
"""

from dataclasses import dataclass

import pytest
import torch
from diffusers import FluxTransformer2DModel
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)


@dataclass
class Decoder:
    """Dimensions of a language model, under the names of a recipe."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool
    intermediate_size: int | None = None
    num_experts: int | None = None
    experts_per_token: int | None = None
    expert_intermediate_size: int | None = None


@dataclass
class Flux:
    """Dimensions of FLUX, under the names of a recipe. Its feed-forward is four times as wide as the rest."""

    hidden_size: int
    num_heads: int
    num_double_layers: int
    num_single_layers: int
    in_channels: int
    text_size: int
    pooled_size: int
    guidance_embedding: bool
    rope_axes: list[int]


def llama3(hidden_size, intermediate_size, num_layers, num_heads):
    """Llama 3: arXiv 2407.21783, table 3, and the released configurations."""
    return Decoder(128256, hidden_size, num_layers, num_heads, 8, 128, False, intermediate_size)


def qwen3(hidden_size, intermediate_size, num_layers, num_heads, tie_embeddings):
    """Qwen3: arXiv 2505.09388, table 1, and the released configurations."""
    return Decoder(
        151936,
        hidden_size,
        num_layers,
        num_heads,
        8,
        128,
        tie_embeddings,
        intermediate_size=intermediate_size,
    )


def qwen3_moe(hidden_size, expert_intermediate_size, num_layers, num_heads):
    """Qwen3 with experts: arXiv 2505.09388, table 2, and the released configurations."""
    return Decoder(
        151936,
        hidden_size,
        num_layers,
        num_heads,
        4,
        128,
        False,
        num_experts=128,
        experts_per_token=8,
        expert_intermediate_size=expert_intermediate_size,
    )


def flux(guidance_embedding):
    """FLUX.1: the released configurations."""
    return Flux(3072, 24, 19, 38, 64, 4096, 768, guidance_embedding, [16, 56, 56])


# None: our own, whose dimensions are those of the recipe.
PRESETS = {
    ("llama3", "tiny"): None,
    ("llama3", "8b"): llama3(4096, 14336, 32, 32),
    ("llama3", "70b"): llama3(8192, 28672, 80, 64),
    ("llama3", "405b"): llama3(16384, 53248, 126, 128),
    ("qwen3", "tiny"): None,
    ("qwen3", "0.6b"): qwen3(1024, 3072, 28, 16, tie_embeddings=True),
    ("qwen3", "1.7b"): qwen3(2048, 6144, 28, 16, tie_embeddings=True),
    ("qwen3", "4b"): qwen3(2560, 9728, 36, 32, tie_embeddings=True),
    ("qwen3", "8b"): qwen3(4096, 12288, 36, 32, tie_embeddings=False),
    ("qwen3", "14b"): qwen3(5120, 17408, 40, 40, tie_embeddings=False),
    ("qwen3", "32b"): qwen3(5120, 25600, 64, 64, tie_embeddings=False),
    ("qwen3-moe", "tiny"): None,
    ("qwen3-moe", "30b-a3b"): qwen3_moe(2048, 768, 48, 32),
    ("qwen3-moe", "235b-a22b"): qwen3_moe(4096, 1536, 94, 64),
    ("flux", "tiny"): None,
    ("flux", "dev"): flux(guidance_embedding=True),
    ("flux", "schnell"): flux(guidance_embedding=False),
}
each_language_model, each_flux = (
    pytest.mark.parametrize(
        ("family", "size"),
        [
            pytest.param(*preset, id="-".join(preset))
            for preset in PRESETS
            if (preset[0] == "flux") == is_flux
        ],
    )
    for is_flux in (False, True)
)


def recipe_of(model: dict, **training) -> dict:
    """The smallest recipe of a model."""
    return {
        "version": 1,
        "model": model,
        "hardware": {"accelerator": "cpu", "devices": 1},
        "training": {"steps": 1, "local_batch": 1, **training},
        "optimizer": {"learning_rate": 1e-3},
        "data": {"sources": [{"path": "data.txt"}]},
    }


def dimensions(titan, path, preset):
    """The dimensions of a preset: as published, or those that the recipe says are ours."""
    family, _ = preset
    if PRESETS[preset] is not None:
        return PRESETS[preset]
    kind = Flux if family == "flux" else Decoder
    model = titan.json("recipe", "show", "--json", path)["recipe"]["model"]
    if family == "flux":
        assert model["intermediate_size"] == 4 * model["hidden_size"]
    return kind(**{key: value for key, value in model.items() if key in kind.__dataclass_fields__})


def decoder_module(family, of: Decoder) -> torch.nn.Module:
    common = {
        "vocab_size": of.vocab_size,
        "hidden_size": of.hidden_size,
        "num_hidden_layers": of.num_layers,
        "num_attention_heads": of.num_heads,
        "num_key_value_heads": of.num_kv_heads,
        "head_dim": of.head_dim,
        "tie_word_embeddings": of.tie_embeddings,
    }
    with torch.device("meta"):
        match family:
            case "llama3":
                return LlamaForCausalLM(LlamaConfig(intermediate_size=of.intermediate_size, **common))
            case "qwen3":
                return Qwen3ForCausalLM(Qwen3Config(intermediate_size=of.intermediate_size, **common))
            case "qwen3-moe":
                return Qwen3MoeForCausalLM(
                    Qwen3MoeConfig(
                        moe_intermediate_size=of.expert_intermediate_size,
                        num_experts=of.num_experts,
                        num_experts_per_tok=of.experts_per_token,
                        decoder_sparse_step=1,
                        mlp_only_layers=[],
                        **common,
                    )
                )


def flux_module(of: Flux) -> torch.nn.Module:
    with torch.device("meta"):
        return FluxTransformer2DModel(
            patch_size=1,
            in_channels=of.in_channels,
            num_layers=of.num_double_layers,
            num_single_layers=of.num_single_layers,
            attention_head_dim=of.hidden_size // of.num_heads,
            num_attention_heads=of.num_heads,
            joint_attention_dim=of.text_size,
            pooled_projection_dim=of.pooled_size,
            guidance_embeds=of.guidance_embedding,
            axes_dims_rope=tuple(of.rope_axes),
        )


def count(module) -> int:
    """Weights of a module. A tied one is seen once."""
    return sum(parameter.numel() for parameter in module.parameters())


def idle_weights(module, of: Decoder) -> int:
    """Weights of the experts that a token is not sent to. The first axis of a tensor counts the experts."""
    experts = [tensor for name, tensor in module.named_parameters() if ".mlp.experts." in name]
    assert bool(experts) == (of.num_experts is not None)
    assert all(tensor.shape[0] == of.num_experts for tensor in experts)
    return sum((of.num_experts - of.experts_per_token) * tensor[0].numel() for tensor in experts)


def test_every_preset_is_counted(schema):
    sizes = set()
    for rule in schema["allOf"]:
        model = rule["if"].get("properties", {}).get("model", {}).get("properties", {})
        if "family" in model:
            (family,) = model["family"]["enum"]
            there = rule["then"]["properties"]["model"]["properties"]["size"]["enum"]
            sizes |= {(family, size) for size in there}
    assert sizes == PRESETS.keys()


@each_language_model
def test_language_models_have_the_weights_of_transformers(titan, family, size):
    path = titan.write(recipe_of({"family": family, "size": size}, sequence_length=64))
    of = dimensions(titan, path, (family, size))
    module = decoder_module(family, of)
    embedding = module.get_input_embeddings().weight
    assert (module.lm_head.weight is embedding) == of.tie_embeddings
    plan = titan.json("plan", "--json", "--convention", "6n", path)
    counted = plan["parameters"]
    total, active = count(module), count(module) - idle_weights(module, of)
    found = (counted["total"], counted["active"], counted["embedding"])
    assert found == (total, active, embedding.numel())
    # The embedding is looked up, and multiplies a token only where it is the output head as well.
    multiplying = active if of.tie_embeddings else active - embedding.numel()
    assert plan["flops_per_token"] == 6 * multiplying


@each_flux
def test_flux_has_the_weights_of_diffusers(titan, family, size):
    path = titan.write(recipe_of({"family": family, "size": size}))
    module = flux_module(dimensions(titan, path, (family, size)))
    counted = titan.json("plan", "--json", path)["parameters"]
    total = count(module)
    assert (counted["total"], counted["active"], counted["embedding"]) == (total, total, 0)


def tokens_of_weight(name: str, image: int, text: int) -> int:
    """How many vectors of a sample a weight of FLUX multiplies, by its name in diffusers."""
    part = name.partition(".")[0]
    match part:
        # Modulations and what they are made of: one vector for each sample.
        case "time_text_embed" | "norm_out":
            return 1
        case "x_embedder" | "proj_out":
            return image
        case "context_embedder":
            return text
        case "single_transformer_blocks":
            return 1 if ".norm.linear." in name else image + text
        case "transformer_blocks":
            if ".norm1.linear." in name or ".norm1_context.linear." in name:
                return 1
            of_text = (".add_", ".to_add_out.", ".norm_added_", ".ff_context.")
            return text if any(mark in name for mark in of_text) else image
    raise AssertionError(f"{name} is not known")


@each_flux
def test_flops_of_flux_are_those_of_the_weights_that_a_token_meets(titan, family, size):
    recipe = recipe_of({"family": family, "size": size})
    image_size, text = 128, 40
    recipe["flux"] = {"image_size": image_size, "text_length": text}
    path = titan.write(recipe)
    module = flux_module(dimensions(titan, path, (family, size)))
    image = (image_size // 16) ** 2
    products = sum(
        tensor.numel() * tokens_of_weight(name, image, text) for name, tensor in module.named_parameters()
    )
    plan = titan.json("plan", "--json", "--convention", "6n", path)
    assert plan["flops_per_token"] == 6 * products // (image + text)


def test_attention_counts_by_query_heads_and_their_width(titan):
    model = {
        "family": "llama3",
        "vocab_size": 256,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_layers": 4,
        "num_heads": 16,
        "num_kv_heads": 4,
        "head_dim": 96,
    }
    path = titan.write(recipe_of(model, sequence_length=1024))
    flops = {
        convention: titan.json("plan", "--json", "--convention", convention, path)["flops_per_token"]
        for convention in ("causal", "palm", "6n")
    }
    assert flops["causal"] - flops["6n"] == 37_748_736
    assert flops["palm"] - flops["6n"] == 2 * 37_748_736
