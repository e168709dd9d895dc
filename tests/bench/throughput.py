"""How fast titan-tpu trains, against a plain PyTorch loop, compiled, on two processes; what its loop costs.

    python3 tests/bench/throughput.py [path of titan-tpu] [--rounds N] [--steps N] [--only WORDS]

Takes about a quarter of an hour on a quiet machine of two cores. This Python must have torch and
transformers; titan-tpu runs on it too. A table goes to stderr, one JSON object to stdout.

Contenders take turns, each in processes of its own, and are compared round by round, by the median of their
steps after warming up. A run that had less than nearly the whole machine to itself is repeated.

The peer is transformers' Llama with torch's fused AdamW, in float32, on the same text, with the same
clipping, batch and number of threads. It has as many targets as the engine, and no cache.
"""

import argparse
import ctypes
import importlib.machinery
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = REPOSITORY / "datasets/shakespeare/shakespeare.txt"
CORES = len(os.sched_getaffinity(0))

COMPARED = {
    "vocab_size": 8192,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_layers": 8,
    "num_heads": 8,
    "num_kv_heads": 4,
}
"""34 M parameters; a step of 1024 tokens takes about a second on two cores."""
SMALL = COMPARED | {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 704, "num_layers": 2}
"""2 M parameters: a step of about 100 ms, beside which the loop around it can be seen."""
SEQUENCE_LENGTH = 256
GLOBAL_BATCH = 4
RECIPE = """version = 1
name = "throughput"
[model]
family = "llama3"
{model}
[hardware]
accelerator = "cpu"
devices = {devices}
threads_per_device = {threads}
[training]
steps = {steps}
sequence_length = {sequence_length}
local_batch = {local_batch}
gradient_clip = 1.0
[optimizer]
learning_rate = 1e-4
[schedule]
kind = "constant"
[compile]
enabled = {compiled}
[data]
sources = [{{ path = "{data}" }}]
"""

WARMUP = 4
"""Steps that are not counted: compilation, first touches of memory."""
LIMIT_SECONDS = 900
LARGEST_FOREIGN_SHARE = 0.05
"""Of the machine's time during a run; beyond it the run is repeated, at most `REPEATS` times."""
REPEATS = 2
LARGEST_WAIT = 60
"""Seconds that a run waits for a quiet machine."""

CONTENDERS = {
    "titan": {},
    "peer": {"peer": True},
    "titan_compiled": {"compiled": True},
    "peer_compiled": {"peer": True, "compiled": True},
    "titan_2_processes": {"devices": 2},
}
RATIOS = {
    "eager_over_peer": ("titan", "peer", 1.0),
    "compiled_over_eager": ("titan_compiled", "titan", 1.0),
    "compiled_over_compiled_peer": ("titan_compiled", "peer_compiled", None),
    "compiled_peer_over_peer": ("peer_compiled", "peer", None),
    "two_processes_over_one": ("titan_2_processes", "titan", None),
}
"""Throughput of the first over that of the second, and the least that is asked of it."""
LARGEST_OVERHEAD = 0.01
"""Of a step of 100 ms."""


def recipe(model: dict, steps: int, devices: int, compiled: bool) -> str:
    """A recipe that uses all cores, whatever the number of devices."""
    return RECIPE.format(
        model="\n".join(f"{key} = {value}" for key, value in model.items()),
        devices=devices,
        threads=CORES // devices,
        steps=steps,
        sequence_length=SEQUENCE_LENGTH,
        local_batch=GLOBAL_BATCH // devices,
        compiled=str(compiled).lower(),
        data=TEXT,
    )


def titan(path: str, folder: str, steps: int, devices: int = 1, compiled: bool = False) -> list[float]:
    """Seconds of each step of `titan-tpu train`."""
    return train(path, folder, recipe(COMPARED, steps, devices, compiled))


