"""The engine's configuration: typed views of the JSON object that Rust sends.

Rust has validated every value and filled in every default. Here each key must be present and no other may be:
a missing or unknown key is a version mismatch between the two sides and raises `TypeError` or `KeyError` at
once.
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RopeScaling:
    """Rotary positions stretched as in Llama 3.1; see `layers.rotary_frequencies`."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: int
    """Tokens of the sequences that the model was first trained on."""


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts in place of each dense feed-forward layer."""

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    """Inner width of one expert."""
    load_balancing: str
    """What keeps experts evenly busy: none, auxiliary-loss or bias; see `balancing.py`."""
    load_balancing_coefficient: float
    """Weight of the auxiliary loss, or step of the bias."""


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions of a decoder-only transformer, in the words of Hugging Face's config.json."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int | None
    """Inner width of a dense feed-forward layer; None with experts."""
    experts: ExpertsConfig | None
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    """Explicit: some models have num_heads * head_dim != hidden_size."""
    rope_theta: float
    rope_scaling: RopeScaling | None
    norm_eps: float
    tie_embeddings: bool
    init_std: float
    attention: str
    """How attention is computed: fused or plain; see `models/attention.py`."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "ModelConfig":
        """Parse the object that Rust calls `model`."""
        fields = dict(fields)
        for name, part in (("experts", ExpertsConfig), ("rope_scaling", RopeScaling)):
            if fields[name] is not None:
                fields[name] = part(**fields[name])
        return cls(**fields)


@dataclass(frozen=True)
class MeshConfig:
    """Degrees of the mesh axes, from the slowest network to the fastest: ranks count through tensor first."""

    replicate: int
    """Copies of the model."""
    shard: int
    """Ranks with data of their own that share the weights of one copy."""
    context: int
    """Ranks that share a sequence."""
    tensor: int
    """Ranks that share matrices."""
    expert: int
    """Ranks that share the experts of a block; divides shard * context * tensor."""

    @property
    def copy(self) -> int:
        """Ranks that together hold one copy of the model."""
        return self.shard * self.context * self.tensor

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.replicate * self.copy


@dataclass(frozen=True)
class PrecisionConfig:
    """Names of torch data types; master weights and optimizer state are always float32."""

    compute: str
    """Type of gathered weights and of activations."""
    reduce: str
    """Type in which gradients are summed over ranks."""


@dataclass(frozen=True)
class AdamWConfig:
    """Values of `optimizers.AdamW`."""

    betas: tuple[float, float]
    epsilon: float
    weight_decay: float


@dataclass(frozen=True)
class MuonConfig:
    """Values of `muon.Muon`: `momentum` is that of matrices, `betas` and `epsilon` are for the rest."""

    momentum: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float


@dataclass(frozen=True)
class SGDConfig:
    """Values of `optimizers.SGD`."""

    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class EngineConfig:
    """Everything the engine needs to know, for all ranks alike."""

    model: ModelConfig
    mesh: MeshConfig
    precision: PrecisionConfig
    optimizer: AdamWConfig | MuonConfig | SGDConfig
    sequence_length: int
    """Tokens predicted per sequence; a sequence arrives with one token more."""
    local_batch: int
    """Sequences per micro-step of the ranks that share data: all that differ along context and tensor alone.
    """
    accumulation: int
    """Micro-steps per step."""
    global_tokens: int
    """Targets in one global batch, over all ranks and micro-steps: the denominator of the loss, unless tokens
    are marked.
    """
    loss_mask: bool
    """Whether tokens can be marked as no targets; see `models/marks.py`. The denominator of the loss is then
    the number of targets that are left in the global batch.
    """
    z_loss: float
    """Weight of the squared logarithm of the softmax's denominator; see `models/loss.py`."""
    document_end: int | None
    """Token that ends a document; attention then stays inside documents. None lets it cross them."""
    expert_capacity_factor: float | None
    """Rows that a rank can send to each rank of the expert axis, as a multiple of an even share; None for as
    many as there can be.
    """
    remat: str
    """What the backward pass computes again: none, selective or full; see `parallel/remat.py`."""
    gradient_clip: float | None
    """Largest global gradient norm, or None for no clipping."""
    seed: int
    """Seed of the initial weights."""
    device: str
    compile: bool
    """Whether the forward and backward pass run as one compiled program; see `compiled.py`."""
    threads: int
    """Threads of torch inside this process."""

    @classmethod
    def from_json(cls, text: str) -> "EngineConfig":
        """Parse the JSON object described by this module's classes."""
        fields: dict[str, Any] = json.loads(text)
        fields["model"] = ModelConfig.from_json(fields["model"])
        fields["mesh"] = MeshConfig(**fields["mesh"])
        fields["precision"] = PrecisionConfig(**fields["precision"])
        optimizer = dict(fields["optimizer"])
        fields["optimizer"] = _OPTIMIZERS[optimizer.pop("name")](**optimizer)
        return cls(**fields)


_OPTIMIZERS = {"adamw": AdamWConfig, "muon": MuonConfig, "sgd": SGDConfig}


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of one world meet; used only when the world has more than one rank."""

    host: str
    port: int
    listen_fd: int | None
    """Rank 0 only: a socket that the launcher has already bound to `port`."""
    timeout_seconds: float
    """Bound on joining the world and on every single collective."""

    @classmethod
    def from_json(cls, text: str) -> "Rendezvous":
        """Parse the JSON object that the launcher wrote."""
        return cls(**json.loads(text))
