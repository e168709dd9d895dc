"""Small training runs for tests: one configuration, one stream of tokens, cut for any mesh."""

import copy

import torch
from ranks import Job, Outcome, RankPool

VOCAB_SIZE = 61
SEQUENCE_LENGTH = 16
GLOBAL_BATCH = 8

# Nothing divides evenly: vocabulary 61, hidden 30, feed-forward 50. The one key-value head has 6 rows, so
# that of four shards the last is all padding, and 5 * 6 query rows happen to equal the hidden size while
# `head_dim` is explicit.
CONFIG = {
    "model": {
        "family": "llama3",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 30,
        "intermediate_size": 50,
        "experts": None,
        "num_layers": 2,
        "num_heads": 5,
        "num_kv_heads": 1,
        "head_dim": 6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "norm_eps": 1e-5,
        "tie_embeddings": False,
        "init_std": 0.2,
        "attention": "fused",
    },
    "mesh": {"replicate": 1, "shard": 1, "context": 1, "tensor": 1, "expert": 1},
    "sequence_length": SEQUENCE_LENGTH,
    "local_batch": GLOBAL_BATCH,
    "accumulation": 1,
    "global_tokens": GLOBAL_BATCH * SEQUENCE_LENGTH,
    "precision": {"compute": "float32", "reduce": "float32"},
    "optimizer": {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0},
    "loss_mask": False,
    "z_loss": 0.0,
    "document_end": None,
    "expert_capacity_factor": None,
    "remat": "none",
    "gradient_clip": None,
    "seed": 5,
    "device": "cpu",
    "compile": False,
    "threads": 1,
}

EXPERTS = {
    "family": "qwen3-moe",
    "hidden_size": 32,
    "intermediate_size": None,
    "experts": {
        "num_experts": 5,
        "experts_per_token": 2,
        "intermediate_size": 24,
        "load_balancing": "none",
        "load_balancing_coefficient": 0.01,
    },
}
"""Changes of the model that make it a mixture; five experts divide over no number of ranks."""

Mesh = tuple[int, int] | dict[str, int]
"""Degrees: (replicate, shard), or those by name that are not 1."""

DIVISIBLE = {"hidden_size": 32, "num_heads": 8, "num_kv_heads": 4, "intermediate_size": 52}
"""Changes of the model with which heads and widths divide over four ranks; the vocabulary still does not."""

FAMILIES = {
    "llama3": DIVISIBLE,
    "qwen3": DIVISIBLE | {"family": "qwen3", "head_dim": 10, "tie_embeddings": True},
    "qwen3-moe": DIVISIBLE | EXPERTS | {"experts": EXPERTS["experts"] | {"num_experts": 8}},
}
"""Changes of the model that make it one of a family, for every mesh."""

