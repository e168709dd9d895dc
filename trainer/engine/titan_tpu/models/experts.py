"""A mixture of experts in place of a feed-forward layer.

Tensor names end in their dimensions:
    N tokens of this rank   D hidden size   E experts   F inner width of an expert   K experts of a token
    P pairs of a token and one of its experts (N * K)

All shapes are static, whatever the router decides: pairs are sorted by expert and multiplied group by
group, so no token is dropped and no expert computes padding.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_tpu.config import ModelConfig


class Router(nn.Module):
    """Chooses K experts for each token, with weights that add up to one (Qwen3, arXiv 2505.09388)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.experts_per_token = config.experts.experts_per_token
        self.weight = nn.Parameter(torch.empty(config.experts.num_experts, config.hidden_size))
        self.init_std = config.init_std
        self.bias_E: Tensor | None = None
        """Added to the probabilities where experts are chosen, and not where they are weighed; see
        `balancing.py`.
        """

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_ND -> (probabilities_NE, weights_NK, experts_NK), the first two in float32: in bfloat16 experts
        would tie.
        """
        probabilities_NE = F.linear(x_ND, self.weight).float().softmax(dim=-1)
        scores_NE = probabilities_NE if self.bias_E is None else probabilities_NE.detach() + self.bias_E
        experts_NK = scores_NE.topk(self.experts_per_token, dim=-1).indices
        weights_NK = probabilities_NE.gather(1, experts_NK)
        return probabilities_NE, weights_NK / weights_NK.sum(dim=-1, keepdim=True), experts_NK


class Experts(nn.Module):
    """E SwiGLU layers, stacked as Hugging Face has them in memory: the gate's rows before those of `up`."""

    fused: ClassVar = {"gate_up_proj": 2}
    """Matrices that an expert has in one."""

    def __init__(self, config: ModelConfig, output_std: float):
        super().__init__()
        experts, hidden, inner = (
            config.experts.num_experts,
            config.hidden_size,
            config.experts.intermediate_size,
        )
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, inner))
        self.init_std = {"gate_up_proj": config.init_std, "down_proj": output_std}

    def forward(self, x_ND: Tensor, experts_P: Tensor) -> Tensor:
        """x_ND, where each row has P / N experts in `experts_P` -> y_PD, what each of these says.

        A pair whose expert is E has none: what comes back in its place means nothing, and its gradient
        neither.
        """
        # Stable, so that the order of the sums does not depend on the sorting algorithm.
        sorted_P, order_P = experts_P.sort(stable=True)
        each_E = torch.arange(self.gate_up_proj.shape[0], device=x_ND.device, dtype=sorted_P.dtype)
        ends_E = torch.searchsorted(sorted_P, each_E, right=True, out_int32=True)
        x_PD = x_ND[order_P // (len(experts_P) // len(x_ND))]
        gate_up_P2F = torch._grouped_mm(x_PD, self.gate_up_proj.transpose(1, 2), offs=ends_E)
        gate_PF, up_PF = gate_up_P2F.chunk(2, dim=-1)
        y_PD = torch._grouped_mm(F.silu(gate_PF) * up_PF, self.down_proj.transpose(1, 2), offs=ends_E)
        # Back to the order of pairs: each row of the result is written once.
        return torch.empty_like(y_PD).index_copy(0, order_P, y_PD)


class SparseMoe(nn.Module):
    """Sends each token through K of E experts and adds up what they say."""

    def __init__(self, config: ModelConfig, output_std: float):
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config, output_std)

    def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """x_BTD -> x_BTD and load_3E, sums over the tokens that are here, in float32: of the probability of
        each expert, of the tokens that chose it, and of those of them that were left out for lack of
        capacity. The first row alone has a gradient.
        """
        x_ND = x_BTD.flatten(0, 1)
        probabilities_NE, weights_NK, experts_NK = self.gate(x_ND)
        y_NKD, left_out_NK = self.ask_experts(x_ND, weights_NK, experts_NK)
        y_ND = (y_NKD * weights_NK.unsqueeze(-1).to(y_NKD.dtype)).sum(dim=1)
        experts_P = experts_NK.flatten()
        count_E = probabilities_NE.new_zeros(probabilities_NE.shape[1])
        chosen_E, left_out_E = (
            count_E.scatter_add(0, experts_P, pairs_NK.flatten().to(count_E.dtype))
            for pairs_NK in (torch.ones_like(experts_NK), left_out_NK)
        )
        load_3E = torch.stack((probabilities_NE.sum(dim=0), chosen_E, left_out_E))
        return y_ND.view_as(x_BTD), load_3E

    def ask_experts(self, x_ND: Tensor, weights_NK: Tensor, experts_NK: Tensor) -> tuple[Tensor, Tensor]:
        """What each of its experts says of a token, y_NKD, and which were not asked, bool: here none."""
        y_PD = self.experts(x_ND, experts_NK.flatten())
        return y_PD.view(*experts_NK.shape, -1), torch.zeros_like(experts_NK, dtype=torch.bool)
