"""One run, however matrices, sequences and experts are spread over ranks."""

import pytest
import torch
from training import ADAMW, FAMILIES, configure, losses, norms, train, whole

DENSE_MESHES = [
    {"shard": 2},
    {"shard": 4},
    {"replicate": 2, "shard": 2},
    {"tensor": 2},
    {"tensor": 4},
    {"context": 2},
    {"context": 4},
    {"context": 2, "tensor": 2},
    {"shard": 2, "tensor": 2},
    {"shard": 2, "context": 2},
    {"replicate": 2, "tensor": 2},
    {"replicate": 2, "context": 2},
]
EXPERT_MESHES = [
    {"shard": 2, "expert": 2},
    {"shard": 4, "expert": 2},
    {"shard": 4, "expert": 4},
    {"replicate": 2, "shard": 2, "expert": 2},
    {"tensor": 2, "expert": 2},
    {"context": 2, "expert": 2},
    {"shard": 2, "tensor": 2, "expert": 2},
    {"shard": 2, "tensor": 2, "expert": 4},
    {"context": 2, "tensor": 2, "expert": 4},
]
CASES = [(family, mesh) for family in FAMILIES for mesh in DENSE_MESHES] + [
    ("qwen3-moe", mesh) for mesh in EXPERT_MESHES
]


def name_of(value) -> str:
    """`shard2-tensor2`, for reports of pytest."""
    return value if isinstance(value, str) else "-".join(f"{axis}{n}" for axis, n in value.items())


every_case = pytest.mark.parametrize(("family", "mesh"), CASES, ids=name_of)


@pytest.fixture(scope="module")
def single(pool):
    """Runs on one rank, made when they are first asked for."""
    runs = {}

    def run(family: str, steps: int, **options):
        key = (family, steps, str(options))
        if key not in runs:
            learning_rate = options.pop("learning_rate", 0.1)
            config = configure(model=FAMILIES[family], **options)
            runs[key] = train(pool, config, steps, learning_rate)
        return runs[key]

    return run


@every_case
def test_weights_gradients_and_losses_do_not_depend_on_the_mesh(pool, single, family, mesh):
    expected = single(family, 20)
    assert losses(expected)[-1] < losses(expected)[0] - 0.3
    config = configure(mesh, model=FAMILIES[family])
    outcomes = train(pool, config, steps=20)
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)
    torch.testing.assert_close(norms(outcomes), norms(expected), atol=0, rtol=1e-4)
    initial, reference = whole(outcomes, "initial", config), whole(expected, "initial", configure())
    assert all(torch.equal(initial[name], reference[name]) for name in reference)
    gradients, reference = (
        whole(run, "first_gradients", of) for run, of in ((outcomes, config), (expected, configure()))
    )
    assert gradients.keys() == reference.keys()
    for name, gradient in reference.items():
        assert gradient.abs().max() > 1e-3, f"{name} has no gradient to speak of"
        torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=0, msg=name)


@every_case
def test_adamw_does_not_depend_on_the_mesh(pool, single, family, mesh):
    changes = {"optimizer": ADAMW, "gradient_clip": 1.0}
    expected = single(family, 20, learning_rate=3e-3, **changes)
    outcomes = train(pool, configure(mesh, model=FAMILIES[family], **changes), 20, learning_rate=3e-3)
    # Wider than for SGD: Adam's first steps are close to the sign of the gradient and amplify rounding.
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=2e-3, rtol=0)
