"""The engine: one object per rank that Rust drives step by step.

Dimensions: A micro-steps, B sequences of this rank, S tokens that are read of a sequence, of which S - 1 are
predicted, L layers with experts, E experts of each.
"""

import math
from typing import Any

import torch
from torch import Tensor

from titan_tpu import balancing
from titan_tpu.config import AdamWConfig, EngineConfig, Rendezvous, SGDConfig
from titan_tpu.device import device_by_name
from titan_tpu.micro_step import MicroStep
from titan_tpu.models import build_model
from titan_tpu.models.initialization import initial_rows
from titan_tpu.muon import Muon, hidden_matrices
from titan_tpu.optimizers import SGD, AdamW, Optimizer
from titan_tpu.parallel import process_group
from titan_tpu.parallel.context_parallel import spread_sequences
from titan_tpu.parallel.expert_parallel import spread_experts
from titan_tpu.parallel.mesh import build_mesh
from titan_tpu.parallel.remat import rematerialise
from titan_tpu.parallel.simple_fsdp import Precision, shard_parameters
from titan_tpu.parallel.tensor_parallel import spread_matrices


class Engine:
    """A sharded model, its optimizer, and the collectives between ranks.

    Every rank makes one, with the same `config_json` (see `config.EngineConfig`), and then calls `step`
    equally often.
    """

    def __init__(self, config_json: str, rank: int, rendezvous_json: str):
        """Join the world and make the initial weights.

        `rendezvous_json` (see `config.Rendezvous`) is not looked at in a world of one, which has no process
        group.
        """
        config = EngineConfig.from_json(config_json)
        torch.set_num_threads(config.threads)
        self._config = config
        self._device = device_by_name(config.device)
        if config.mesh.world > 1:
            process_group.join(
                Rendezvous.from_json(rendezvous_json), self._device.backend, rank, config.mesh.world
            )
        self._mesh = build_mesh(config.mesh, rank)
        with torch.device("meta"):
            self.model = build_model(config.model)
        spread_sequences(self.model, self._mesh)
        parts = spread_matrices(self.model, self._mesh)
        parts |= spread_experts(self.model, self._mesh, config.expert_capacity_factor)
        self.placements = shard_parameters(
            self.model,
            self._mesh,
            Precision(getattr(torch, config.precision.compute), getattr(torch, config.precision.reduce)),
            self._device,
            lambda module, name, shape, start, stop: initial_rows(
                module, name, shape, config.seed, start, stop
            ),
            parts,
            recomputes_blocks=config.remat != "none",
        )
        rematerialise(self.model, config.remat)
        self._parameters = list(self.model.parameters())
        # Made once: whether this rank wishes to stop.
        self._wishes = torch.tensor([[0.0], [1.0]], device=self._device.torch_device)
        self._optimizer = self._build_optimizer()
        self._micro_step = MicroStep(self.model, config, self._mesh, self._device.torch_device)
        self._compiled = self._compile() if config.compile else None

    def _compile(self):
        # Imported here, for it brings the compiler along: a second that other runs need not wait.
        from titan_tpu.compiled import CompiledMicroStep

        shape_BS = (self._config.local_batch, self._config.sequence_length + 1)
        tokens_BS = torch.zeros(shape_BS, dtype=torch.int32, device=self._device.torch_device)
        inputs = self._micro_step.cut(tokens_BS)
        return CompiledMicroStep(
            self.model, self._micro_step, inputs, self._mesh.world, self._device.compiler
        )

    def _build_optimizer(self) -> Optimizer:
        config = self._config.optimizer
        if isinstance(config, AdamWConfig):
            return AdamW(self._parameters, config)
        if isinstance(config, SGDConfig):
            return SGD(self._parameters, config)
        matrices = hidden_matrices(self.model, self.placements)
        return Muon(self._parameters, matrices, config, getattr(torch, self._config.precision.compute))

    @property
    def asynchronous(self) -> bool:
        """Whether the device has a queue, so that `read` should wait until the next step is under way."""
        return self._device.asynchronous

    def step(self, tokens: Any, learning_rate: float, stop: bool) -> Tensor:
        """Run one optimizer step on this rank's part of the global batch.

        `tokens` is a writable buffer of int32 [accumulation, local_batch, sequence_length + 1]; it is viewed,
        not copied, and not kept. `stop` is this rank's wish to end after this step.
        Returns a handle for `read`, without waiting for the device.
        Raises `RuntimeError` for a buffer of another size, `IndexError` for a token outside the vocabulary.
        """
        config = self._config
        shape_ABS = (config.accumulation, config.local_batch, config.sequence_length + 1)
        tokens_ABS = torch.frombuffer(tokens, dtype=torch.int32).view(shape_ABS).to(self._device.torch_device)

        self._optimizer.zero_grad()
        statistics = self._accumulate_gradients(tokens_ABS[0])
        for tokens_BS in tokens_ABS[1:]:
            statistics = statistics + self._accumulate_gradients(tokens_BS)
        totals = self._reduce_totals(statistics, stop)
        divisor = None
        if config.gradient_clip is not None:
            # Never below one: gradients within the bound stay as they are.
            divisor = (totals[1].sqrt() / config.gradient_clip).clamp(min=1.0)
        self._optimizer.step(learning_rate, divisor)
        if config.model.experts is None:
            return totals
        pairs_LE, left_out_LE = totals[3:].view(config.model.num_layers, 2, -1).unbind(dim=1)
        self._micro_step.balance(pairs_LE)
        return torch.cat((totals[:3], balancing.summary(pairs_LE, left_out_LE)))

    def _accumulate_gradients(self, tokens_BS: Tensor) -> Tensor:
        """Add one micro-step's gradients, summed over all ranks, to the shards; returns this rank's
        statistics (see `MicroStep.forward`).
        """
        inputs = self._micro_step.cut(tokens_BS)
        if self._compiled is not None:
            return self._compiled(inputs)
        objective, statistics = self._micro_step.forward(*inputs)
        objective.backward()
        return statistics

    def _reduce_totals(self, statistics: Tensor, stop: bool) -> Tensor:
        """[ranks that wish to stop, squared gradient norm, loss, loads of a mixture (L * 2 * E)], summed over
        all ranks in one message.

        Replicas hold equal gradients, so each contributes its share: every element of the model is counted
        once.
        """
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in self._parameters])
        square = (norm.square() / self._mesh.replicate.degree).view(1)
        return self._mesh.world.all_reduce(torch.cat((self._wishes[int(stop)], square, statistics)))

    def read(self, handle: Tensor) -> tuple[float, float, bool, tuple[list[float], int, float, float] | None]:
        """Wait for a step and return (loss, gradient norm, stop agreed, experts), equal on all ranks.

        Loss in nats per token, mean over the global batch, before the update; norm over all parameters,
        before clipping; stop is true on all ranks at the same step as soon as one of them has wished it.
        Experts, of a mixture: (load of each, pairs left out, largest load, smallest load); see
        `balancing.summary`.
        """
        stops, square, loss, *experts = handle.tolist()
        if not experts:
            return loss, math.sqrt(square), stops > 0, None
        left_out, largest, smallest, *load = experts
        return loss, math.sqrt(square), stops > 0, (load, round(left_out), largest, smallest)

    def describe(self) -> dict[str, int]:
        """Parameters of the model, elements that this rank holds (padding included), and threads in use."""
        return {
            "parameters_total": sum(layout.shape.numel() for layout, _ in self.placements.values()),
            "parameters_local": sum(parameter.numel() for parameter in self._parameters),
            "threads": torch.get_num_threads(),
        }

    def close(self) -> None:
        """Leave the world. The engine cannot be used afterwards."""
        if self._config.mesh.world > 1:
            process_group.leave()