def train(path: str, folder: str, text: str, **variables: str) -> list[float]:
    """Run a recipe; returns the seconds of each step, as the run itself records them."""
    Path(folder, "r.toml").write_text(text)
    # The same Python, and so the same torch, as the peer.
    environment = os.environ | {"TITAN_PYTHON": sys.executable} | variables
    command = [path, "train", "r.toml", "--run-dir", "out", "--json"]
    output = run(command, folder, environment)
    records = [json.loads(line) for line in output.splitlines()]
    return [record["step_seconds"] for record in records if "step_seconds" in record]


def peer(folder: str, steps: int, compiled: bool = False) -> list[float]:
    """Seconds of each step of the peer, in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": str(CORES), "MKL_NUM_THREADS": str(CORES)}
    command = [sys.executable, __file__, "--peer", json.dumps([steps, compiled])]
    return json.loads(run(command, folder, environment))


def run(command: list[str], folder: str, environment: dict[str, str]) -> str:
    """What a command prints; its errors are shown if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr}\n{done.stdout[-2000:]}")
    return done.stdout


def train_peer(steps: int, compiled: bool) -> list[float]:
    """The peer's process: a plain training loop."""
    import torch
    import torch.nn.functional as F
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=COMPARED["vocab_size"],
        hidden_size=COMPARED["hidden_size"],
        intermediate_size=COMPARED["intermediate_size"],
        num_hidden_layers=COMPARED["num_layers"],
        num_attention_heads=COMPARED["num_heads"],
        num_key_value_heads=COMPARED["num_kv_heads"],
        max_position_embeddings=SEQUENCE_LENGTH,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).train()

    def loss_of(inputs, targets):
        logits = model(input_ids=inputs, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    if compiled:
        loss_of = torch.compile(loss_of)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8)
    seconds = []
    clock = time.perf_counter()
    for _ in range(steps):
        starts = torch.randint(len(text) - SEQUENCE_LENGTH, (GLOBAL_BATCH,)).tolist()
        tokens = torch.stack([text[start : start + SEQUENCE_LENGTH + 1] for start in starts]).long()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        loss.item(), norm.item()
        now = time.perf_counter()
        seconds.append(now - clock)
        clock = now
    return seconds


def busy_seconds() -> float:
    """Seconds of all cores together in which they did something, since the machine started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of this process and of all those that it has waited for."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                break
        except ChildProcessError:
            break
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def wait_until_quiet() -> None:
    """Return when others take little of the machine for a moment, or after `LARGEST_WAIT` seconds."""
    deadline, moment = time.monotonic() + LARGEST_WAIT, 2.0
    while time.monotonic() < deadline:
        busy = busy_seconds()
        time.sleep(moment)
        if busy_seconds() - busy <= LARGEST_FOREIGN_SHARE * CORES * moment:
            return


def undisturbed(name: str, work) -> tuple[list[float], float]:
    """What `work(folder)` returns, and the share of the machine that others took meanwhile."""
    best = None
    for _ in range(REPEATS + 1):
        wait_until_quiet()
        with tempfile.TemporaryDirectory() as folder:
            started, busy, own = time.monotonic(), busy_seconds(), own_seconds()
            result = work(folder)
            # The host of a run outlives the launcher by a moment.
            time.sleep(1)
            others = busy_seconds() - busy - (own_seconds() - own)
        foreign = max(0.0, others / (CORES * (time.monotonic() - started)))
        if best is None or foreign < best[1]:
            best = result, foreign
        if foreign <= LARGEST_FOREIGN_SHARE:
            break
        print(f"{name}: others took {foreign:.0%} of the machine", file=sys.stderr)
    return best


def compare(path: str, rounds: int, steps: int, names: list[str]) -> dict:
    """Run the contenders in turns; returns their throughputs and the ratios of these, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    foreign: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            options = dict(CONTENDERS[name])
            is_peer = options.pop("peer", False)

            def work(folder: str, is_peer=is_peer, options=options) -> list[float]:
                taken = (peer if is_peer else lambda *a, **o: titan(path, *a, **o))(
                    folder, WARMUP + steps, **options
                )
                return taken[WARMUP:]

            taken, share = undisturbed(name, work)
            seconds[name].append(statistics.median(taken))
            foreign[name].append(share)
            print(f"{name}: {seconds[name][-1]:.3f} s, others {share:.0%}", file=sys.stderr)
    tokens = SEQUENCE_LENGTH * GLOBAL_BATCH
    report = {"tokens_per_second": {}, "step_seconds": seconds, "foreign_share": foreign, "ratios": {}}
    for name in CONTENDERS:
        report["tokens_per_second"][name] = (
            tokens / statistics.median(seconds[name]) if name in names else None
        )
    for ratio, (first, second, required) in RATIOS.items():
        if first not in names or second not in names:
            report["ratios"][ratio] = None
            continue
        values = [b / a for a, b in zip(seconds[first], seconds[second], strict=True)]
        report["ratios"][ratio] = {
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "required": required,
        }
    return report