MUON = {"name": "muon", "momentum": 0.9, "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1}
ADAMW = {"name": "adamw", "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1}


def configure(mesh: Mesh = (1, 1), accumulation: int = 1, **changes) -> dict:
    """`CONFIG` on a mesh; `changes` replaces values, and for tables single keys."""
    config = copy.deepcopy(CONFIG)
    config["mesh"] |= {"replicate": mesh[0], "shard": mesh[1]} if isinstance(mesh, tuple) else mesh
    config["accumulation"] = accumulation
    config["local_batch"] = GLOBAL_BATCH // (data_parallel(config) * accumulation)
    for key, value in changes.items():
        if key == "experts":
            config["model"]["experts"] |= value
        elif key in ("model", "precision"):
            config[key] |= copy.deepcopy(value)
        else:
            config[key] = value
    return config


def data_parallel(config: dict) -> int:
    """Ranks that read data of their own."""
    return config["mesh"]["replicate"] * config["mesh"]["shard"]


def world_of(config: dict) -> int:
    """Number of ranks."""
    return data_parallel(config) * config["mesh"]["context"] * config["mesh"]["tensor"]


def global_batches(steps: int) -> torch.Tensor:
    """Learnable tokens, [steps, GLOBAL_BATCH, SEQUENCE_LENGTH + 1]: noisy arithmetic sequences."""
    generator = torch.Generator().manual_seed(1)
    shape = (steps, GLOBAL_BATCH, 1)
    start = torch.randint(0, VOCAB_SIZE, shape, generator=generator)
    stride = torch.randint(1, 4, shape, generator=generator)
    return ((start + stride * torch.arange(SEQUENCE_LENGTH + 1)) % VOCAB_SIZE).to(torch.int32)


def train(
    pool: RankPool,
    config: dict,
    steps: int,
    learning_rate: float = 0.1,
    stops: dict[tuple[int, int], bool] | None = None,
    batches: torch.Tensor | None = None,
    evaluations: dict[int, torch.Tensor] | None = None,
    stops_evaluations: int | None = None,
    **options,
) -> list[Outcome]:
    """Train on `batches`, by default `global_batches`, and return the outcome of every rank.

    `stops` holds the wishes to stop by (rank, step), `stops_evaluations` which rank wishes to evaluate no
    more, `evaluations` what to evaluate before a step, by its
    index from 0, in rows of all ranks: [readers * local_batch, SEQUENCE_LENGTH + 1]. `options` are further
    fields of `Job`.
    """
    readers, world = data_parallel(config), world_of(config)
    batches = global_batches(steps) if batches is None else batches
    shape = (steps, config["accumulation"], readers, config["local_batch"], SEQUENCE_LENGTH + 1)
    batches = batches.reshape(shape)
    evaluations = {
        step: rows.view(readers, config["local_batch"], -1) for step, rows in (evaluations or {}).items()
    }
    jobs = [
        Job(
            config=config,
            tokens=[bytes_of(batch[:, rank * readers // world]) for batch in batches],
            evaluations={step: bytes_of(rows[rank * readers // world]) for step, rows in evaluations.items()},
            learning_rates=[learning_rate] * steps,
            stops=[(stops or {}).get((rank, step), False) for step in range(steps)],
            stops_evaluations=rank == stops_evaluations,
            **options,
        )
        for rank in range(world)
    ]
    outcomes = pool.run(jobs)
    for outcome in outcomes:
        assert outcome.steps == outcomes[0].steps, "ranks must read equal numbers"
    return outcomes


def bytes_of(tokens: torch.Tensor) -> bytes:
    """A buffer as the engine takes it."""
    return tokens.to(torch.int32).contiguous().numpy().tobytes()


def losses(outcomes: list[Outcome]) -> torch.Tensor:
    """The loss of every step, in float64."""
    return torch.tensor([loss for loss, *_ in outcomes[0].steps], dtype=torch.float64)


def norms(outcomes: list[Outcome]) -> torch.Tensor:
    """The gradient norm of every step, in float64."""
    return torch.tensor([norm for _, norm, *_ in outcomes[0].steps], dtype=torch.float64)


def whole(outcomes: list[Outcome], which: str, config: dict) -> dict[str, torch.Tensor]:
    """The whole tensors of `which` ("initial", "final", "gradients"), joined from the shards of all ranks.

    Asserts on the way that replicas agree bit for bit and that padding is zero.
    """
    joined = {}
    copy_size = len(outcomes) // config["mesh"]["replicate"]
    for name, layout in outcomes[0].layouts.items():
        shards = [getattr(outcome, which)[name] for outcome in outcomes]
        for rank, shard in enumerate(shards):
            assert torch.equal(shard, shards[rank % copy_size]), f"replicas of {name} differ"
        places = {outcome.places[name]: shard for outcome, shard in zip(outcomes, shards, strict=True)}
        assert len(places) == copy_size == layout.parts * layout.degree, f"{name} is not held once"
        parts = []
        for part in range(layout.parts):
            flat = torch.cat([places[part, i].flatten() for i in range(layout.degree)])
            size = layout.part_shape.numel()
            assert not flat[size:].any(), f"padding of {name} is not zero"
            parts.append(flat[:size].view(layout.part_shape))
        joined[name] = torch.cat(parts, dim=layout.dim)
    return joined


def whole_state(outcomes: list[Outcome], which: str) -> dict[str, torch.Tensor]:
    """The state of all ranks ("first_state", "last_state") as whole matrices, by name.

    Asserts on the way that replicas agree bit for bit and that nothing is missing.
    """
    parts = [part for outcome in outcomes for part in getattr(outcome, which)]
    joined = {}
    for name in {name for name, *_ in parts}:
        own = [part[1:] for part in parts if part[0] == name]
        height, width = (max(ends[at][1] for ends in own) for at in (0, 1))
        matrix = torch.full((height, width), torch.nan)
        for rows, columns, elements in own:
            place = matrix[slice(*rows), slice(*columns)]
            there = elements.reshape(place.shape)
            assert torch.equal(place[~place.isnan()], there[~place.isnan()]), f"copies of {name} differ"
            place.copy_(there)
        assert not matrix.isnan().any(), f"something of {name} is missing"
        joined[name] = matrix
    return joined
