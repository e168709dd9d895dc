"""Evaluation: the training loss of the same tokens, and nothing else happens."""

import json
import math
import sys

import pytest
import torch
from titan_tpu.engine import Engine
from training import (
    ADAMW,
    CONFIG,
    FAMILIES,
    GLOBAL_BATCH,
    SEQUENCE_LENGTH,
    bytes_of,
    configure,
    global_batches,
    losses,
    train,
)

MESHES = [
    {},
    {"shard": 4},
    {"replicate": 2, "shard": 2},
    {"context": 2, "tensor": 2},
]
BIAS = {"load_balancing": "bias", "load_balancing_coefficient": 0.05}


EQUAL = [(family, mesh, "none") for family in FAMILIES for mesh in MESHES] + [
    ("qwen3-moe", {"shard": 4, "expert": 2}, "selective"),
    ("qwen3", {"shard": 2, "tensor": 2}, "full"),
]


@pytest.mark.parametrize(("family", "mesh", "remat"), EQUAL, ids=str)
def test_it_equals_the_training_loss(pool, family, mesh, remat):
    config = configure(mesh, model=FAMILIES[family], z_loss=0.01, remat=remat)
    batches = global_batches(2)
    outcomes = train(pool, config, 2, evaluations={0: batches[0], 1: batches[1]})
    assert all(outcome.evaluations == outcomes[0].evaluations for outcome in outcomes)
    for step, expected in enumerate(losses(outcomes).tolist()):
        total, targets = outcomes[0].evaluations[step]
        assert type(total) is float and type(targets) is int
        assert targets == GLOBAL_BATCH * SEQUENCE_LENGTH
        assert total / targets == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("loss_mask", [False, True])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_rows_that_only_fill_up_count_for_nothing(pool, mesh, loss_mask):
    """Here the rows of half of the ranks, or half of the rows, and most of another row."""
    config = configure(mesh, model=FAMILIES["llama3"], loss_mask=loss_mask)
    batch = global_batches(1)[0]
    expected = losses(train(pool, config, 1, 0.0))[0].item() * GLOBAL_BATCH * SEQUENCE_LENGTH
    half = GLOBAL_BATCH // 2
    filling = torch.full_like(batch[:half], ~0)
    parts = [torch.cat((batch[:half], filling)), torch.cat((filling, batch[half:]))]
    parts = [*parts, *(part.clone() for part in parts)]
    # The same once more, with a row's targets dealt out to two evaluations.
    parts[2][0, 5:] = ~parts[2][0, 5:]
    parts[3][0] = batch[0]
    parts[3][0, :5] = ~batch[0, :5]
    seen = [train(pool, config, 0, evaluations={0: part})[0].evaluations[0] for part in parts]
    for first, second in (seen[:2], seen[2:]):
        assert first[0] + second[0] == pytest.approx(expected, rel=1e-5)
        assert first[1] + second[1] == GLOBAL_BATCH * SEQUENCE_LENGTH
    assert [targets for _, targets in seen[:2]] == [half * SEQUENCE_LENGTH] * 2
    assert seen[2][1] == half * SEQUENCE_LENGTH - 12


def test_nothing_but_filling_is_no_error(pool):
    nothing = torch.full((GLOBAL_BATCH, SEQUENCE_LENGTH + 1), ~0, dtype=torch.int32)
    outcomes = train(pool, configure((1, 2)), 0, evaluations={0: nothing})
    assert outcomes[0].evaluations == {0: (0.0, 0)}


UNTOUCHED = [
    ("llama3", {}, {}),
    ("llama3", {"replicate": 2, "shard": 2}, {"gradient_clip": 1.0}),
    ("qwen3", {"context": 2, "tensor": 2}, {"remat": "selective"}),
    ("qwen3-moe", {}, {"experts": BIAS}),
    ("qwen3-moe", {"shard": 4, "expert": 2}, {"experts": BIAS, "loss_mask": True}),
    ("qwen3-moe", {"shard": 2}, {"experts": {"load_balancing": "auxiliary-loss"}, "remat": "full"}),
    ("qwen3-moe", {"shard": 2, "expert": 2}, {"experts": BIAS, "loss_mask": True, "compile": True}),
]