def can_compile(path: str) -> bool:
    """Whether the engine of this version runs compiled."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "r.toml").write_text(recipe(COMPARED, 1, 1, True))
        command = [path, "train", "r.toml", "--dry-run"]
        environment = os.environ | {"TITAN_PYTHON": sys.executable}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True).returncode == 0


def overhead(path: str, steps: int) -> dict:
    """Milliseconds per step that are not forward, backward, clipping or optimizer, in a run on one device.

    The real binary runs; its worker loads this file and times the engine from inside. What the launcher and
    the threads of a rank do at the same time is given as their CPU time.
    """

    def work(folder: str) -> list[tuple[float, dict]]:
        # An interpreter that the user chose keeps PYTHONPATH, and Python imports `sitecustomize` by itself.
        hook = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import throughput\n"
        Path(folder, "sitecustomize.py").write_text(hook + "throughput.instrument()\n")
        account = Path(folder, "account.json")
        text = recipe(SMALL, WARMUP + steps, 1, False)
        seconds = train(path, folder, text, PYTHONPATH=folder, THROUGHPUT_ACCOUNT=str(account))
        account = json.loads(account.read_text())
        return [seconds, account]

    (seconds, account), foreign = undisturbed("overhead", work)
    rows = list(zip(seconds, account["engine"], account["mathematics"], strict=True))[WARMUP:]
    total = statistics.median(whole - mathematics for whole, _, mathematics in rows)
    return {
        "step_ms": 1e3 * statistics.median(seconds[WARMUP:]),
        "rust_ms": 1e3 * statistics.median(whole - engine for whole, engine, _ in rows),
        "python_ms": 1e3 * statistics.median(engine - mathematics for _, engine, mathematics in rows),
        "total_ms": 1e3 * total,
        "mean_total_ms": 1e3 * statistics.mean(whole - mathematics for whole, _, mathematics in rows),
        "share_of_100_ms": total / 0.1,
        "required": LARGEST_OVERHEAD,
        "launcher_cpu_ms": 1e3 * account["launcher"] / steps,
        "rank_threads_cpu_ms": 1e3 * account["threads"] / steps,
        "foreign_share": foreign,
    }


class Instrument(importlib.machinery.SourceFileLoader):
    """Loads the engine and puts clocks into it."""

    def exec_module(self, module) -> None:
        super().exec_module(module)
        import torch
        from titan_tpu.micro_step import MicroStep
        from titan_tpu.optimizers import ElementWise, Optimizer

        spent = {"engine": 0.0, "mathematics": 0.0}
        account = {"engine": [], "mathematics": []}
        before = {}

        def put_clock(owner, name: str, key: str) -> None:
            original = getattr(owner, name)

            def clocked(*args, **kwargs):
                started = time.perf_counter()
                try:
                    return original(*args, **kwargs)
                finally:
                    spent[key] += time.perf_counter() - started

            setattr(owner, name, clocked)

        put_clock(MicroStep, "forward", "mathematics")
        put_clock(torch.Tensor, "backward", "mathematics")
        put_clock(torch.nn.utils, "get_total_norm", "mathematics")
        put_clock(ElementWise, "step", "mathematics")
        put_clock(Optimizer, "zero_grad", "mathematics")
        put_clock(module.Engine, "step", "engine")
        put_clock(module.Engine, "read", "engine")
        read, close = module.Engine.read, module.Engine.close

        def closing_a_step(*args):
            result = read(*args)
            for key, values in account.items():
                values.append(spent[key])
                spent[key] = 0.0
            if len(account["engine"]) == WARMUP:
                before.update(cpu_of_others())
            return result

        def closing(*args) -> None:
            for key, value in cpu_of_others().items():
                account[key] = value - before[key]
            Path(os.environ["THROUGHPUT_ACCOUNT"]).write_text(json.dumps(account))
            close(*args)

        module.Engine.read, module.Engine.close = closing_a_step, closing


def cpu_of_others() -> dict[str, float]:
    """CPU seconds of the launcher, and of the threads of this rank that Rust has started."""

    def seconds(task: Path) -> float:
        return int((task / "schedstat").read_text().split()[0]) / 1e9

    tasks = list(Path("/proc/self/task").iterdir())
    threads = [task for task in tasks if (task / "comm").read_text().startswith("titan")]
    return {
        "launcher": sum(map(seconds, Path(f"/proc/{os.getppid()}/task").iterdir())),
        "threads": sum(map(seconds, threads)),
    }


def instrument() -> None:
    """Have `titan_tpu.engine` loaded by `Instrument` when somebody imports it; called in a worker host."""

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "titan_tpu.engine":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            spec.loader = Instrument(name, spec.origin)
            return spec

    sys.meta_path.insert(0, Finder)


def table(report: dict) -> str:
    """The report as text."""
    lines = []
    for name, value in report.get("tokens_per_second", {}).items():
        lines.append(f"{name:30} " + ("not available" if value is None else f"{value:8.0f} tokens/s"))
    for name, ratio in report.get("ratios", {}).items():
        if ratio is not None:
            verdict = ""
            if ratio["required"] is not None:
                met = "met" if ratio["median"] >= ratio["required"] else "MISSED"
                verdict = f"  at least {ratio['required']}: {met}"
            spread = f"{ratio['median']:.3f} ({ratio['least']:.3f} to {ratio['most']:.3f})"
            lines.append(f"{name:30} {spread}{verdict}")
    cost = report.get("overhead")
    if cost is not None:
        met = "met" if cost["share_of_100_ms"] < cost["required"] else "MISSED"
        lines.append(
            f"overhead of the loop: {cost['total_ms']:.3f} ms (Rust {cost['rust_ms']:.3f}, Python"
            f" {cost['python_ms']:.3f}), {cost['share_of_100_ms']:.2%} of 100 ms  below"
            f" {cost['required']:.0%}: {met}; besides it the launcher takes {cost['launcher_cpu_ms']:.2f} ms"
            f" of CPU per step, threads of the rank {cost['rank_threads_cpu_ms']:.2f} ms"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("titan", nargs="?", default=REPOSITORY / "target/release/titan-tpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="counted steps of a run")
    parser.add_argument("--only", nargs="+", choices=[*CONTENDERS, "overhead"])
    parser.add_argument("--peer", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer is not None:
        print(json.dumps(train_peer(*options.peer)))
        return
    # Then the host of a run, whose launcher does not wait for it, is a child of this process in the end.
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    path = os.path.abspath(options.titan)
    wanted = options.only or [*CONTENDERS, "overhead"]
    names = [name for name in CONTENDERS if name in wanted]
    if "titan_compiled" in names and not can_compile(path):
        names.remove("titan_compiled")
    import torch
    import transformers

    report = {
        "machine": {"cores": CORES, "cpu": platform.processor() or platform.machine()},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "load_before": os.getloadavg(),
    }
    if names:
        report |= compare(path, options.rounds, options.steps, names)
    if "overhead" in wanted:
        report["overhead"] = overhead(path, 100)
    report["load_after"] = os.getloadavg()
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
