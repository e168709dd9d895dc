"""Muon, whose matrices are spread over ranks, against one that sees them whole."""

import pytest
import torch
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from titan_tpu.models.loss import cross_entropy_sum
from titan_tpu.muon import orthogonalise
from training import FAMILIES, MUON, configure, global_batches, losses, train, whole

LEARNING_RATE = 0.01
MESHES = [
    {"shard": 2},
    {"shard": 4},
    {"replicate": 2, "shard": 2},
    {"tensor": 2},
    {"shard": 2, "tensor": 2},
    {"context": 2, "tensor": 2},
    {"shard": 2, "expert": 2},
    {"shard": 4, "expert": 2},
    {"shard": 2, "tensor": 2, "expert": 2},
]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 20), (2, 20, 6)])
def test_singular_vectors_stay_and_singular_values_come_close_to_one(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, values, v = torch.linalg.svd(x, full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    assert values.min() > 0.4 and values.max() < 1.3
    torch.testing.assert_close(orthogonalise(x), u @ torch.diag_embed(values) @ v, atol=1e-9, rtol=0)


def test_a_matrix_of_zeros_stays_one():
    assert not orthogonalise(torch.zeros(2, 4, 3)).any()


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_muon_does_not_depend_on_the_mesh(pool, mesh):
    family = "qwen3-moe" if "expert" in mesh else "llama3"
    changes = {"model": FAMILIES[family], "optimizer": MUON}
    expected = train(pool, configure(**changes), 10, LEARNING_RATE)
    config = configure(mesh, **changes)
    outcomes = train(pool, config, 10, LEARNING_RATE)
    assert losses(expected)[-1] < losses(expected)[0] - 0.5
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-4, rtol=0)
    final, reference = whole(outcomes, "final", config), whole(expected, "final", configure())
    for name, weight in reference.items():
        torch.testing.assert_close(final[name], weight, atol=1e-3, rtol=0, msg=name)


def test_each_expert_is_a_matrix_of_its_own_and_a_gate_another_than_its_up(pool):
    config = configure(model=FAMILIES["qwen3-moe"], optimizer=MUON | {"momentum": 0.0, "weight_decay": 0.0})
    outcomes = train(pool, config, 1, LEARNING_RATE)
    initial, final = whole(outcomes, "initial", config), whole(outcomes, "final", config)
    for name, matrices in (("gate_up_proj", 2), ("down_proj", 1)):
        name = f"model.layers.0.mlp.experts.{name}"
        update = ((initial[name] - final[name]) / LEARNING_RATE).unflatten(1, (matrices, -1))
        values = torch.linalg.svdvals(update / (0.2 * max(update.shape[2:]) ** 0.5))
        assert values.max() < 1.3 and values.median() > 0.6


def test_engine_equals_a_plain_loop_with_the_optimizers_of_torch(pool, monkeypatch):
    steps, model_config = 6, configure(model=FAMILIES["llama3"])["model"]
    outcomes = train(pool, configure(model=FAMILIES["llama3"], optimizer=MUON), steps, LEARNING_RATE)
    model = build_model(ModelConfig.from_json(model_config))
    model.load_state_dict(whole(outcomes, "initial", configure()))
    # Torch's works in bfloat16 whatever the matrix is; with ours in its place the rest can be compared
    # closely.
    monkeypatch.setattr(
        torch.optim._muon, "_zeropower_via_newtonschulz", lambda x, *_: orthogonalise(x.unsqueeze(0))[0]
    )
    named = list(model.named_parameters())
    hidden = [p for name, p in named if ".layers." in name and p.dim() == 2]
    ends = [p for name, p in named if ".layers." not in name and p.dim() == 2]
    norms = [p for name, p in named if p.dim() == 1]
    muon = torch.optim.Muon(
        hidden, LEARNING_RATE, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    groups = [{"params": ends, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8)
    expected = []
    for batch in global_batches(steps):
        targets = batch[:, 1:]
        loss = cross_entropy_sum(model(batch[:, :-1]), targets) / targets.numel()
        model.zero_grad()
        loss.backward()
        muon.step()
        adamw.step()
        expected.append(loss.item())
    assert losses(outcomes).tolist() == pytest.approx(expected, abs=2e-4)