@pytest.mark.parametrize(("family", "mesh", "changes"), UNTOUCHED, ids=str)
def test_training_goes_on_as_if_there_had_been_none(pool, family, mesh, changes):
    config = configure(mesh, 2, model=FAMILIES[family], optimizer=ADAMW, **changes)
    if config["compile"]:
        config["model"]["num_layers"] = 1
    rows = GLOBAL_BATCH // 2
    evaluations = {step: ~global_batches(9)[step, :rows] for step in (0, 2, 4)}
    for tokens in evaluations.values():
        tokens[:, 4:] = ~tokens[:, 4:]
    batches = global_batches(4)
    if config["loss_mask"]:
        batches[:, ::2, 3:9] = ~batches[:, ::2, 3:9]
    options = {"batches": batches, "timeout_seconds": 300 if config["compile"] else 30}
    with_some = train(pool, config, 4, 3e-3, evaluations=evaluations, **options)
    without = train(pool, config, 4, 3e-3, **options)
    assert list(with_some[0].evaluations) == [0, 2, 4]
    for ours, theirs in zip(with_some, without, strict=True):
        assert ours.steps == theirs.steps
        for which in ("final", "gradients"):
            expected = getattr(theirs, which)
            assert all(torch.equal(own, expected[name]) for name, own in getattr(ours, which).items())
        assert (ours.balance is None) == (theirs.balance is None)
        assert ours.balance is None or torch.equal(ours.balance, theirs.balance)
    if config["compile"]:
        eager = train(pool, config | {"compile": False}, 4, 3e-3, evaluations=evaluations, batches=batches)
        torch.testing.assert_close(losses(with_some), losses(eager), atol=2e-3, rtol=0)
        assert with_some[0].steps != eager[0].steps, "nothing was compiled"
        assert with_some[0].evaluations[0] == eager[0].evaluations[0], "evaluations are not compiled"


@pytest.mark.parametrize("mesh", [{"shard": 2}, {"replicate": 2, "shard": 2}], ids=str)
@pytest.mark.parametrize("remat", ["none", "full"])
def test_whole_weights_live_for_one_block(pool, mesh, remat):
    model = {"num_layers": 4, "hidden_size": 64, "intermediate_size": 512}
    config = configure(mesh, model=model, remat=remat)
    for outcome in train(pool, config, 1, evaluations={1: global_batches(1)[0]}, weigh=True):
        *starts, after = outcome.alive
        ends, block = 4 * 2 * 61 * 64, 4 * 3 * 64 * 512
        assert len(starts) == 4 and all(ends < start < ends + block / 2 for start in starts)
        assert after < 100, "no more than a scalar"


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_the_wish_of_one_rank_to_end_is_known_to_all(pool, mesh):
    config = configure(mesh, model=FAMILIES["llama3"])
    batch = global_batches(1)[0]
    world = max(1, math.prod(mesh.values()))
    without = train(pool, config, 0, evaluations={0: batch})
    assert [outcome.evaluation_stops for outcome in without] == [{0: False}] * world
    wished = train(pool, config, 0, evaluations={0: batch}, stops_evaluations=world - 1)
    assert [outcome.evaluation_stops for outcome in wished] == [{0: True}] * world
    assert wished[0].evaluations == without[0].evaluations, "the sums are the same"


def test_tokens_are_viewed_and_then_let_go():
    engine = Engine(json.dumps(CONFIG), 0, "null")
    tokens = bytearray(bytes_of(global_batches(1)[0]))
    references = sys.getrefcount(tokens)
    handle = engine.evaluate(tokens)
    assert sys.getrefcount(tokens) == references
    assert engine.read_evaluation(handle)[1] == GLOBAL_BATCH * SEQUENCE_LENGTH
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        engine.evaluate(tokens + bytearray(4))
