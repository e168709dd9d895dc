"""The engine against a plain training loop, which has no shards, no micro-steps and no fused kernels."""

import math

import pytest
import torch
import torch.nn.functional as F
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from training import CONFIG, configure, global_batches, losses, norms, train, whole

# A large epsilon keeps Adam's division away from noise, so that weights can be compared closely.
ADAMW = {"name": "adamw", "betas": [0.8, 0.9], "epsilon": 1e-2, "weight_decay": 0.5}
SGD = {"name": "sgd", "momentum": 0.9, "weight_decay": 0.5}
STEPS = 6
LEARNING_RATE = 0.02


def reference(weights: dict, optimizer_config: dict, clip: float | None):
    """Losses, norms and final weights of a plain loop that starts from `weights`."""
    model = build_model(ModelConfig.from_json(CONFIG["model"]))
    model.load_state_dict(weights)
    matrices = [p for name, p in model.named_parameters() if "norm" not in name]
    vectors = [p for name, p in model.named_parameters() if "norm" in name]
    groups = [
        {"params": matrices, "weight_decay": optimizer_config["weight_decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if optimizer_config["name"] == "adamw":
        optimizer = torch.optim.AdamW(
            groups,
            lr=LEARNING_RATE,
            betas=optimizer_config["betas"],
            eps=optimizer_config["epsilon"],
            foreach=False,
            fused=False,
        )
    else:
        optimizer = torch.optim.SGD(
            groups, lr=LEARNING_RATE, momentum=optimizer_config["momentum"], foreach=False, fused=False
        )
    history = []
    for batch in global_batches(STEPS):
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten().long())
        loss.backward()
        norm = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt()
        if clip is not None:
            for parameter in model.parameters():
                parameter.grad *= min(1.0, clip / norm.item())
        optimizer.step()
        history.append((loss.item(), norm.item()))
    return history, dict(model.named_parameters())


@pytest.mark.parametrize("mesh", [(1, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
def test_engine_equals_a_plain_loop(pool, mesh, optimizer, clip):
    config = configure(mesh, optimizer=optimizer, gradient_clip=clip)
    outcomes = train(pool, config, STEPS, LEARNING_RATE)
    history, weights = reference(whole(outcomes, "initial", config), optimizer, clip)
    expected = torch.tensor(history, dtype=torch.float64)
    torch.testing.assert_close(losses(outcomes), expected[:, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(norms(outcomes), expected[:, 1], atol=0, rtol=1e-5)
    final = whole(outcomes, "final", config)
    assert final.keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(final[name], weight.detach(), atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2)])
def test_clipping_bounds_the_gradient_but_not_the_reported_norm(pool, mesh):
    config = configure(mesh, gradient_clip=0.25)
    outcomes = train(pool, config, steps=1)
    reported = norms(outcomes).item()
    assert reported > 1, "a gradient within the bound would not show clipping"
    gradients = whole(outcomes, "gradients", config)
    clipped = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients.values()))
    assert clipped == pytest.approx(0.25, rel=1e-4)


def test_a_gradient_within_the_bound_is_left_alone(pool):
    unclipped = train(pool, configure((1, 2)), steps=3)
    bounded = train(pool, configure((1, 2), gradient_clip=1e6), steps=3)
    assert bounded[0].steps == unclipped[0].steps
