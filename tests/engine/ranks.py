"""Rank processes for tests: this module drives them, and as a program it is one of them.

A job is one life of an engine. Every job gets a new world: a new port, a new store, new process groups.
"""

import contextlib
import dataclasses
import math
import os
import pickle
import resource
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any

AXES = ("replicate", "shard", "context", "tensor")
"""The degrees of these make up the world."""

JOB_SECONDS = 60
"""A job that takes longer has hung, and that is a failure."""

COMPILE_SECONDS = 400
"""The same, of a job that compiles."""


SETTLING_SECONDS = 5
"""How long memory may take to become free that a thread of a library still holds."""


@dataclass
class Job:
    """What one rank shall do. The lists have one item per step."""

    config: dict
    tokens: list[bytes]
    learning_rates: list[float]
    stops: list[bool]
    record_collectives: bool = False
    count_collectives: bool = False
    evaluations: dict[int, bytes] = field(default_factory=dict)
    """What to evaluate before a step, by its index; one more than there are steps is behind the last."""
    stops_evaluations: bool = False
    """Whether this rank wishes to evaluate no more."""
    weigh: bool = False
    """Whether to find out what evaluations keep in memory."""
    fingerprint: bool = False
    """Whether to trace a micro-step."""
    memory_mib: int | None = None
    """What the engine may take, if that is limited."""
    timeout_seconds: float = 30
    resume: tuple[dict, int] | None = None
    """Whole tensors as matrices, by name, that the engine goes on with, and the steps that are done."""
    smallest_message: int | None = 0
    """In place of the device's, with which a model this small would travel in one message; None keeps it."""


@dataclass
class Outcome:
    """What one rank has seen; tensors are this rank's shards, by parameter name."""

    steps: list[tuple] = field(default_factory=list)
    """(loss, gradient norm, stop agreed, targets, experts)"""
    evaluations: dict[int, tuple[float, int]] = field(default_factory=dict)
    """(sum of the cross entropy, targets), by the index of the step behind."""
    evaluation_stops: dict[int, bool] = field(default_factory=dict)
    """Whether ranks have agreed to evaluate no more."""
    alive: list[int] = field(default_factory=list)
    """Bytes of tensors that the last evaluation has made: at the start of each block, and afterwards."""
    initial: dict = field(default_factory=dict)
    final: dict = field(default_factory=dict)
    gradients: dict = field(default_factory=dict)
    """Of the last step, after clipping."""
    first_gradients: dict = field(default_factory=dict)
    """Of the first step, after clipping."""
    state: list[tuple] = field(default_factory=list)
    """(name, shape, rows, columns, whether this rank saves it) of each part of the state."""
    first_state: list[tuple] = field(default_factory=list)
    """(name, rows, columns, elements) of each part of the state, before the first step."""
    last_state: list[tuple] = field(default_factory=list)
    """The same, after the last step."""
    balance: Any = None
    """What the experts of the next step would be balanced by."""
    layouts: dict = field(default_factory=dict)
    places: dict = field(default_factory=dict)
    """Of each parameter, which part and which shard of it this rank holds."""
    graph: bytes | None = None
    """Fingerprint of a traced micro-step, if it was asked for."""
    description: dict = field(default_factory=dict)
    collectives: list = field(default_factory=list)
    """(operator, group, elements sent) of the last step, in order, if recorded."""
    counted: dict = field(default_factory=dict)
    """How often the last step called each collective, if counted; of a compiled step too."""
    leaked_sockets: int = 0
    """Open after the engine was closed, and not before."""


