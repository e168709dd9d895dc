"""A micro-step as one compiled program.

The forward and the backward pass are traced together into one graph of tensor operators, collectives among
them, and that graph is what torch.compile gets. Tracing below autograd, instead of letting Dynamo read the
Python code, keeps what the eager step does: which weights are gathered again, what is computed again, in
which order gradients travel. There is nothing in the graph that could break it, and nothing that differs
between ranks: they compile the same bytes, which a TPU needs in order to keep collectives inside a program,
and so one rank compiles and the others find its result in the cache.
"""

import hashlib
from datetime import timedelta

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from titan_tpu.micro_step import MicroStep
from titan_tpu.parallel import process_group
from titan_tpu.parallel.mesh import Axis
from titan_tpu.parallel.simple_fsdp import replaced

COMPILING_LIMIT = timedelta(hours=1)
"""Time for one rank to compile while the others wait."""


def trace(model: nn.Module, micro_step: MicroStep, inputs: list[Tensor | None]) -> GraphModule:
    """The graph of a forward and backward pass: (shards, inputs that are not None) -> (statistics, gradients
    of the shards).

    `inputs` are those of `MicroStep.forward`; their values do not matter, nor those of weights.
    """
    parameters = list(model.parameters())

    def forward_and_backward(*tensors: Tensor) -> list[Tensor]:
        shards = [shard.detach().requires_grad_() for shard in tensors[: len(parameters)]]
        given = iter(tensors[len(parameters) :])
        arguments = [None if value is None else next(given) for value in inputs]
        with torch.enable_grad(), replaced(model, dict(zip(parameters, shards, strict=True))):
            objective, statistics = micro_step.forward(*arguments)
            return [statistics, *torch.autograd.grad(objective, shards)]

    shards = [parameter.detach() for parameter in parameters]
    return make_fx(forward_and_backward, tracing_mode="fake")(*shards, *present(inputs))


def present(inputs: list[Tensor | None]) -> list[Tensor]:
    """Those that are not None."""
    return [value for value in inputs if value is not None]


def fingerprint(graph: GraphModule) -> bytes:
    """16 bytes that are equal for equal graphs, on all ranks and in all processes."""
    graph_hash = hashlib.sha256(graph.code.encode())
    for name, constant in sorted(graph.named_buffers()):
        graph_hash.update(f"{name} {constant.dtype} {constant.flatten().tolist()}".encode())
    return graph_hash.digest()[:16]


class CompiledMicroStep:
    """Runs forward and backward passes as one program."""

    def __init__(
        self,
        model: nn.Module,
        micro_step: MicroStep,
        inputs: list[Tensor | None],
        world: Axis,
        compiler: str,
    ):
        """Compile for inputs of these shapes, and run the program once: then all steps take equally long.
        Ranks must do so together; raises `RuntimeError` if they would not run the same program.
        """
        self._parameters = list(model.parameters())
        self._shards = [parameter.detach() for parameter in self._parameters]
        self._compiler = compiler
        graph = trace(model, micro_step, inputs)
        require_one_program(graph, world, inputs[0].device)
        self._program = torch.compile(graph, backend=self._compile, fullgraph=True, dynamic=False)
        with torch.no_grad():
            self._program(*self._shards, *present(inputs))

    @torch.no_grad()
    def __call__(self, inputs: list[Tensor | None]) -> Tensor:
        """Add this micro-step's gradients, summed over all ranks, to the shards; returns its statistics."""
        statistics, *gradients = self._program(*self._shards, *present(inputs))
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
        return statistics

    def _compile(self, graph: GraphModule, arguments: list[Tensor]):
        """What torch.compile calls with the graph, before anything runs."""
        backend = torch._dynamo.lookup_backend(self._compiler)
        return process_group.rank_zero_first("compiled", COMPILING_LIMIT, lambda: backend(graph, arguments))


def require_one_program(graph: GraphModule, world: Axis, device: torch.device) -> None:
    """Raise `RuntimeError` if some rank has traced another graph: it would wait for messages that never
    come.
    """
    own = torch.frombuffer(bytearray(fingerprint(graph)), dtype=torch.int64).to(device)
    every = world.all_gather(own).view(-1, len(own)).tolist()
    other = [rank for rank, row in enumerate(every) if row != every[0]]
    if other:
        raise RuntimeError(f"ranks {other} have traced another program than rank 0")
