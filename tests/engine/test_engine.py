"""The engine's contract with the Rust loop."""

import json
import math
import sys

import pytest
import torch
import torch.distributed as dist
from ranks import Job
from titan_tpu.engine import Engine
from training import (
    ADAMW,
    CONFIG,
    EXPERTS,
    FAMILIES,
    MUON,
    configure,
    global_batches,
    losses,
    train,
    whole,
    whole_state,
)

DENSE_MESHES = [
    {"shard": 4},
    {"replicate": 2, "shard": 2},
    {"shard": 2, "tensor": 2},
    {"context": 2, "tensor": 2},
]


def tokens_of(step: int = 0) -> bytearray:
    return bytearray(memoryview(global_batches(step + 1)[step].numpy()).tobytes())


@pytest.fixture
def engine():
    engine = Engine(json.dumps(CONFIG), 0, "null")
    yield engine
    engine.close()


def test_one_rank_needs_no_process_group(engine):
    loss, norm, stop, targets, _, save = engine.read(engine.step(tokens_of(), 0.1, False))
    assert not dist.is_initialized()
    assert type(loss) is float and type(norm) is float and stop is False and save is False and targets is None


def test_a_cpu_has_no_queue(engine):
    assert engine.asynchronous is False


def test_the_first_loss_is_that_of_guessing():
    small = configure(model={"init_std": 0.02})
    engine = Engine(json.dumps(small), 0, "null")
    loss, *_ = engine.read(engine.step(tokens_of(), 0.0, False))
    assert loss == pytest.approx(math.log(CONFIG["model"]["vocab_size"]), abs=0.05)


def test_a_wish_to_save_comes_back(engine):
    *_, save = engine.read(engine.step(tokens_of(), 0.1, False, True))
    assert save is True


@pytest.mark.parametrize("optimizer", [ADAMW, MUON, CONFIG["optimizer"] | {"momentum": 0.9}])
def test_a_new_engine_with_the_state_of_another_goes_on_as_that_one(optimizer):
    config = configure(optimizer=optimizer, model=EXPERTS)
    config["model"]["experts"]["load_balancing"] = "auxiliary-loss"
    config["model"]["experts"]["load_balancing_coefficient"] = 0.01
    first, second = Engine(json.dumps(config), 0, "null"), Engine(json.dumps(config), 0, "null")
    for step in range(3):
        first.read(first.step(tokens_of(step), 0.01, False))
    state = second.state()
    assert len({part.name for part in state}) == len(state)
    for theirs, ours in zip(first.state(), state, strict=True):
        assert (theirs.name, theirs.shape, theirs.rows) == (ours.name, ours.shape, ours.rows)
        assert ours.bytes == 4 * math.prod(ours.shape) and ours.dtype == "F32" and ours.is_saved_here
        assert ours.host.is_contiguous() and ours.address == ours.live.data_ptr()
        ours.host.copy_(theirs.host)
    second.resume(state, 3)
    for step in range(3, 6):
        results = [engine.read(engine.step(tokens_of(step), 0.01, False)) for engine in (first, second)]
        assert results[0] == results[1]
    for theirs, ours in zip(first.state(), second.state(), strict=True):
        assert torch.equal(theirs.live, ours.live), ours.name


@pytest.mark.parametrize("mesh", [(1, 4), (2, 2), (4, 1), (1, 2)])
def test_ranks_save_each_element_once(pool, mesh):
    outcomes = train(pool, configure(mesh, optimizer=ADAMW), steps=1)
    saved, held = {}, {}
    for outcome in outcomes:
        for name, _, rows, columns, is_saved_here in outcome.state:
            region = (rows[1] - rows[0]) * (columns[1] - columns[0])
            held[name] = held.get(name, 0) + region
            saved[name] = saved.get(name, 0) + region * is_saved_here
            assert region > 0
    whole = {name: math.prod(shape) for outcome in outcomes for name, shape, *_ in outcome.state}
    assert saved == whole
    assert held == {name: mesh[0] * count for name, count in whole.items()}


