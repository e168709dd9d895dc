"""How busy experts are, and what keeps them evenly busy."""

import json

import pytest
import torch
from titan_tpu import balancing
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from titan_tpu.parallel.expert_parallel import _slots, slots_of
from training import ADAMW, FAMILIES, configure, global_batches, losses, train
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

MOE = FAMILIES["qwen3-moe"]
MESHES = [
    {"shard": 2},
    {"shard": 2, "expert": 2},
    {"shard": 4, "expert": 4},
    {"replicate": 2, "shard": 2, "expert": 2},
    {"context": 2, "tensor": 2, "expert": 4},
]


def moe(mesh=(1, 1), balancing="none", coefficient=0.01, **changes) -> dict:
    experts = {"load_balancing": balancing, "load_balancing_coefficient": coefficient}
    return configure(mesh, model=MOE, experts=experts, **changes)


def experts_of(outcomes) -> list:
    """(load of each, left out, largest, smallest) of every step."""
    return [experts for *_, experts in outcomes[0].steps]


def loads_of(config: dict, tokens: torch.Tensor):
    """A model with random weights, and the loads of its experts for these tokens."""
    model = build_model(ModelConfig.from_json(json.loads(json.dumps(config["model"]))))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    logits = []
    for layer in model.model.layers:
        gate = layer.mlp.gate
        gate.register_forward_hook(lambda m, x, _: logits.append(x[0] @ m.weight.T))
    return model(tokens[:, :-1], tokens[:, 1:]).loads_L3E, logits


@pytest.mark.parametrize("layers", [1, 2])
def test_the_auxiliary_loss_equals_that_of_transformers(layers):
    config = moe()
    config["model"]["num_layers"] = layers
    tokens = global_batches(1)[0]
    loads, logits = loads_of(config, tokens)
    share = loads[:, 1] / loads[:, 1].sum(dim=1, keepdim=True)
    experts = experts_config()
    ours = balancing.auxiliary_loss(loads[:, 0], share, experts, tokens[:, 1:].numel())
    # Theirs takes the layers for one; the mean over layers keeps each of them balanced.
    theirs = torch.stack([load_balancing_loss_func((own,), 8, 2) for own in logits]).mean()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert ours > 2.001, "experts that are evenly busy would give 2 whatever is computed"


def experts_config(**changes):
    config = moe(**changes)["model"]
    return ModelConfig.from_json(config).experts


def test_even_shares_ask_for_nothing():
    config = experts_config(balancing="auxiliary-loss")
    probability = torch.rand(2, 8).requires_grad_()
    share = balancing.initial(config, 2, probability.device)
    normalised = probability / probability.sum(1, keepdim=True)
    balancing.auxiliary_loss(normalised, share, config, 1).backward()
    assert probability.grad.abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["auxiliary-loss", "bias"])
@pytest.mark.parametrize(("mesh", "accumulation"), [((1, 1), 4), ((1, 2), 4), ({"shard": 2, "expert": 2}, 2)])
def test_balancing_does_not_depend_on_the_number_of_micro_steps(pool, mesh, accumulation, kind):
    """Shares of a micro-step would: 0.01 of a loss after twenty steps of AdamW."""
    changes = {"balancing": kind, "coefficient": 0.01, "optimizer": ADAMW}
    expected, outcomes = (
        train(pool, moe(*where, **changes), 20, learning_rate=3e-3) for where in (((1, 1),), (mesh,))
    )
    cut = train(pool, moe(mesh, accumulation=accumulation, **changes), 20, learning_rate=3e-3)
    for run in (outcomes, cut):
        torch.testing.assert_close(losses(run), losses(expected), atol=2e-3, rtol=0)


def test_loads_are_counts():
    config = moe()
    loads, logits = loads_of(config, global_batches(1)[0])
    for (probability, pairs, left_out), own in zip(loads, logits, strict=True):
        chosen = own.topk(2).indices.flatten()
        assert pairs.tolist() == chosen.bincount(minlength=8).tolist()
        torch.testing.assert_close(probability, own.softmax(1).sum(0))
        assert not left_out.any()


