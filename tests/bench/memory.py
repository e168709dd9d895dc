"""How much memory a rank takes above an idle worker, on 1, 2 and 4 devices, for a Llama of 98 M parameters.

    python3 tests/bench/memory.py [path of titan-tpu]

Sequences are short, so that weights, gradients and moments are what is measured. Peaks are those of the
kernel (VmHWM); the idle worker is the process that has imported torch and the engine and forks the ranks.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = """version = 1
name = "memory"
[model]
family = "llama3"
vocab_size = 8192
hidden_size = 768
intermediate_size = 2048
num_layers = 12
num_heads = 12
num_kv_heads = 12
[hardware]
accelerator = "cpu"
devices = {devices}
[training]
steps = 1000000
sequence_length = 32
local_batch = 1
[optimizer]
learning_rate = 1e-4
[data]
sources = [{{ path = "{data}" }}]
"""
STEPS = 5
LIMIT_SECONDS = 180


def peak_mib(pid: int) -> float:
    """The largest resident memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no memory")


def workers(run: Path) -> tuple[list[int], list[int]]:
    """Process ids of the ranks, and of the host that they were forked from."""
    events = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    ranks = [event["pid"] for event in events if event["event"] == "worker_started"]
    mark = f"TITAN_RUN_ID={events[0]['run']}".encode()
    hosts = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in ranks:
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    hosts.append(int(entry.name))
            except OSError:
                continue
    return ranks, hosts


def measure(titan: str, devices: int, *options: str) -> float:
    """MiB that the largest rank takes above the idle host."""
    with tempfile.TemporaryDirectory() as folder:
        data = REPOSITORY / "datasets/shakespeare/shakespeare.txt"
        recipe = Path(folder, "r.toml")
        recipe.write_text(RECIPE.format(devices=devices, data=data))
        command = [titan, "train", "r.toml", "--run-dir", "out", *options]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            run, started = Path(folder, "out"), time.monotonic()
            metrics = run / "metrics.jsonl"
            while not (metrics.exists() and metrics.read_text().count("\n") >= STEPS):
                if process.poll() is not None or time.monotonic() - started > LIMIT_SECONDS:
                    raise RuntimeError("the run did not get to its steps")
                time.sleep(0.2)
            ranks, hosts = workers(run)
            return max(map(peak_mib, ranks)) - max(map(peak_mib, hosts))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def main() -> None:
    """Print one line for each number of devices, with its ratio to one device."""
    titan = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else REPOSITORY / "target/release/titan-tpu")
    single = measure(titan, 1)
    print(f"1 device: {single:.0f} MiB above an idle worker")
    for devices in (2, 4):
        taken = measure(titan, devices)
        print(f"{devices} devices: {taken:.0f} MiB, {taken / single:.2f} of one device")
    taken = measure(titan, 4, "--set", "remat.policy=full")
    print(f"4 devices, full remat: {taken:.0f} MiB, {taken / single:.2f} of one device")


if __name__ == "__main__":
    main()
