"""A mixture of experts in place of a feed-forward layer.

Tensor names end in their dimensions:
    N tokens of this rank   D hidden size   E experts   F inner width of an expert   K experts of a token
    P pairs of a token and one of its experts (N * K)

All shapes are static, whatever the router decides: pairs are sorted by expert and multiplied group by
group, so no token is dropped and no expert computes padding.
"""

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

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """x_ND -> (weights_NK in float32, experts_NK). Probabilities are float32: in bfloat16 experts
        would tie.
        """
        probabilities_NE = F.linear(x_ND, self.weight).float().softmax(dim=-1)
        weights_NK, experts_NK = probabilities_NE.topk(self.experts_per_token, dim=-1)
        return weights_NK / weights_NK.sum(dim=-1, keepdim=True), experts_NK


class Experts(nn.Module):
    """E SwiGLU layers, stacked as Hugging Face has them in memory: the gate's rows before those of `up`."""

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

    def forward(self, x_PD: Tensor, ends_E: Tensor) -> Tensor:
        """x_PD, sorted by expert -> y_PD; expert e has the rows before ends_E[e] (int32) and not before e
        - 1's.
        """
        gate_up_P2F = torch._grouped_mm(x_PD, self.gate_up_proj.transpose(1, 2), offs=ends_E)
        gate_PF, up_PF = gate_up_P2F.chunk(2, dim=-1)
        return torch._grouped_mm(F.silu(gate_PF) * up_PF, self.down_proj.transpose(1, 2), offs=ends_E)


class SparseMoe(nn.Module):
    """Sends each token through K of E experts and adds up what they say."""

    def __init__(self, config: ModelConfig, output_std: float):
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config, output_std)
        self.num_experts = config.experts.num_experts

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD -> x_BTD."""
        x_ND = x_BTD.flatten(0, 1)
        weights_NK, experts_NK = self.gate(x_ND)
        # Stable, so that the order of the sums does not depend on the sorting algorithm.
        sorted_P, order_P = experts_NK.flatten().sort(stable=True)
        ends_E = torch.searchsorted(
            sorted_P, torch.arange(self.num_experts, device=x_ND.device), right=True, out_int32=True
        )
        y_PD = self.experts(x_ND[order_P // experts_NK.shape[1]], ends_E)
        # Back to the order of tokens: each row of the result is written once.
        y_NKD = torch.empty_like(y_PD).index_copy(0, order_P, y_PD).view(*experts_NK.shape, -1)
        y_ND = (y_NKD * weights_NK.unsqueeze(-1).to(y_NKD.dtype)).sum(dim=1)
        return y_ND.view_as(x_BTD)
