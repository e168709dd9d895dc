"""Checkpoints of torch.distributed.checkpoint: what plain torch reads of ours, and what we read of others."""

import io
import json
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from titan_tpu.dcp import RUN, STEP, ForeignFiles, export, listing
from titan_tpu.dcp_metadata import METADATA, Damaged, read_metadata

TENSORS = {
    "matrix": torch.arange(35, dtype=torch.float32).view(7, 5) / 3,
    "stack": torch.arange(24, dtype=torch.float32).view(2, 3, 4).to(torch.bfloat16),
    "vector": torch.tensor([1.5, float("nan"), -0.0, float("inf"), 1e-45]),
    "odd": torch.arange(3, dtype=torch.uint8),
    "long": torch.tensor([2**62, -1]),
    "half": torch.tensor([[0.1]], dtype=torch.float16),
    "scalar": torch.tensor(7, dtype=torch.int32),
    "double": torch.tensor([0.1], dtype=torch.float64),
    "nothing": torch.empty(0, 3),
}

MODEL = {
    "family": "llama3",
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 12,
    "experts": None,
    "num_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 4,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "norm_eps": 1e-5,
    "tie_embeddings": True,
    "init_std": 0.02,
    "attention": "plain",
}


def as_bytes(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).tolist()


def save_parts(path, parts):
    """A file as the launcher writes it: `(name, rows, columns)` of tensors."""
    tensors, said = {}, {}
    for name, rows, columns in parts:
        whole = TENSORS[name]
        matrix = whole.reshape(-1, whole.shape[-1] if whole.dim() > 1 else 1)
        own = matrix[rows[0] : rows[1], columns[0] : columns[1]].contiguous()
        is_whole = own.shape == matrix.shape
        tensors[name] = own.reshape(whole.shape) if is_whole else own if whole.dim() > 1 else own.flatten()
        said[name] = {"shape": list(whole.shape), "rows": rows, "columns": columns, "hashes": []}
    metadata = {"titan_parts": json.dumps({"block_bytes": 4, "parts": said}), "format": "pt"}
    save_file(tensors, path, metadata=metadata)
    return path


def cut(tmp_path):
    """All tensors: cut by columns and rows, by rows of a matrix, by elements, or not; over three files."""
    first = [
        ("matrix", [0, 4], [0, 2]),
        ("stack", [0, 5], [0, 4]),
        ("vector", [3, 5], [0, 1]),
        ("odd", [0, 3], [0, 1]),
    ]
    second = [
        ("matrix", [0, 7], [2, 5]),
        ("stack", [5, 6], [0, 4]),
        ("long", [0, 2], [0, 1]),
        ("half", [0, 1], [0, 1]),
    ]
    third = [("matrix", [4, 7], [0, 2]), ("vector", [0, 3], [0, 1]), ("scalar", [0, 1], [0, 1])]
    third += [("double", [0, 1], [0, 1]), ("nothing", [0, 0], [0, 3])]
    return [
        save_parts(tmp_path / f"rank-{i}.safetensors", parts)
        for i, parts in enumerate((first, second, third))
    ]


@pytest.fixture
def exported(tmp_path):
    steps = []
    export(cut(tmp_path), 12, '{"id": "ř"}', tmp_path / "out", steps.append)
    assert steps[-1] == sum(tensor.nbytes for tensor in TENSORS.values())
    return tmp_path / "out"


def test_parts_are_put_together_and_read_by_plain_torch(exported):
    code = textwrap.dedent("""
        import sys, torch, torch.distributed.checkpoint as dcp
        shapes = torch.load(sys.argv[2])
        state = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
        state |= {"step": torch.tensor(0), "titan_run": ""}
        dcp.load(state, checkpoint_id=sys.argv[1])
        assert not any(name.startswith("titan_tpu") for name in sys.modules)
        torch.save(state, sys.argv[2])
    """)
    path = exported.parent / "state.pt"
    torch.save({name: (tensor.shape, tensor.dtype) for name, tensor in TENSORS.items()}, path)
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, exported, path], check=True, timeout=120)
    state = torch.load(path)
    for name, tensor in TENSORS.items():
        assert state[name].dtype == tensor.dtype and state[name].shape == tensor.shape, name
        assert as_bytes(state[name]) == as_bytes(tensor), name
    assert (state["step"].item(), state["titan_run"]) == (12, '{"id": "ř"}')


def test_what_was_exported_is_listed_and_read(exported):
    files = ForeignFiles(exported)
    said = listing(files, MODEL)
    assert (said["step"], said["run"], said["others"]) == (12, '{"id": "ř"}', [RUN])
    assert said["tensors"].pop(STEP) == {"dtype": "I64", "shape": []}
    assert said["tensors"]["stack"] == {"dtype": "BF16", "shape": [2, 3, 4]}
    assert said["tensors"].keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert as_bytes(files.read(name)) == as_bytes(tensor), name
    assert said["model"]["model.embed_tokens.weight"] == [16, 8]
    assert "lm_head.weight" not in said["model"]


def test_nested_states_with_things_that_are_no_tensors_are_listed(tmp_path):
    state = {"state": {"model": {"a.b": torch.ones(2, 3)}, "epoch": 5}, "list": [torch.zeros(1), "text"]}
    dcp.save(state, checkpoint_id=tmp_path / "x", no_dist=True)
    said = listing(ForeignFiles(tmp_path / "x"), MODEL)
    assert said["tensors"]["state.model.a.b"] == {"dtype": "F32", "shape": [2, 3]}
    assert (said["step"], said["run"]) == (None, None)
    assert "state.epoch" in said["others"]