@pytest.mark.parametrize(
    ("family", "mesh"),
    [
        *[(family, mesh) for family in ("llama3", "qwen3-moe") for mesh in DENSE_MESHES],
        ("qwen3-moe", {"shard": 4, "expert": 2}),
        ("qwen3-moe", {"shard": 2, "context": 2, "expert": 4}),
    ],
)
def test_a_part_is_where_it_says_in_the_whole_tensor(pool, family, mesh):
    config = configure(mesh, model=FAMILIES[family], optimizer=ADAMW)
    single = Engine(json.dumps(configure(model=FAMILIES[family], optimizer=ADAMW)), 0, "null")
    matrices = {part.name: part.host.reshape(-1, part.columns[1]) for part in single.state()}
    seen = set()
    for outcome in train(pool, config, steps=1):
        for name, rows, columns, elements in outcome.first_state:
            whole = matrices[name][slice(*rows), slice(*columns)]
            assert torch.equal(elements.reshape(whole.shape), whole), name
            seen.add(name)
    assert seen == set(matrices)


RESTORED = [
    *[("llama3", mesh) for mesh in ({}, {"shard": 2}, {"replicate": 2, "shard": 2}, {"tensor": 2})],
    *[("qwen3-moe", mesh) for mesh in ({}, {"shard": 2, "expert": 2}, {"shard": 4, "expert": 2})],
]


@pytest.mark.parametrize("optimizer", [ADAMW, MUON])
@pytest.mark.parametrize(("family", "mesh"), RESTORED)
def test_a_state_of_four_shards_is_the_same_on_another_mesh(pool, family, mesh, optimizer):
    settings = {"model": FAMILIES[family], "optimizer": optimizer}
    saved = whole_state(
        train(pool, configure({"shard": 4}, **settings), steps=2, learning_rate=0.01), "last_state"
    )
    assert any(name.startswith("optimizer.") for name in saved)
    restored = train(pool, configure(mesh, **settings), steps=0, resume=(saved, 2))
    found = whole_state(restored, "first_state")
    assert found.keys() == saved.keys()
    for name, matrix in saved.items():
        assert torch.equal(found[name], matrix), name


def test_tokens_are_viewed_and_then_let_go(engine):
    tokens = tokens_of()
    references = sys.getrefcount(tokens)
    first, *_ = engine.read(engine.step(tokens, 0.0, False))
    tokens[:] = tokens_of(step=1)
    second, *_ = engine.read(engine.step(tokens, 0.0, False))
    assert first != second
    # A tensor over a buffer does not lock it: a view that outlived the step would read freed memory.
    assert sys.getrefcount(tokens) == references


def test_a_buffer_of_another_size_is_refused(engine):
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        engine.step(tokens_of() + bytearray(4), 0.1, False)


def test_a_token_outside_the_vocabulary_is_refused(engine):
    tokens = tokens_of()
    tokens[0:4] = CONFIG["model"]["vocab_size"].to_bytes(4, "little")
    with pytest.raises(IndexError):
        engine.step(tokens, 0.1, False)


@pytest.mark.parametrize(
    ("change", "error", "culprit"),
    [({"typo": 1}, TypeError, "typo"), ({"device": "abacus"}, ValueError, "abacus")],
)
def test_an_unknown_key_or_device_is_refused(change, error, culprit):
    with pytest.raises(error, match=culprit):
        Engine(json.dumps(CONFIG | change), 0, "null")


def test_the_learning_rate_is_that_of_the_step(engine):
    def weights():
        return torch.cat([p.detach().flatten().clone() for p in engine.model.parameters()])

    before = weights()
    engine.step(tokens_of(), 0.0, False)
    assert torch.equal(weights(), before)
    _, norm, *_ = engine.read(engine.step(tokens_of(), 0.25, False))
    assert (weights() - before).norm().item() == pytest.approx(0.25 * norm, rel=1e-3)


