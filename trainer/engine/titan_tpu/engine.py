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
from titan_tpu.models.marks import count_targets
from titan_tpu.muon import Muon, hidden_matrices
from titan_tpu.optimizers import SGD, AdamW, Optimizer
from titan_tpu.parallel import process_group
from titan_tpu.parallel.context_parallel import spread_sequences
from titan_tpu.parallel.expert_parallel import spread_experts
from titan_tpu.parallel.mesh import build_mesh
from titan_tpu.parallel.remat import rematerialise
from titan_tpu.parallel.simple_fsdp import Precision, shard_parameters
from titan_tpu.parallel.tensor_parallel import spread_matrices
from titan_tpu.state import StatePart, parts


class Engine:
    """A sharded model, its optimizer, and the collectives between ranks.

    Every rank makes one, with the same `config_json` (see `config.EngineConfig`), and then calls `step` and
    `evaluate` equally often and in the same order.
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
        # Made once: whether this rank wishes to stop, and whether it wishes to save, by [stop][save].
        wishes = [[[float(stop), float(save)] for save in (0, 1)] for stop in (0, 1)]
        self._wishes = torch.tensor(wishes, device=self._device.torch_device)
        self._optimizer = self._build_optimizer()
        self._micro_step = MicroStep(self.model, config, self._mesh, self._device.torch_device)
        self._compiled = self._compile() if config.compile else None

    def _compile(self):
        # Imported here, for it brings the compiler along: a second that other runs need not wait.
        from titan_tpu.compiled import CompiledMicroStep

        shape_ABS = (1, self._config.local_batch, self._config.sequence_length + 1)
        tokens_ABS = torch.zeros(shape_ABS, dtype=torch.int32, device=self._device.torch_device)
        ((inputs,), _) = self._inputs(tokens_ABS)
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

    def step(
        self, tokens: Any, learning_rate: float, stop: bool, save: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Run one optimizer step on this rank's part of the global batch.

        `tokens` is a writable buffer of int32 [accumulation, local_batch, sequence_length + 1]; it is viewed,
        not copied, and not kept. With a loss mask they may be marked (see `models/marks.py`). `stop` is this
        rank's wish to end after this step, `save` its wish that the state be saved.
        Returns a handle for `read`, without waiting for the device.
        Raises `RuntimeError` for a buffer of another size, `IndexError` for a token outside the vocabulary.
        """
        config = self._config
        shape_ABS = (config.accumulation, config.local_batch, config.sequence_length + 1)
        inputs_A, targets = self._inputs(self._on_device(tokens, shape_ABS))

        self._optimizer.zero_grad()
        statistics = self._accumulate_gradients(inputs_A[0])
        for inputs in inputs_A[1:]:
            statistics = statistics + self._accumulate_gradients(inputs)
        totals = self._reduce_totals(statistics, self._wishes[int(stop), int(save)])
        divisor = None
        if config.gradient_clip is not None:
            # Never below one: gradients within the bound stay as they are.
            divisor = (totals[2].sqrt() / config.gradient_clip).clamp(min=1.0)
        self._optimizer.step(learning_rate, divisor)
        if config.model.experts is None:
            return totals, targets
        pairs_LE, left_out_LE = totals[4:].view(config.model.num_layers, 2, -1).unbind(dim=1)
        self._micro_step.balance(pairs_LE)
        return torch.cat((totals[:4], balancing.summary(pairs_LE, left_out_LE))), targets

    def evaluate(self, tokens: Any, stop: bool = False) -> tuple[Tensor, Tensor]:
        """Run the forward pass alone on this rank's part of a batch, and change nothing.

        `tokens` is a writable buffer of int32 [local_batch, sequence_length + 1], viewed and not kept, which
        may be marked (see `models/marks.py`), loss mask or not. `stop` is this rank's wish to evaluate no
        more.
        Returns a handle for `read_evaluation`. Raises as `step` does.
        """
        shape_BS = (self._config.local_batch, self._config.sequence_length + 1)
        inputs = self._micro_step.cut(self._on_device(tokens, shape_BS), is_masked=True)
        cross_entropy = self._micro_step.evaluate(inputs)
        world = self._mesh.world
        sums = torch.cat((cross_entropy.view(1), self._wishes[int(stop), 0, :1]))
        return world.all_reduce(sums), world.all_reduce(count_targets(inputs[1]))

    def read_evaluation(self, handle: tuple[Tensor, Tensor]) -> tuple[float, int, bool]:
        """Wait for an evaluation and return (sum of the cross entropy in nats, number of targets, stop
        agreed), over all ranks and equal on them.
        """
        sums, targets = handle
        cross_entropy, stops = sums.tolist()
        return cross_entropy, targets.item(), stops > 0

    def _on_device(self, tokens: Any, shape: tuple[int, ...]) -> Tensor:
        """A view of a buffer of int32, or a copy where the device has memory of its own."""
        return torch.frombuffer(tokens, dtype=torch.int32).view(shape).to(self._device.torch_device)

    def _inputs(self, tokens_ABS: Tensor) -> tuple[list[list[Tensor | None]], Tensor | None]:
        """For each micro-step of this rank what `MicroStep.forward` takes; and, with a loss mask, the number
        of targets in the global batch, which is among it.
        """
        is_masked = self._config.loss_mask
        inputs_A = [self._micro_step.cut(tokens_BS, is_masked) for tokens_BS in tokens_ABS]
        if not is_masked:
            return inputs_A, None
        # Of what was cut: each target is on one rank.
        own_A = torch.stack([count_targets(targets_BN) for _, targets_BN, *_ in inputs_A])
        targets = self._mesh.world.all_reduce(own_A.sum(dtype=torch.int32))
        return [[*inputs, targets] for inputs in inputs_A], targets

    def _accumulate_gradients(self, inputs: list[Tensor | None]) -> Tensor:
        """Add one micro-step's gradients, summed over all ranks, to the shards; returns this rank's
        statistics (see `MicroStep.forward`).
        """
        if self._compiled is not None:
            return self._compiled(inputs)
        objective, statistics = self._micro_step.forward(*inputs)
        objective.backward()
        return statistics

    def _reduce_totals(self, statistics: Tensor, wishes: Tensor) -> Tensor:
        """[ranks that wish to stop, ranks that wish to save, squared gradient norm, loss, loads of a mixture
        (L * 2 * E)], summed over all ranks in one message.

        Replicas hold equal gradients, so each contributes its share: every element of the model is counted
        once.
        """
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in self._parameters])
        square = (norm.square() / self._mesh.replicate.degree).view(1)
        return self._mesh.world.all_reduce(torch.cat((wishes, square, statistics)))

    def read(
        self, handle: tuple[Tensor, Tensor | None]
    ) -> tuple[float, float, bool, int | None, tuple[list[float], int, float, float] | None, bool]:
        """Wait for a step and return (loss, gradient norm, stop agreed, targets, experts, save agreed), the
        same on all ranks.

        Loss in nats per target, mean over the global batch, before the update; norm over all parameters,
        before clipping; stop and save are true on all ranks at the same step, if one of them has wished it.
        Targets, with a loss mask: how many the global batch had; with none of them the loss is 0.
        Experts, of a mixture: (load of each, pairs left out, largest load, smallest load); see
        `balancing.summary`.
        """
        totals, counted = handle
        stops, saves, square, loss, *experts = totals.tolist()
        targets = None if counted is None else counted.item()
        if not experts:
            return loss, math.sqrt(square), stops > 0, targets, None, saves > 0
        left_out, largest, smallest, *load = experts
        of_experts = (load, round(left_out), largest, smallest)
        return loss, math.sqrt(square), stops > 0, targets, of_experts, saves > 0

    def state(self) -> list[StatePart]:
        """The parts of the run's state that this rank holds, as they are after the last step."""
        return parts(self.model, self.placements, self._optimizer, self._micro_step.balance_LE, self._mesh)

    def resume(self, state: list[StatePart], step: int) -> None:
        """Go on after step `step`, with what is now in the memory of the host of the parts of `state`."""
        for part in state:
            part.take_back()
        self._optimizer.resume(step)

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
