"""Kinds of attention: fused and plain, and inside documents."""

import pytest
import torch
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from titan_tpu.models.attention import attention_mask, documents
from training import DIVISIBLE, FAMILIES, configure, losses, train

END = 7
MESHES = [{}, {"shard": 2}, {"tensor": 2}, {"context": 2}, {"context": 4}, {"context": 2, "tensor": 2}]


@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("mesh", [{}, {"context": 2}], ids=str)
@pytest.mark.parametrize("family", ["llama3", "qwen3"])
def test_plain_attention_equals_fused(pool, family, mesh, end):
    runs = [
        losses(
            train(pool, configure(mesh, model=FAMILIES[family] | {"attention": kind}, document_end=end), 10)
        )
        for kind in ("fused", "plain")
    ]
    torch.testing.assert_close(*runs, atol=1e-5, rtol=0)
    assert runs[0].tolist() != runs[1].tolist(), "both were computed by the same kernel"


def test_a_document_ends_with_its_last_token():
    tokens = torch.tensor([[5, END, 3, 3, END, END, 2], [END, 1, 1, 1, 1, 1, END]])
    assert documents(tokens, END).tolist() == [[0, 0, 1, 1, 1, 2, 3], [0, 1, 1, 1, 1, 1, 1]]


def test_a_query_looks_back_and_within_its_document():
    mask = attention_mask(torch.tensor([1, 3]), 4, torch.tensor([[0, 0, 1, 1]]))
    assert mask.int().tolist() == [[[[1, 1, 0, 0], [0, 0, 1, 1]]]]
    assert attention_mask(torch.tensor([1, 3]), 4, None).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_a_packed_document_is_seen_as_if_alone():
    model = build_model(ModelConfig.from_json(configure(model=DIVISIBLE)["model"]))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    tokens = torch.randint(0, 60, (2, 16), generator=generator)
    tokens[tokens == END] = 8
    tokens[:, 5] = tokens[:, 11] = END
    mask = attention_mask(torch.arange(16), 16, documents(tokens, END))
    packed = model(tokens, mask=mask)
    alone = torch.cat([model(part) for part in (tokens[:, :6], tokens[:, 6:12], tokens[:, 12:])], dim=1)
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=0)
    assert (packed - model(tokens)).abs().max() > 0.1


@pytest.mark.parametrize("mesh", MESHES[1:], ids=str)
def test_documents_do_not_depend_on_the_mesh(pool, mesh):
    changes = {"model": DIVISIBLE, "document_end": END}
    expected = train(pool, configure(**changes), 10)
    outcomes = train(pool, configure(mesh, **changes), 10)
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)
    crossing = train(pool, configure(model=DIVISIBLE), 1)
    assert abs(losses(expected)[0] - losses(crossing)[0]) > 1e-4


def test_the_z_loss_keeps_logits_small_and_out_of_the_reported_loss(pool):
    without, with_z = (train(pool, configure(model=DIVISIBLE, z_loss=z), 20) for z in (0.0, 0.1))
    assert losses(with_z)[0] == losses(without)[0]
    assert abs(losses(with_z)[-1] - losses(without)[-1]) > 1e-3


@pytest.mark.parametrize("mesh", [{"shard": 2}, {"context": 2, "tensor": 2}], ids=str)
def test_the_z_loss_does_not_depend_on_the_mesh(pool, mesh):
    changes = {"model": DIVISIBLE, "z_loss": 0.1}
    expected, outcomes = (train(pool, configure(m, **changes), 10) for m in ({}, mesh))
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)