def test_describe_counts_parameters_and_padding(pool):
    hidden, feed_forward, vocab, query, kv = 30, 50, 61, 30, 6
    layer = 2 * hidden + 2 * query * hidden + 2 * kv * hidden + 3 * feed_forward * hidden
    total = 2 * layer + hidden + 2 * vocab * hidden
    # Over four ranks 61 rows become 16, 50 become 13, 30 become 8 and 6 become 2.
    local_layer = 2 * 8 + 8 * 30 + 8 * 30 + 2 * 2 * 30 + 2 * 13 * 30 + 8 * 50
    local = 2 * local_layer + 8 + 2 * 16 * 30
    assert feed_forward * hidden == 50 * 30
    for outcome in train(pool, configure((1, 4)), steps=0):
        assert outcome.description == {"parameters_total": total, "parameters_local": local, "threads": 1}
    (single,) = train(pool, configure(threads=2), steps=0)
    assert single.description == {"parameters_total": total, "parameters_local": total, "threads": 2}


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2)])
def test_runs_repeat_bit_for_bit(pool, mesh):
    config = configure(mesh, accumulation=2, optimizer=ADAMW, gradient_clip=1.0)
    first, second = (train(pool, config, steps=10, learning_rate=3e-3) for _ in range(2))
    assert first[0].steps == second[0].steps
    weights, again = whole(first, "final", config), whole(second, "final", config)
    assert all(torch.equal(weights[name], again[name]) for name in weights)


LARGE = {"vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 4096, "num_layers": 4}
LARGE_MIB = 4 * (2 * 4096 * 1024 + 4 * 3 * 4096 * 1024) // 2**20  # and attention


def test_a_model_that_does_not_fit_a_process_starts_on_four(pool):
    limit = int(0.9 * LARGE_MIB)
    outcomes = train(pool, configure((1, 4), model=LARGE), steps=0, memory_mib=limit)
    assert 4 * outcomes[0].description["parameters_total"] > LARGE_MIB * 2**20
    with pytest.raises(RuntimeError, match="allocate memory"):
        train(pool, configure(model=LARGE), steps=0, memory_mib=limit)


def test_seeds_differ(pool):
    runs = [whole(train(pool, configure(seed=seed), steps=0), "initial", CONFIG) for seed in (5, 6)]
    name = "model.layers.1.mlp.up_proj.weight"
    assert not torch.equal(runs[0][name], runs[1][name])


def test_initial_weights_have_their_scale(pool):
    config = configure(model={"hidden_size": 64, "intermediate_size": 256, "head_dim": 32, "init_std": 0.02})
    weights = whole(train(pool, config, steps=0), "initial", config)
    for name, weight in weights.items():
        if "norm" in name:
            assert torch.equal(weight, torch.ones_like(weight)), name
            continue
        # Two layers: the two projections into the residual stream are smaller by sqrt(2 * 2).
        std = 0.01 if "o_proj" in name or "down_proj" in name else 0.02
        assert weight.std().item() == pytest.approx(std, rel=0.1), name
        assert abs(weight.mean().item()) < 0.1 * std, name
    same_shape = [
        weights[f"model.layers.{layer}.mlp.{name}.weight"]
        for layer in (0, 1)
        for name in ("gate_proj", "up_proj")
    ]
    assert len({bytes(weight.numpy()) for weight in same_shape}) == 4


def test_all_ranks_agree_to_stop_at_the_same_step(pool):
    outcomes = train(pool, configure((2, 2)), steps=4, stops={(3, 2): True})
    for outcome in outcomes:
        assert [stop for _, _, stop, *_ in outcome.steps] == [False, False, True, False]


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2)])
@pytest.mark.parametrize("reduce", ["float32", "bfloat16"])
def test_bfloat16_stays_close_to_float32(pool, mesh, reduce):
    expected = losses(train(pool, configure(), steps=20))
    config = configure(mesh, precision={"compute": "bfloat16", "reduce": reduce})
    outcomes = train(pool, config, steps=20)
    difference = (losses(outcomes) - expected).abs().max()
    assert 1e-5 < difference < 3e-2, "a smaller difference means that bfloat16 was not used"
    assert all(weight.dtype == torch.float32 for weight in outcomes[0].final.values())


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
def test_closing_leaves_no_socket_open(pool, mesh):
    assert [outcome.leaked_sockets for outcome in train(pool, configure(mesh), steps=1)] == [0] * mesh[
        0
    ] * mesh[1]


def test_a_missing_rank_is_an_error_in_time(pool):
    rank_0_of_2 = Job(configure((1, 2)), tokens=[], learning_rates=[], stops=[], timeout_seconds=1)
    with pytest.raises(dist.DistStoreError, match="1/2 clients"):
        pool.run([rank_0_of_2])