def test_the_summary_is_relative_to_an_even_share():
    pairs = torch.tensor([[1.0, 3.0, 4.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    summary = balancing.summary(pairs, torch.tensor([[0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 4.0]]))
    assert summary.tolist() == [7, 2, 0, 0.75, 1.25, 1.5, 0.5]


def test_what_balances_follows_from_the_loads():
    pairs = torch.tensor([[9.0, 3.0, 0.0, 0.0], [4.0, 4.0, 4.0, 4.0]])
    biases = torch.tensor([[0.0] * 4, [1.0] * 4])
    by_bias = experts_config(balancing="bias", coefficient=0.5)
    assert balancing.following(by_bias, biases, pairs).tolist() == [[-0.5, 0, 0.5, 0.5], [1] * 4]
    by_loss = experts_config(balancing="auxiliary-loss")
    shares = balancing.following(by_loss, biases, pairs)
    assert shares.tolist() == [[0.75, 0.25, 0, 0], [0.25] * 4]
    assert balancing.initial(experts_config(), 2, pairs.device) is None


@pytest.mark.parametrize("kind", ["none", "auxiliary-loss", "bias"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_balancing_does_not_depend_on_the_mesh(pool, mesh, kind):
    expected = train(pool, moe(balancing=kind, coefficient=0.05), 10)
    outcomes = train(pool, moe(mesh, kind, 0.05), 10)
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)
    for ours, theirs in zip(experts_of(outcomes), experts_of(expected), strict=True):
        # Rounding may send a token elsewhere where two experts are as likely.
        assert ours[0] == pytest.approx(theirs[0], abs=0.05)
        assert ours[1] == 0
    state, reference = outcomes[0].balance, expected[0].balance
    assert (state is None) == (kind == "none")
    if kind != "none":
        assert all(torch.equal(outcome.balance, state) for outcome in outcomes)
        assert not torch.equal(state, balancing.initial(experts_config(balancing=kind), 2, state.device))
        torch.testing.assert_close(state, reference, atol=0 if kind == "bias" else 0.01, rtol=0)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize(("kind", "coefficient"), [("auxiliary-loss", 1.0), ("bias", 0.01)])
def test_balanced_experts_are_more_evenly_busy(pool, kind, coefficient, accumulation):
    def spread(outcomes):
        """Between experts, over the last steps: those of a single step have few tokens."""
        return torch.tensor([load for load, *_ in experts_of(outcomes)[-20:]]).mean(dim=0).std()

    # One layer, for what is reported is the mean over layers.
    def run(**balance):
        config = moe(accumulation=accumulation, **balance)
        config["model"]["num_layers"] = 1
        return train(pool, config, 40)

    left, balanced = run(), run(balancing=kind, coefficient=coefficient)
    assert spread(balanced) < 0.6 * spread(left)
    # The loss that is reported is the cross entropy alone: a term of 2 would show.
    assert losses(balanced)[0] == pytest.approx(losses(left)[0].item(), abs=1e-6)


def test_a_dense_model_has_no_experts_to_report(pool):
    assert experts_of(train(pool, configure(), 1)) == [None]


@pytest.mark.parametrize("degree", [2, 4])
def test_a_large_capacity_leaves_nothing_out(pool, degree):
    mesh = {"shard": degree, "expert": degree}
    dropless = train(pool, moe(mesh), 5)
    ample = train(pool, moe(mesh, expert_capacity_factor=float(degree)), 5)
    torch.testing.assert_close(losses(ample), losses(dropless), atol=1e-6, rtol=0)
    assert [experts[1] for experts in experts_of(ample)] == [0] * 5


def test_what_has_no_place_is_left_out_and_counted(pool):
    mesh = {"shard": 2, "expert": 2}
    full, tight = (
        train(pool, moe(mesh, expert_capacity_factor=factor, local_batch=4), 5) for factor in (None, 1.0)
    )
    left_out = [experts[1] for experts in experts_of(tight)]
    assert all(0 < n < 0.5 * 2 * 2 * 8 * 16 for n in left_out)
    assert [experts[1] for experts in experts_of(full)] == [0] * 5
    assert losses(tight).tolist() != losses(full).tolist()
    # Loads count what was chosen, left out or not.
    assert experts_of(tight)[0][0] == pytest.approx(experts_of(full)[0][0], abs=0.05)
    assert losses(tight)[-1] < losses(tight)[0] - 0.3


def test_the_pairs_left_out_are_those_with_the_smallest_weights():
    ranks = torch.tensor([0, 1, 0, 0, 1, 0])
    weights = torch.tensor([0.1, 0.9, 0.4, 0.2, 0.8, 0.3])
    slots = _slots(ranks, weights, degree=2, slots=2)
    assert slots.tolist() == [4, 2, 0, 4, 3, 1]
    assert _slots(ranks, None, degree=2, slots=6).tolist() == [0, 6, 1, 2, 7, 3]


@pytest.mark.parametrize(
    ("factor", "slots"), [(None, 200), (1.0, 50), (1.25, 63), (2.0, 100), (4.0, 200), (9.0, 200)]
)
def test_slots_are_a_multiple_of_an_even_share(factor, slots):
    assert slots_of(100, 2, 8, 4, factor) == slots


def test_a_token_cannot_choose_more_experts_of_a_rank_than_there_are():
    # 128 experts over 64 ranks: eight of a token's experts are on at least four ranks.
    assert slots_of(100, 8, 128, 64, None) == 200
