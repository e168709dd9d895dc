"""One forward pass of a rank: from the tokens of a micro-step to what is minimised.

Dimensions: B sequences, S tokens that are read of each, T predicted (S - 1), N of these on this rank, L
layers with experts, E experts of each.
"""

import torch
from torch import Tensor, nn

from titan_tpu import balancing
from titan_tpu.config import EngineConfig
from titan_tpu.models.attention import attention_mask, documents
from titan_tpu.models.decoder import Sums
from titan_tpu.models.experts import Router
from titan_tpu.models.marks import read_marks
from titan_tpu.parallel.context_parallel import own_positions
from titan_tpu.parallel.mesh import Mesh


class MicroStep:
    """Cuts this rank's part out of sequences, and runs the model on it."""

    def __init__(self, model: nn.Module, config: EngineConfig, mesh: Mesh, device: torch.device):
        self._model = model
        self._config = config
        self._mesh = mesh
        positions_T = own_positions(config.sequence_length, mesh.context, device)
        self._own_N = positions_T.chunk(mesh.tensor.degree)[mesh.tensor.index]
        self._positions_T = positions_T if mesh.context.degree > 1 else None
        self._routers = [module for module in model.modules() if isinstance(module, Router)]
        experts = config.model.experts
        self.balance_LE = None
        if experts is not None:
            self.balance_LE = balancing.initial(experts, config.model.num_layers, device)
        """What this step's experts are balanced by; part of the state of a run."""

    def cut(self, tokens_BS: Tensor, is_masked: bool) -> list[Tensor | None]:
        """What `forward` takes first, of this rank: tokens_BN, targets_BN, positions of the queries,
        documents_BT, and what the experts are balanced by.

        With `is_masked` tokens may be marked (see `models/marks.py`). All that differs between ranks is in
        these tensors: what is traced of `forward` does not.
        """
        read_BS, asked_BS = read_marks(tokens_BS) if is_masked else (tokens_BS, tokens_BS)
        tokens_BT, targets_BT = read_BS[:, :-1], asked_BS[:, 1:]
        end = self._config.document_end
        documents_BT = None if end is None else documents(tokens_BT, end)
        if self._mesh.context.degree * self._mesh.tensor.degree > 1:
            tokens_BT, targets_BT = (x.index_select(1, self._own_N) for x in (tokens_BT, targets_BT))
        return [tokens_BT, targets_BT, self._positions_T, documents_BT, self.balance_LE]

    def balance(self, pairs_LE: Tensor) -> None:
        """Balance the next step by the loads of this one, over all ranks."""
        if self.balance_LE is not None:
            self.balance_LE = balancing.following(self._config.model.experts, self.balance_LE, pairs_LE)

    def forward(
        self,
        tokens_BN: Tensor,
        targets_BN: Tensor,
        positions_T: Tensor | None,
        documents_BT: Tensor | None,
        balance_LE: Tensor | None,
        targets: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The objective, a scalar, and statistics without a gradient: the cross entropy and, of a mixture,
        for each layer and expert the pairs that chose it and those left out: [1 + L * 2 * E].

        Both are this rank's addends: summed over ranks and micro-steps they belong to the global batch.
        `targets`, a scalar, is the number of targets in the global batch where tokens may be marked; None
        where every token but the first of a sequence is one.
        """
        config, experts = self._config, self._config.model.experts
        sums = self._sums(
            tokens_BN,
            targets_BN,
            positions_T,
            documents_BT,
            balance_LE,
            z_loss=config.z_loss,
            is_masked=targets is not None,
        )
        # A global batch without a target has a sum of 0, and so a loss and gradients of 0.
        divisor = config.global_tokens if targets is None else targets.clamp(min=1)
        objective = sums.objective / divisor
        statistics = (sums.cross_entropy / divisor).reshape(1)
        if experts is None:
            return objective, statistics
        if experts.load_balancing == "auxiliary-loss":
            probability_LE = sums.loads_L3E[:, 0]
            # Every token is routed, a target or not.
            loss = balancing.auxiliary_loss(probability_LE, balance_LE, experts, config.global_tokens)
            objective = objective + experts.load_balancing_coefficient * loss
        return objective, torch.cat((statistics, sums.loads_L3E[:, 1:].detach().flatten()))

    @torch.no_grad()
    def evaluate(self, inputs: list[Tensor | None]) -> Tensor:
        """Sum of the cross entropy in nats over this rank's targets, a scalar, for the result of `cut` with
        marks. Changes nothing.
        """
        return self._sums(*inputs, z_loss=0.0, is_masked=True).cross_entropy

    def _sums(
        self,
        tokens_BN: Tensor,
        targets_BN: Tensor,
        positions_T: Tensor | None,
        documents_BT: Tensor | None,
        balance_LE: Tensor | None,
        *,
        z_loss: float,
        is_masked: bool,
    ) -> Sums:
        """What the model says of this rank's tokens."""
        length = self._config.sequence_length
        is_causal = positions_T is None and documents_BT is None
        if positions_T is None:
            positions_T = torch.arange(length, device=tokens_BN.device)
        mask = None if is_causal else attention_mask(positions_T, length, documents_BT)
        experts = self._config.model.experts
        if experts is not None and experts.load_balancing == "bias":
            for router, bias_E in zip(self._routers, balance_LE.unbind(), strict=True):
                router.bias_E = bias_E
        return self._model(tokens_BN, targets_BN, positions_T, mask, z_loss, is_masked)
