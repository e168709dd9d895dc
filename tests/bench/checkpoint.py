"""How fast a state is saved and loaded, against torch.distributed.checkpoint and what the machine can do.

    python3 tests/bench/checkpoint.py FOLDER [--bytes N] [--rounds N]

FOLDER is on the disk to measure; it is made, and emptied afterwards. This Python must have torch. The state
has 32 matrices of float32, 2.1 GB in all, of one process or cut among two. Contenders take turns, each in a
process of its own, and are compared round by round; of the saves and loads of a process the best counts, but
the time that training is blocked is also given for the first save.

    save      until everything is on the disk, hashes included, against direct writes of as many bytes, and
              against `dcp.save`
    blocked   how long training waits for a save in the background, against `dcp.async_save` and against a
              plain copy of the state
    done      until such a save is on the disk
    hash      the hashes of the state, which a save computes while it writes, and a load while it reads
    load      from the page cache and from the disk, every byte compared with its hash, against `dcp.load`
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
THREADS = 2

# What the launcher gives the workers of a run that saves: see launch/src/train/shell.rs.
TUNABLES = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0x400000"}

PEER = """
import json, os, sys, time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

folder, size, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
torch.set_num_threads(max(1, 2 // world))
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (world,))
rows = size // 32 // 4 // 4096
torch.manual_seed(0)
state = {f"tensor.{i}": torch.randn(rows, 4096) for i in range(32)}
if world > 1:
    state = {name: distribute_tensor(x, mesh, [Shard(0)]) for name, x in state.items()}


def timed(work):
    dist.barrier()
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def drop_cache(path):
    for name in os.listdir(path):
        with open(f"{path}/{name}", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


saves, blocked, done, warm, cold = [], [], [], [], []
for number in range(3):
    saves.append(timed(lambda: dcp.save(state, checkpoint_id=f"{folder}/save-{number}"))[0])
for number in range(3):
    start = time.perf_counter()
    seconds, future = timed(lambda: dcp.async_save(state, checkpoint_id=f"{folder}/async-{number}"))
    blocked.append(seconds)
    future.result()
    done.append(time.perf_counter() - start)
for number in range(3):
    warm.append(timed(lambda: dcp.load(state, checkpoint_id=f"{folder}/save-2"))[0])
for number in range(2):
    drop_cache(f"{folder}/save-2")
    cold.append(timed(lambda: dcp.load(state, checkpoint_id=f"{folder}/save-2"))[0])
print(json.dumps({
    "save": min(saves), "blocked": min(blocked), "blocked_first": blocked[0], "done": min(done),
    "warm": min(warm), "cold": min(cold),
}))
dist.destroy_process_group()
"""


def run_all(commands: list[list[str]], more: dict[str, str] | None = None) -> list[dict]:
    """Runs commands side by side and returns what they print, the last line of each being JSON."""
    environment = os.environ | (more or {})
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for command in commands
    ]
    results = []
    for process in running:
        output, _ = process.communicate(timeout=600)
        if process.returncode != 0:
            sys.exit(f"{process.args[:2]} ended with {process.returncode}")
        results.append(json.loads(output.splitlines()[-1]))
    return results


def run_titan(program: Path, folder: Path, size: int, world: int) -> dict:
    """Times in seconds; of two processes the slower one counts."""
    threads = max(1, THREADS // world)
    results = run_all(
        [
            [str(program), str(folder), str(size), str(threads), str(rank), str(world)]
            for rank in range(world)
        ],
        TUNABLES,
    )
    shutil.rmtree(folder)

    def slowest(time) -> float:
        return max(time(result) for result in results)

    times = {
        "save": slowest(lambda r: min(s["seconds"] + s.get("commit_seconds", 0) for s in r["saves"])),
        "blocked": slowest(lambda r: min(s["blocked_seconds"] for s in r["saves"])),
        "blocked_first": slowest(lambda r: r["saves"][0]["blocked_seconds"]),
        "copy": slowest(lambda r: r["copy_seconds"]),
        "direct": slowest(lambda r: r["direct_write_seconds"]),
        "hash": slowest(lambda r: r["hash_seconds"]),
    }
    if world == 1:
        times |= {"warm": results[0]["warm_load_seconds"], "cold": results[0]["cold_load_seconds"]}
    return times


def run_peer(folder: Path, size: int, world: int) -> dict:
    """As `run_titan`."""
    folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = ["env", f"MASTER_PORT={free.getsockname()[1]}"]
    results = run_all(
        [
            [*port, sys.executable, "-c", PEER, str(folder), str(size), str(rank), str(world)]
            for rank in range(world)
        ]
    )
    shutil.rmtree(folder)
    return {name: max(result[name] for result in results) for name in results[0]}


def compare(rounds: list[tuple[dict, dict]]) -> dict[str, float]:
    """Medians of the ratios of the rounds; more is better, but of `blocked` shares less is."""
    ratios = {
        "save over direct writes": lambda ours, _: ours["direct"] / ours["save"],
        "save over dcp.save": lambda ours, peer: peer["save"] / ours["save"],
        "blocked, as a share of dcp.async_save": lambda ours, peer: ours["blocked"] / peer["blocked"],
        "blocked, as a multiple of a copy": lambda ours, _: ours["blocked"] / ours["copy"],
        "done sooner than dcp.async_save": lambda ours, peer: peer["done"] / ours["save"],
        "load, page cache": lambda ours, peer: peer["warm"] / ours["warm"],
        "load, disk": lambda ours, peer: peer["cold"] / ours["cold"],
    }
    return {
        name: statistics.median(ratio(*both) for both in rounds)
        for name, ratio in ratios.items()
        if "warm" in rounds[0][0] or not name.startswith("load")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "-p", "titan-trainer", "--example", "save_and_load"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
    program = REPOSITORY / "target/release/examples/save_and_load"
    for world in (1, 2):
        rounds = []
        for number in range(options.rounds):
            ours = run_titan(program, options.folder / "ours", options.bytes, world)
            peer = run_peer(options.folder / "peer", options.bytes, world)
            rounds.append((ours, peer))
            print(f"{world} processes, round {number + 1}: titan {show(ours)}; dcp {show(peer)}", flush=True)
        for name, ratio in compare(rounds).items():
            print(f"  {name}: {ratio:.2f}")


def show(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items())


if __name__ == "__main__":
    main()