class RankPool:
    """Processes with torch already imported, that run jobs together."""

    def __init__(self, size: int):
        self._members: list[tuple[subprocess.Popen, Connection]] = []
        for _ in range(size):
            ours, theirs = socket.socketpair()
            command = [sys.executable, __file__, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
            theirs.close()
            self._members.append((process, Connection(ours.detach())))

    def __enter__(self) -> "RankPool":
        return self

    def __exit__(self, *_exception) -> None:
        for process, connection in self._members:
            connection.close()  # which a member takes as the order to end
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Run one job per rank; raises what the first failing rank has raised."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))  # bound, and no more: the store of rank 0 shall listen
        port = listener.getsockname()[1]
        for rank, (job, (process, connection)) in enumerate(zip(jobs, self._members, strict=False)):
            hands_over = rank == 0 and math.prod(job.config["mesh"][axis] for axis in AXES) > 1
            connection.send_bytes(pickle.dumps((job, rank, port, hands_over)))
            if hands_over:
                send_handle(connection, listener.fileno(), process.pid)
        listener.close()
        limit = COMPILE_SECONDS if jobs[0].config["compile"] else JOB_SECONDS
        deadline = time.monotonic() + limit
        outcomes = [self._receive(connection, deadline) for _, connection in self._members[: len(jobs)]]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    def _receive(self, connection: Connection, deadline: float) -> Outcome | BaseException:
        if not connection.poll(max(0.0, deadline - time.monotonic())):
            for process, _ in self._members:
                process.kill()
            raise TimeoutError("a rank has not finished its job in time")
        return pickle.loads(connection.recv_bytes())


def run_job(job: Job, rank: int, port: int, listen_fd: int | None) -> Outcome:
    """Live through one engine."""
    import json

    import torch
    from titan_tpu import device, engine

    config = job.config

    def device_by_name(name):
        chosen = device.device_by_name(name)
        if job.smallest_message is None:
            return chosen
        return dataclasses.replace(chosen, smallest_message=job.smallest_message)

    engine.device_by_name = device_by_name
    rendezvous = {
        "host": "127.0.0.1",
        "port": port,
        "listen_fd": listen_fd,
        "timeout_seconds": job.timeout_seconds,
    }
    sockets = _open_sockets() - (listen_fd is not None)  # the engine takes that one over
    with _memory_limit(job.memory_mib):
        ours = engine.Engine(json.dumps(config), rank, json.dumps(rendezvous))
    if job.resume is not None:
        wholes, step = job.resume
        state = ours.state()
        for part in state:
            cut = wholes[part.name][slice(*part.rows), slice(*part.columns)]
            part.host.copy_(cut.reshape(part.host.shape))
        ours.resume(state, step)
    outcome = Outcome(
        initial={name: p.detach().clone() for name, p in ours.model.named_parameters()},
        layouts={name: layout for name, (layout, _) in ours.placements.items()},
        places={name: (part.axis.index, part.shard.index) for name, (_, part) in ours.placements.items()},
        description=ours.describe(),
        first_state=_elements(ours),
    )
    for index in range(len(job.tokens) + 1):
        if index in job.evaluations:
            outcome.alive = []
            blocks = ours.model.model.layers
            weighing = _weighing(blocks, outcome.alive) if job.weigh else contextlib.nullcontext()
            with weighing:
                stop = job.stops_evaluations
                handle = ours.evaluate(bytearray(job.evaluations[index]), stop)
                *sums, outcome.evaluation_stops[index] = ours.read_evaluation(handle)
                outcome.evaluations[index] = tuple(sums)
                del handle
        if index == len(job.tokens):
            break
        tokens, learning_rate, stop = job.tokens[index], job.learning_rates[index], job.stops[index]
        outcome.collectives = []
        recorder = _recorder(outcome.collectives) if job.record_collectives else contextlib.nullcontext()
        counter = _counter(outcome.counted) if job.count_collectives else contextlib.nullcontext()
        with recorder, counter:
            handle = ours.step(bytearray(tokens), learning_rate, stop)
        *result, _ = ours.read(handle)
        outcome.steps.append(tuple(result))
        if len(outcome.steps) == 1:
            outcome.first_gradients = _gradients(ours.model)
    if job.fingerprint:
        from titan_tpu import compiled

        tokens_ABS = torch.frombuffer(bytearray(job.tokens[0]), dtype=torch.int32).view(
            config["accumulation"], config["local_batch"], -1
        )
        inputs = ours._inputs(tokens_ABS)[0][0]
        outcome.graph = compiled.fingerprint(compiled.trace(ours.model, ours._micro_step, inputs))
    outcome.final = {name: p.detach().clone() for name, p in ours.model.named_parameters()}
    outcome.gradients = _gradients(ours.model)
    outcome.state = [
        (part.name, part.shape, part.rows, part.columns, part.is_saved_here) for part in ours.state()
    ]
    outcome.last_state = _elements(ours)
    outcome.balance = ours._micro_step.balance_LE
    ours.close()
    del ours
    outcome.leaked_sockets = _open_sockets() - sockets
    return outcome


def _elements(engine) -> list[tuple]:
    return [(part.name, part.rows, part.columns, part.host.clone()) for part in engine.state()]


@contextlib.contextmanager
def _weighing(blocks, log: list):
    """Appends to `log` the bytes of all tensors made within this context: at the start of each of the blocks,
    and at the end.
    """
    import gc

    import torch

    def alive() -> int:
        # By type: to ask an arbitrary object for its class can run its code.
        tensors = [x for x in gc.get_objects() if type(x) in (torch.Tensor, torch.nn.Parameter)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def weigh(expected: int):
        # A thread of gloo lets go of a message some time after it has arrived: what stays is what counts.
        deadline = time.monotonic() + SETTLING_SECONDS
        while (now := alive()) > expected and time.monotonic() < deadline:
            time.sleep(0.01)
        log.append(now)

    def before_block(*_):
        weigh(2 * log[0] if log else sys.maxsize)

    hooks = [block.register_forward_pre_hook(before_block) for block in blocks]
    gc.collect()
    gc.freeze()  # what is frozen is not listed
    try:
        yield
        weigh(100)
    finally:
        gc.unfreeze()
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _memory_limit(mib: int | None):
    """Within this context the process gets no more than so much more memory."""
    if mib is None:
        yield
        return
    status = Path("/proc/self/status").read_text()
    used_kib = int(status.partition("VmData:")[2].split()[0])
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, ((used_kib + mib * 1024) * 1024, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def _gradients(model) -> dict:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def _open_sockets() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))


def _recorder(log: list):
    """A dispatch mode that appends every collective to `log`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            space, _, name = operator._schema.name.partition("::")
            if space == "_c10d_functional" and name != "wait_tensor":
                log.append((name, args[-1], args[0].numel()))
            return operator(*args, **(kwargs or {}))

    return Recorder()


@contextlib.contextmanager
def _counter(counts: dict):
    """Counts collectives where they arrive, however they were called."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        yield
    counts.clear()
    for event in profiler.key_averages():
        space, _, name = event.key.partition("::")
        if space == "_c10d_functional" and name != "wait_tensor":
            # A compiler calls `all_gather_into_tensor_out` or `all_reduce_` in place of the operator without.
            name = name.removesuffix("_out").removesuffix("_")
            counts[name] = counts.get(name, 0) + event.count


def _serve(connection: Connection) -> None:
    import titan_tpu.engine  # noqa: F401  (the import that the pool is there to share)

    while True:
        try:
            job, rank, port, handed_over = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        listen_fd = recv_handle(connection) if handed_over else None
        try:
            outcome = run_job(job, rank, port, listen_fd)
        except Exception as error:  # the test decides what it means
            outcome = error
        connection.send_bytes(pickle.dumps(outcome))


if __name__ == "__main__":
    # Jobs are pickled as classes of the module `ranks`, not of `__main__`.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import ranks

    ranks._serve(Connection(int(sys.argv[1])))
