"""Our Llama against transformers' on the same random weights, in float32."""

import pytest
import torch
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from titan_tpu.models.loss import cross_entropy_sum
from transformers import LlamaConfig
from transformers import LlamaForCausalLM as Reference

# (query heads, key-value heads, head size, tied)
VARIANTS = [
    pytest.param(4, 4, 12, False, id="multi-head"),
    pytest.param(4, 2, 12, False, id="grouped"),
    pytest.param(6, 2, 8, True, id="grouped-by-three-tied"),
    pytest.param(4, 1, 12, True, id="multi-query-tied"),
    pytest.param(4, 2, 32, False, id="heads-wider-than-hidden"),
    pytest.param(3, 1, 10, False, id="heads-narrower-than-hidden"),
]


def build_pair(num_heads: int, num_kv_heads: int, head_dim: int, tied: bool):
    ours = build_model(
        ModelConfig(
            family="llama3",
            vocab_size=97,
            hidden_size=48,
            intermediate_size=80,
            num_layers=2,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rope_theta=700.0,
            norm_eps=1e-2,
            tie_embeddings=tied,
            init_std=0.02,
        )
    )
    theirs = Reference(
        LlamaConfig(
            vocab_size=97,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=num_heads,
            num_key_value_heads=num_kv_heads,
            head_dim=head_dim,
            max_position_embeddings=64,
            rope_parameters={"rope_type": "default", "rope_theta": 700.0},
            rms_norm_eps=1e-2,
            tie_word_embeddings=tied,
            attn_implementation="eager",
        )
    ).float()
    # Large weights: at the usual 0.02 attention is so close to uniform that a wrong rotation would go
    # unnoticed.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.25, generator=generator)
    return ours, theirs


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "tied"), VARIANTS)
def test_llama_equals_transformers(num_heads, num_kv_heads, head_dim, tied):
    ours, theirs = build_pair(num_heads, num_kv_heads, head_dim, tied)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    tokens = torch.randint(0, 97, (3, 33), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    logits = ours(inputs.to(torch.int32))
    loss = cross_entropy_sum(logits, targets.to(torch.int32)) / targets.numel()
    loss.backward()
    expected = theirs(input_ids=tokens, labels=tokens, use_cache=False)  # shifts the labels itself
    expected.loss.backward()

    assert expected.logits.std() > 1, "flat logits would agree whatever the model computes"
    torch.testing.assert_close(logits, expected.logits[:, :-1], atol=1e-4, rtol=0)
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4, msg=name)


def test_tied_weights_are_one_parameter():
    tied, _ = build_pair(4, 2, 12, tied=True)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    untied, _ = build_pair(4, 2, 12, tied=False)
    assert untied.lm_head.weight is not untied.model.embed_tokens.weight
