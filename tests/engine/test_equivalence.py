"""One run, however it is cut: over ranks, over replicas, over micro-steps."""

import pytest
import torch
from training import ADAMW, EXPERTS, configure, global_batches, losses, norms, train, whole

MESHES = [(1, 2), (1, 4), (2, 2), (4, 1)]


@pytest.fixture(scope="module")
def single(pool):
    """20 steps of SGD on one rank: the run that all others must equal."""
    return train(pool, configure(), steps=20)


def test_the_reference_run_learns(single):
    assert losses(single)[0] > 4 and losses(single)[-1] < 3.5


@pytest.mark.parametrize("mesh", MESHES)
def test_sgd_does_not_depend_on_the_mesh(pool, single, mesh):
    config = configure(mesh)
    outcomes = train(pool, config, steps=20)
    torch.testing.assert_close(losses(outcomes), losses(single), atol=1e-5, rtol=0)
    torch.testing.assert_close(norms(outcomes), norms(single), atol=0, rtol=1e-4)
    final, expected = whole(outcomes, "final", config), whole(single, "final", configure())
    for name in expected:
        torch.testing.assert_close(final[name], expected[name], atol=1e-5, rtol=0, msg=name)


def test_the_size_of_messages_does_not_change_the_sums(pool):
    config = configure((2, 2))
    per_block, in_one = (train(pool, config, steps=5, smallest_message=size) for size in (0, None))
    assert in_one[0].steps == per_block[0].steps


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
def test_tied_embeddings_do_not_depend_on_the_mesh(pool, mesh):
    tied = {"tie_embeddings": True}
    expected = train(pool, configure(model=tied), steps=10)
    config = configure(mesh, model=tied)
    outcomes = train(pool, config, steps=10)
    assert "lm_head.weight" not in outcomes[0].layouts
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
def test_adamw_does_not_depend_on_the_mesh(pool, mesh):
    changes = {"optimizer": ADAMW, "gradient_clip": 1.0}
    expected = train(pool, configure(**changes), steps=50, learning_rate=3e-3)
    outcomes = train(pool, configure(mesh, **changes), steps=50, learning_rate=3e-3)
    assert losses(expected)[-1] < losses(expected)[0] - 1
    # Wider than for SGD: Adam's first steps are close to the sign of the gradient and amplify rounding.
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("mesh", "accumulation"), [((1, 1), 8), ((1, 2), 4), ((2, 2), 2)])
def test_accumulation_equals_one_large_batch(pool, single, mesh, accumulation):
    outcomes = train(pool, configure(mesh, accumulation), steps=20)
    torch.testing.assert_close(losses(outcomes), losses(single), atol=1e-5, rtol=0)
    torch.testing.assert_close(norms(outcomes), norms(single), atol=0, rtol=1e-4)


@pytest.mark.parametrize("mesh", MESHES)
def test_initial_weights_do_not_depend_on_the_mesh(pool, single, mesh):
    config = configure(mesh)
    weights = whole(train(pool, config, steps=0), "initial", config)
    expected = whole(single, "initial", configure())
    for name in expected:
        assert torch.equal(weights[name], expected[name]), name


STRETCHED = {
    "rope_scaling": {
        "factor": 4.0,
        "low_frequency_factor": 1.0,
        "high_frequency_factor": 4.0,
        "original_length": 8,
    }
}


@pytest.mark.parametrize("mesh", [(2, 2), {"context": 2}])
@pytest.mark.parametrize("model", [STRETCHED, EXPERTS], ids=["stretched", "experts-that-do-not-divide"])
def test_other_models_do_not_depend_on_the_mesh_either(pool, mesh, model):
    """Every family on every mesh is in test_axes.py."""
    expected = train(pool, configure(model=model), steps=20)
    outcomes = train(pool, configure(mesh, model=model), steps=20)
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("policy", ["selective", "full"])
@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("model", [{}, EXPERTS], ids=["dense", "experts"])
def test_what_is_computed_again_is_the_same(pool, policy, mesh, model):
    kept = train(pool, configure(mesh, model=model), steps=5)
    again = train(pool, configure(mesh, model=model, remat=policy), steps=5)
    assert [loss for loss, *_ in again[0].steps] == pytest.approx(
        [loss for loss, *_ in kept[0].steps], abs=1e-6
    )
    torch.testing.assert_close(norms(again), norms(kept), atol=0, rtol=1e-5)


def test_batches_differ_between_ranks_and_steps():
    """Otherwise the tests above would also pass for an engine that trains every rank on the same data."""
    batches = global_batches(20)
    assert len({bytes(batch.numpy()) for batch in batches.flatten(0, 1)}) > 100
