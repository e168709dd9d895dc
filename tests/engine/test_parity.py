"""Our models against transformers' on the same random weights, in float32."""

import pytest
import torch
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model, loss
from titan_tpu.models.loss import cross_entropy_sum
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

# (query heads, key-value heads, head size, tied)
VARIANTS = [
    pytest.param(4, 4, 12, False, id="multi-head"),
    pytest.param(4, 2, 12, False, id="grouped"),
    pytest.param(6, 2, 8, True, id="grouped-by-three-tied"),
    pytest.param(4, 1, 12, True, id="multi-query-tied"),
    pytest.param(4, 2, 32, False, id="heads-wider-than-hidden"),
    pytest.param(3, 1, 10, False, id="heads-narrower-than-hidden"),
]

STRETCHED = {
    "factor": 8.0,
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
    "original_length": 16,
}
"""Of the six pairs of a head of 12, some are kept, some slowed down and some blended."""


def build_pair(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    tied: bool,
    family: str = "llama3",
    scaling: dict | None = None,
):
    """Our model of a family and transformers', with the same dimensions; theirs has random weights."""
    experts = {
        "num_experts": 6,
        "experts_per_token": 3,
        "intermediate_size": 20,
        "load_balancing": "none",
        "load_balancing_coefficient": 0.01,
    }
    has_experts = family == "qwen3-moe"
    ours = build_model(
        ModelConfig.from_json(
            {
                "family": family,
                "vocab_size": 97,
                "hidden_size": 48,
                "intermediate_size": None if has_experts else 80,
                "experts": experts if has_experts else None,
                "num_layers": 2,
                "num_heads": num_heads,
                "num_kv_heads": num_kv_heads,
                "head_dim": head_dim,
                "rope_theta": 700.0,
                "rope_scaling": scaling,
                "norm_eps": 1e-2,
                "tie_embeddings": tied,
                "init_std": 0.02,
                "attention": "fused",
            }
        )
    )
    rope = {"rope_type": "default", "rope_theta": 700.0}
    if scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling["factor"],
            "low_freq_factor": scaling["low_frequency_factor"],
            "high_freq_factor": scaling["high_frequency_factor"],
            "original_max_position_embeddings": scaling["original_length"],
        }
    common = {
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 64,
        "rope_parameters": rope,
        "rms_norm_eps": 1e-2,
        "tie_word_embeddings": tied,
        "attn_implementation": "eager",
    }
    if has_experts:
        config = Qwen3MoeConfig(
            **common,
            num_experts=experts["num_experts"],
            num_experts_per_tok=experts["experts_per_token"],
            moe_intermediate_size=experts["intermediate_size"],
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            output_router_logits=False,
            experts_implementation="eager",
        )
        theirs = Qwen3MoeForCausalLM(config)
    elif family == "qwen3":
        theirs = Qwen3ForCausalLM(Qwen3Config(**common))
    else:
        theirs = LlamaForCausalLM(LlamaConfig(**common))
    theirs = theirs.float()
    # Large weights: at the usual 0.02 attention is so close to uniform that a wrong rotation would go
    # unnoticed.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.25, generator=generator)
    return ours, theirs


def assert_equal(ours: torch.nn.Module, theirs: torch.nn.Module):
    """Names, logits, loss and gradients of the two agree."""
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    tokens = torch.randint(0, 97, (3, 33), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    logits = ours(inputs.to(torch.int32))
    ours_loss = cross_entropy_sum(logits, targets.to(torch.int32)) / targets.numel()
    ours_loss.backward()
    expected = theirs(input_ids=tokens, labels=tokens, use_cache=False)  # shifts the labels itself
    expected.loss.backward()

    assert expected.logits.std() > 1, "flat logits would agree whatever the model computes"
    torch.testing.assert_close(logits, expected.logits[:, :-1], atol=1e-4, rtol=0)
    torch.testing.assert_close(ours_loss, expected.loss, atol=1e-5, rtol=0)
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-3, msg=name)


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "tied"), VARIANTS)
@pytest.mark.parametrize("family", ["llama3", "qwen3", "qwen3-moe"])
def test_each_family_equals_transformers(family, num_heads, num_kv_heads, head_dim, tied):
    assert_equal(*build_pair(num_heads, num_kv_heads, head_dim, tied, family))


def test_stretched_positions_equal_transformers():
    stretched = build_pair(4, 2, 12, False, scaling=STRETCHED)
    assert_equal(*stretched)
    plain, _ = build_pair(4, 2, 12, False)
    plain.load_state_dict(stretched[0].state_dict())
    tokens = torch.arange(32).view(1, -1)
    assert not torch.allclose(plain(tokens), stretched[0](tokens), atol=1e-2), "the scaling changes nothing"


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("family", ["llama3", "qwen3-moe"])
def test_a_loss_in_parts_equals_the_loss_of_all_logits(family, z_loss, monkeypatch):
    model, _ = build_pair(4, 2, 12, False, family)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.25, generator=generator)
    tokens = torch.randint(0, 97, (3, 33), generator=generator)
    results = []
    for largest in (1 << 24, 97 * 7):  # 96 tokens in parts of 7, the last one shorter
        monkeypatch.setattr(loss, "LARGEST_LOGITS", largest)
        model.zero_grad()
        sums = model(tokens[:, :-1], tokens[:, 1:], z_loss=z_loss)
        (sums.objective / 3).backward()
        totals = torch.stack((sums.objective.detach(), sums.cross_entropy))
        results.append((totals, {name: p.grad for name, p in model.named_parameters()}))
    (whole, whole_gradients), (parts, part_gradients) = results
    assert (whole[0] > whole[1]) == (z_loss > 0)
    torch.testing.assert_close(parts, whole, atol=1e-3, rtol=1e-6)
    for name, gradient in whole_gradients.items():
        torch.testing.assert_close(part_gradients[name], gradient, atol=1e-4, rtol=1e-4, msg=name)


def test_tied_weights_are_one_parameter():
    tied, _ = build_pair(4, 2, 12, tied=True)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    untied, _ = build_pair(4, 2, 12, tied=False)
    assert untied.lm_head.weight is not untied.model.embed_tokens.weight
