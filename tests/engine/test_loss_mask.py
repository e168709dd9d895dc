"""Learning some of the tokens only: marks, against a plain loop with an index that is ignored."""

import json

import pytest
import torch
import torch.nn.functional as F
from titan_tpu.config import ModelConfig
from titan_tpu.engine import Engine
from titan_tpu.models import build_model, loss
from titan_tpu.models.marks import IGNORED, count_targets, read_marks
from training import (
    CONFIG,
    FAMILIES,
    GLOBAL_BATCH,
    SEQUENCE_LENGTH,
    bytes_of,
    configure,
    data_parallel,
    global_batches,
    losses,
    norms,
    train,
    whole,
)

STEPS = 3
LEARNING_RATE = 0.1
CASES = [
    ("llama3", {}),
    ("llama3", {"shard": 2}),
    ("llama3", {"shard": 4}),
    ("llama3", {"replicate": 2, "shard": 2}),
    ("qwen3", {"context": 2, "tensor": 2}),
    ("qwen3-moe", {"shard": 2, "expert": 2}),
]


def marked_batches(config: dict) -> torch.Tensor:
    """`global_batches` with marks: rows have between no and all of their targets, one data-parallel rank has
    none in any row, and where ranks share sequences most of them have none either.
    """
    batches = global_batches(STEPS)
    generator = torch.Generator().manual_seed(2)
    density = torch.linspace(0, 1, GLOBAL_BATCH).view(1, -1, 1)
    is_marked = torch.rand(batches.shape, generator=generator) >= density
    readers = data_parallel(config)
    shape = (STEPS, config["accumulation"], readers, config["local_batch"], -1)
    if readers > 1:
        is_marked.view(shape)[:, :, 1] = True
    elif config["mesh"]["context"] > 1:
        is_marked[..., SEQUENCE_LENGTH // 4 :] = True
    return torch.where(is_marked, ~batches, batches)


def reference(model: dict, weights: dict, batches: torch.Tensor):
    """Losses, numbers of targets and first gradients of a plain loop over whole global batches."""
    network = build_model(ModelConfig.from_json(model))
    network.load_state_dict(weights, strict=not model["tie_embeddings"])
    history, targets, first = [], [], None
    for batch in batches:
        network.zero_grad()
        tokens = torch.where(batch < 0, -1 - batch, batch)
        labels = torch.where(batch < 0, -100, batch)[:, 1:].flatten().long()
        mean = F.cross_entropy(network(tokens[:, :-1]).flatten(0, 1), labels, ignore_index=-100)
        mean.backward()
        first = first or {name: p.grad.clone() for name, p in network.named_parameters()}
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= LEARNING_RATE * parameter.grad
        history.append(mean.item())
        targets.append((labels != -100).sum().item())
    return torch.tensor(history, dtype=torch.float64), targets, first


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(("family", "mesh"), CASES, ids=str)
def test_a_masked_loss_equals_a_plain_loop(pool, family, mesh, accumulation):
    config = configure(mesh, accumulation, model=FAMILIES[family], loss_mask=True)
    batches = marked_batches(config)
    outcomes = train(pool, config, STEPS, LEARNING_RATE, batches=batches)
    weights = whole(outcomes, "initial", config)
    expected, targets, gradients = reference(config["model"], weights, batches)
    assert 0 < min(targets) and max(targets) < GLOBAL_BATCH * SEQUENCE_LENGTH
    assert [count for *_, count, _ in outcomes[0].steps] == targets
    torch.testing.assert_close(losses(outcomes), expected, atol=1e-5, rtol=0)
    own = whole(outcomes, "first_gradients", config)
    assert own.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (own[name] - gradient).norm() < 1e-5 * gradient.norm(), name


def test_marks_do_not_move_documents(pool):
    """A marked end of a document is still one."""
    config = configure((1, 2), loss_mask=True, document_end=7)
    batches = global_batches(STEPS)
    assert (batches == 7).any()
    marked = torch.where(batches == 7, ~batches, batches)
    outcomes = train(pool, config, STEPS, 0.0, batches=marked)
    evaluated = train(pool, configure(document_end=7), 0, evaluations={0: marked[0]})
    total, targets = evaluated[0].evaluations[0]
    assert losses(outcomes)[0].item() == pytest.approx(total / targets, abs=1e-5)
    crossing = train(pool, config | {"document_end": None}, STEPS, 0.0, batches=marked)
    assert abs(losses(crossing)[0] - losses(outcomes)[0]) > 1e-3


@pytest.mark.parametrize("mesh", [{}, {"shard": 2}, {"context": 2, "tensor": 2}], ids=str)
def test_without_marks_a_mask_changes_nothing(pool, mesh):
    config = configure(mesh, 2, model=FAMILIES["qwen3-moe"], z_loss=0.01)
    plain, masked = (train(pool, config | {"loss_mask": on}, STEPS) for on in (False, True))
    torch.testing.assert_close(losses(masked), losses(plain), atol=1e-6, rtol=0)
    torch.testing.assert_close(norms(masked), norms(plain), atol=0, rtol=1e-5)
    assert [targets for *_, targets, _ in plain[0].steps] == [None] * STEPS
    assert [targets for *_, targets, _ in masked[0].steps] == [config["global_tokens"]] * STEPS


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("mesh", [{}, {"replicate": 2, "shard": 2}, {"context": 2, "tensor": 2}], ids=str)
def test_a_batch_without_targets_teaches_nothing(pool, mesh, z_loss):
    config = configure(mesh, 2, model=FAMILIES["llama3"], loss_mask=True, z_loss=z_loss, gradient_clip=1.0)
    batches = global_batches(2)
    batches[0] = ~batches[0]
    outcomes = train(pool, config, 2, batches=batches)
    assert outcomes[0].steps[0][:4] == (0.0, 0.0, False, 0)
    assert not any(gradient.any() for outcome in outcomes for gradient in outcome.first_gradients.values())
    # The step changed nothing, so the next one is the first of another run.
    other = train(pool, config, 1, batches=batches[1:])
    assert outcomes[0].steps[1] == other[0].steps[0]


def test_marks_are_bitwise_complements():
    tokens, targets = read_marks(torch.tensor([[5, 0, -1, -6]], dtype=torch.int32))
    assert tokens.tolist() == [[5, 0, 0, 5]] and targets.tolist() == [[5, 0, IGNORED, IGNORED]]
    assert tokens.dtype == targets.dtype == torch.int32
    assert count_targets(targets).item() == 2


def test_a_marked_token_outside_the_vocabulary_is_refused():
    engine = Engine(json.dumps(CONFIG | {"loss_mask": True}), 0, "null")
    tokens = global_batches(1)[0]
    tokens[0, 0] = ~CONFIG["model"]["vocab_size"]
    with pytest.raises(IndexError):
        engine.step(bytearray(bytes_of(tokens)), 0.1, False)


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_every_way_to_compute_the_loss_ignores_the_same(z_loss, monkeypatch):
    """All logits at once, part by part with and without gradients, and the targets alone."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(3, 32, 24, generator=generator)
    weight = torch.randn(97, 24, generator=generator)
    targets = torch.randint(0, 97, (3, 32), generator=generator)
    targets[torch.rand(3, 32, generator=generator) < 0.6] = IGNORED
    targets[1] = IGNORED  # whole parts without a target

    def run(x, targets, is_masked):
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        sums = loss.linear_cross_entropy_sum(*leaves, targets, z_loss, is_masked)
        return sums, torch.autograd.grad(sums[0] / 3, leaves)

    kept = targets != IGNORED
    alone, (x_alone, weight_alone) = run(x[kept].unsqueeze(0), targets[kept].unsqueeze(0), False)
    assert (alone[0] > alone[1]) == (z_loss > 0)
    for largest in (1 << 24, 97 * 7):  # 96 tokens in parts of 7, the last one shorter
        monkeypatch.setattr(loss, "LARGEST_LOGITS", largest)
        sums, (x_gradient, weight_gradient) = run(x, targets, True)
        with torch.no_grad():
            forward = loss.linear_cross_entropy_sum(x, weight, targets, z_loss, True)
        for own in (sums, forward):
            torch.testing.assert_close(torch.stack(own), torch.stack(alone), atol=1e-3, rtol=1e-6)
        torch.testing.assert_close(weight_gradient, weight_alone, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(x_gradient[kept], x_alone[0], atol=1e-4, rtol=1e-4)
        assert not x_gradient[~kept].any()


@pytest.mark.parametrize("mesh", [{"shard": 4, "expert": 4}, {"context": 2, "tensor": 2}], ids=str)
def test_all_ranks_trace_the_same_bytes_with_a_mask(pool, mesh):
    config = configure(mesh, model=FAMILIES["qwen3-moe"], loss_mask=True)
    outcomes = train(pool, config, STEPS, batches=marked_batches(config), fingerprint=True)
    assert len({outcome.graph for outcome in outcomes}) == 1
    plain = train(pool, config | {"loss_mask": False}, 1, fingerprint=True)
    assert outcomes[0].graph != plain[0].graph


@pytest.mark.parametrize("mesh", [{}, {"shard": 2, "tensor": 2}], ids=str)
def test_counting_targets_is_one_message(pool, mesh):
    config = configure(mesh, 2, model=FAMILIES["llama3"])
    runs = (train(pool, config | {"loss_mask": on}, 1, record_collectives=True) for on in (False, True))
    plain, masked = ([entry[:1] + entry[2:] for entry in run[0].collectives] for run in runs)
    assert masked == ([("all_reduce", 1)] if mesh else []) + plain