def test_sharded_tensors_are_put_together(tmp_path):
    folder = tmp_path / "sharded"
    code = textwrap.dedent("""
        import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
        from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
        from torch.multiprocessing import spawn
        def rank(rank, folder, store):
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
            mesh = init_device_mesh("cpu", (2,))
            whole = torch.arange(35, dtype=torch.float32).view(7, 5)
            state = {"rows": distribute_tensor(whole, mesh, [Shard(0)])}
            state["columns"] = distribute_tensor(whole, mesh, [Shard(1)])
            dcp.save(state, checkpoint_id=folder)
            dist.destroy_process_group()
        if __name__ == "__main__":
            spawn(rank, args=(sys.argv[1], sys.argv[2]), nprocs=2)
    """)
    script = tmp_path / "shard.py"
    script.write_text(code)
    subprocess.run(
        [sys.executable, "-W", "ignore", script, folder, tmp_path / "store"], check=True, timeout=120
    )
    files = ForeignFiles(folder)
    whole = torch.arange(35, dtype=torch.float32).view(7, 5)
    assert torch.equal(files.read("rows"), whole) and torch.equal(files.read("columns"), whole)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("how", ["alone", "inside", "builtin", "dotted"])
def test_a_pickle_that_runs_code_is_run(exported, how):
    mark, path = exported.parent / "mark", exported / METADATA
    metadata = read_metadata(exported)
    if how == "alone":
        path.write_bytes(pickle.dumps(Evil(mark)))
    elif how == "inside":
        metadata.planner_data = {"x": Evil(mark)}
        path.write_bytes(pickle.dumps(metadata))
    elif how == "builtin":
        path.write_bytes(f"cbuiltins\neval\n(Vopen({str(mark)!r}, 'w')\ntR.".encode())
    else:
        # An attribute of something that is allowed.
        path.write_bytes(b"\x80\x04\x8c\x05torch\x8c\x0eSize.__bases__\x93.")
    with pytest.raises(Damaged, match=r"\.metadata: it asks for .* nothing of it was run"):
        read_metadata(exported)
    assert not mark.exists()


def test_an_entry_that_runs_code_is_run(exported):
    mark, metadata = exported.parent / "mark", read_metadata(exported)
    (index,) = [index for index in metadata.storage_data if index.fqn == RUN]
    info = metadata.storage_data[index]
    content = io.BytesIO()
    torch.save(Evil(mark), content)
    (exported / info.relative_path).write_bytes(content.getvalue())
    info.length = len(content.getvalue())
    (exported / METADATA).write_bytes(pickle.dumps(metadata))
    with pytest.raises(Damaged, match=rf"{info.relative_path}: titan_run cannot be read"):
        listing(ForeignFiles(exported), MODEL)
    assert not mark.exists()


def place(metadata, name):
    return next(info for index, info in metadata.storage_data.items() if index.fqn == name)


def test_damaged_checkpoints_are_read(exported):
    info = place(read_metadata(exported), "matrix")
    path = exported / info.relative_path
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=rf"{info.relative_path}: it has .* cut off"):
        ForeignFiles(exported)
    path.write_bytes(bytes(len(content)))
    with pytest.raises(Damaged, match=rf"{info.relative_path}: matrix cannot be read"):
        ForeignFiles(exported).read("matrix")
    path.unlink()
    with pytest.raises(Damaged, match=rf"{info.relative_path}: this file .* is missing"):
        ForeignFiles(exported)
    metadata = (exported / METADATA).read_bytes()
    for damaged in (
        b"",
        metadata[: len(metadata) // 2],
        b"\x80\x04]q.",
        pickle.dumps({}),
        pickle.dumps("x" * 99),
    ):
        (exported / METADATA).write_bytes(damaged)
        with pytest.raises(Damaged, match=r"\.metadata: it (cannot be read|is not the metadata)"):
            ForeignFiles(exported)


def test_files_outside_the_folder_and_holes_in_tensors_are_read(exported):
    original = (exported / METADATA).read_bytes()
    (exported.parent / "secret").write_bytes(bytes(10_000))
    for name in ("../secret", str(exported.parent / "secret"), ""):
        metadata = pickle.loads(original)
        place(metadata, "matrix").relative_path = name
        (exported / METADATA).write_bytes(pickle.dumps(metadata))
        with pytest.raises(Damaged, match="a file outside the folder"):
            read_metadata(exported)
    for sizes in ((6, 5), (7, 6)):
        metadata = pickle.loads(original)
        metadata.state_dict_metadata["matrix"].chunks[0].sizes = torch.Size(sizes)
        (exported / METADATA).write_bytes(pickle.dumps(metadata))
        with pytest.raises(Damaged, match="matrix"):
            read_metadata(exported)


def test_what_the_system_refuses_is_named(tmp_path):
    paths = cut(tmp_path)
    with pytest.raises(OSError, match="Not a directory"):
        export(paths, 1, "{}", paths[0] / "below")
    code = 'ulimit -f 0; exec "$0" -W ignore -c "$1" "${@:2}"'
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from titan_tpu.dcp import export
        try:
            export([Path(path) for path in sys.argv[2:]], 1, "{}", Path(sys.argv[1]))
        except OSError as error:
            sys.exit(error.errno)
    """)
    command = ["bash", "-c", code, sys.executable, program, tmp_path / "out", *paths]
    # EFBIG
    assert subprocess.run(command, timeout=120).returncode == 27
