"""The engine: one object per rank that Rust drives step by step.

Dimensions: A micro-steps, B sequences of this rank, T tokens of a sequence, V vocabulary; `tokens_ABS` has S
= T + 1.
"""

import math
from typing import Any

import torch
from torch import Tensor

from titan_tpu.config import EngineConfig, Rendezvous
from titan_tpu.device import device_by_name
from titan_tpu.models import build_model
from titan_tpu.models.initialization import initial_rows
from titan_tpu.optimizers import build_optimizer
from titan_tpu.parallel import process_group
from titan_tpu.parallel.mesh import build_mesh
from titan_tpu.parallel.remat import rematerialise
from titan_tpu.parallel.simple_fsdp import Precision, shard_parameters


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
        self.layouts = shard_parameters(
            self.model,
            self._mesh,
            Precision(getattr(torch, config.precision.compute), getattr(torch, config.precision.reduce)),
            self._device,
            lambda module, name, shape, start, stop: initial_rows(
                module, name, shape, config.seed, start, stop
            ),
            recomputes_blocks=config.remat != "none",
        )
        rematerialise(self.model, config.remat)
        self._parameters = list(self.model.parameters())
        self._optimizer = build_optimizer(self._parameters, config.optimizer)

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

        for parameter in self._parameters:
            parameter.grad = None
        loss = torch.zeros((), device=self._device.torch_device)
        for tokens_BS in tokens_ABS:
            loss += self._accumulate_gradients(tokens_BS)
        totals = self._reduce_totals(loss, stop)
        if config.gradient_clip is not None:
            norm = totals[1].sqrt()
            torch.nn.utils.clip_grads_with_norm_(self._parameters, config.gradient_clip, norm)
        self._optimizer.step(learning_rate)
        return totals

    def _accumulate_gradients(self, tokens_BS: Tensor) -> Tensor:
        """Add one micro-step's gradients, summed over all ranks, to the shards; returns this rank's loss."""
        loss = self.model(tokens_BS[:, :-1], tokens_BS[:, 1:]) / self._config.global_tokens
        loss.backward()
        return loss.detach()

    def _reduce_totals(self, loss: Tensor, stop: bool) -> Tensor:
        """[loss, squared gradient norm, ranks that wish to stop], summed over all ranks in one message.

        Replicas hold equal gradients, so each contributes its share: every element of the model is counted
        once.
        """
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in self._parameters])
        square = norm.square() / self._mesh.replicate.degree
        return self._mesh.world.all_reduce(torch.stack((loss, square, loss.new_tensor(float(stop)))))

    def read(self, handle: Tensor) -> tuple[float, float, bool]:
        """Wait for a step and return (loss, gradient norm, stop agreed), equal on all ranks.

        Loss in nats per token, mean over the global batch, before the update; norm over all parameters,
        before clipping; stop is true on all ranks at the same step as soon as one of them has wished it.
        """
        loss, square, stops = handle.tolist()
        return loss, math.sqrt(square), stops > 0

    def describe(self) -> dict[str, int]:
        """Parameters of the model, elements that this rank holds (padding included), and threads in use."""
        return {
            "parameters_total": sum(layout.shape.numel() for layout in self.layouts.values()),
            "parameters_local": sum(parameter.numel() for parameter in self._parameters),
            "threads": torch.get_num_threads(),
        }

    def close(self) -> None:
        """Leave the world. The engine cannot be used afterwards."""
        if self._config.mesh.world > 1:
            process_group.leave()
