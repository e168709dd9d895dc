"""Checkpoints of torch.distributed.checkpoint, written from ours and read for ours.

The launcher starts `main`, writes orders to its stdin, a line of JSON each, and reads its stdout: lines of
JSON, and behind one with `bytes` so many bytes of a tensor. What is taken, and what a checkpoint of ours is
made of, is for the launcher to say.

One tensor at a time is in memory.
"""

import ctypes
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from titan_tpu.config import ModelConfig
from titan_tpu.dcp_metadata import Damaged, read_metadata
from titan_tpu.models import build_model

RUN = "titan_run"
STEP = "step"

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}
"""By the names that safetensors has for them."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class _Part:
    """A part of a tensor in a file of ours."""

    def __init__(self, content: Tensor, said: dict[str, Any]):
        self.content = content
        """Its bytes."""
        self.shape = tuple(said["shape"])
        """Of the whole tensor."""
        self.rows = said["rows"]
        self.columns = said["columns"]


class OwnFiles:
    """The tensors in the files of a checkpoint of ours; mapped: what is not looked at costs nothing."""

    def __init__(self, paths: list[Path]):
        self._parts: dict[str, list[_Part]] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        for path in paths:
            self._add(path)

    def _add(self, path: Path) -> None:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        content = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
        content = content[8 + length :]
        said = json.loads(header.pop("__metadata__")["titan_parts"])["parts"]
        for name, described in header.items():
            start, end = described["data_offsets"]
            self._parts.setdefault(name, []).append(_Part(content[start:end], said[name]))
            self._dtypes[name] = DTYPES[described["dtype"]]

    def names(self) -> list[str]:
        """All tensors."""
        return sorted(self._parts)

    def outline(self, name: str) -> Tensor:
        """A tensor without content, of the shape of `name`."""
        return torch.empty(self._parts[name][0].shape, dtype=self._dtypes[name], device="meta")

    def read(self, name: str) -> Tensor:
        """Put a tensor together."""
        shape, dtype = self._parts[name][0].shape, self._dtypes[name]
        width = (shape[-1] if len(shape) > 1 else 1) * dtype.itemsize
        whole = torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8)
        if whole.numel() == 0:
            return whole.view(dtype).view(shape)
        rows = whole.view(-1, width)
        for part in self._parts[name]:
            first, last = (column * dtype.itemsize for column in part.columns)
            target = rows[part.rows[0] : part.rows[1], first:last]
            target.copy_(part.content.view(target.shape))
        return whole.view(dtype).view(shape)


class _LazyPlanner(dcp.DefaultSavePlanner):
    """Reads each tensor when its turn to be written comes."""

    def __init__(self, files: OwnFiles, progress: Callable[[int], None]):
        super().__init__()
        self._files = files
        self._own = set(files.names())
        self._progress = progress
        self._bytes = 0

    def resolve_data(self, write_item: Any) -> Tensor | io.BytesIO:
        name = write_item.index.fqn
        if name not in self._own:
            return super().resolve_data(write_item)
        tensor = self._files.read(name)
        self._bytes += tensor.nbytes
        self._progress(self._bytes)
        return tensor


def export(
    paths: list[Path], step: int, run: str, to: Path, progress: Callable[[int], None] = lambda _: None
) -> None:
    """Write the tensors in files of ours, the step, and what the run says about itself, to the folder `to`.

    Raises `OSError` when a file cannot be written.
    """
    files = OwnFiles(paths)
    state: dict[str, Any] = {name: files.outline(name) for name in files.names()}
    state |= {STEP: torch.tensor(step, dtype=torch.int64), RUN: run}
    # A file for each tensor, for torch keeps all tensors of a file in memory until it is written; without a
    # look ahead, which is for accelerators; on one thread, for the failure of another is not reported.
    writer = dcp.FileSystemWriter(to, single_file_per_rank=False, thread_count=1, per_thread_copy_ahead=0)
    with warnings.catch_warnings():
        # That there is no process group is what is wanted.
        warnings.simplefilter("ignore", UserWarning)
        try:
            dcp.save(state, storage_writer=writer, planner=_LazyPlanner(files, progress), no_dist=True)
        except (Exception, CheckpointException) as error:
            raise _cause(error) or error from error


def _cause(error: BaseException | None) -> OSError | None:
    """What the system refused, deep in a failure of torch."""
    if error is None or isinstance(error, OSError):
        return error
    failures = [failure for failure, _ in getattr(error, "failures", {}).values()]
    for inner in [*failures, error.__cause__, error.__context__]:
        if (found := _cause(inner)) is not None:
            return found
    return None


class _Bytes(dcp.LoadPlanner):
    """Takes one entry that is not a tensor."""

    value = b""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self.value = value.getvalue()


class ForeignFiles:
    """A checkpoint of torch.distributed.checkpoint."""

    def __init__(self, folder: Path):
        """Raises `Damaged`."""
        self._folder = folder
        self._metadata = read_metadata(folder)
        self._reader = dcp.FileSystemReader(folder)
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        self._entries = self._metadata.state_dict_metadata

    def tensors(self) -> dict[str, TensorStorageMetadata]:
        """Those entries that are tensors."""
        return {name: entry for name, entry in self._entries.items() if _is_tensor(entry)}

    def others(self) -> list[str]:
        """Those that are not."""
        return sorted(name for name, entry in self._entries.items() if not _is_tensor(entry))

    def read(self, name: str) -> Tensor:
        """Put a tensor together. Raises `Damaged`."""

        def read() -> Tensor:
            entry = self._entries[name]
            state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)}
            planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
            planner.set_up_planner(state, self._metadata, is_coordinator=True)
            self._reader.read_data(planner.create_local_plan(), planner).wait()
            return state[name]

        return self._guarded(name, read)

    def text(self, name: str) -> str:
        """An entry that is a text. Raises `Damaged`."""

        def read() -> str:
            index, zero = MetadataIndex(name), torch.Size([0])
            planner = _Bytes()
            item = ReadItem(LoadItemType.BYTE_IO, index, zero, index, zero, zero)
            self._reader.read_data(LoadPlan([item]), planner).wait()
            # torch's own planner would run the pickle that this is.
            value = torch.load(io.BytesIO(planner.value), weights_only=True)
            if not isinstance(value, str):
                raise TypeError(f"it is {type(value).__name__}, and not a text")
            return value

        return self._guarded(name, read)

    def _guarded(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        # What is not what was written can raise anything.
        except Exception as error:
            places = self._metadata.storage_data.items()
            files = {str(self._folder / info.relative_path) for index, info in places if index.fqn == name}
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise Damaged(f"{', '.join(sorted(files))}: {name} cannot be read: {said[0]}") from error


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, TensorStorageMetadata)


def listing(files: ForeignFiles, model: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint has, and what a model needs."""
    tensors = {
        name: {
            "dtype": _NAMES.get(entry.properties.dtype, str(entry.properties.dtype)),
            "shape": list(entry.size),
        }
        for name, entry in files.tensors().items()
    }
    others = files.others()
    is_ours = RUN in others and STEP in tensors
    with torch.device("meta"):
        weights = build_model(ModelConfig.from_json(model)).named_parameters()
    return {
        "tensors": tensors,
        "others": others,
        "step": int(files.read(STEP)) if is_ours else None,
        "run": files.text(RUN) if is_ours else None,
        "model": {name: list(weight.shape) for name, weight in weights},
    }


def _send(channel: BinaryIO, message: dict[str, Any], content: Tensor | None = None) -> None:
    channel.write(json.dumps(message).encode() + b"\n")
    if content is not None and content.nbytes > 0:
        # Its memory, without a copy.
        memory = (ctypes.c_char * content.nbytes).from_address(content.data_ptr())
        channel.write(memoryview(memory))
    channel.flush()


def _serve(orders: Iterator[bytes], channel: BinaryIO) -> None:
    order = json.loads(next(orders))
    if order["order"] == "export":
        paths = [Path(order["folder"], name) for name in order["files"]]

        def progress(done: int) -> None:
            _send(channel, {"progress": done})

        export(paths, order["step"], order["run"], Path(order["to"]), progress)
        _send(channel, {"done": {}})
        return
    files = ForeignFiles(Path(order["folder"]))
    _send(channel, {"listing": listing(files, order["model"])})
    for wanted in json.loads(next(orders, b'{"tensors": []}'))["tensors"]:
        tensor = files.read(wanted["name"]).to(DTYPES[wanted["dtype"]]).contiguous()
        _send(channel, {"tensor": {"name": wanted["name"], "bytes": tensor.nbytes}}, tensor)
    _send(channel, {"done": {}})


def main() -> int:
    """Carry out the launcher's orders; returns the exit code.

    What goes wrong with files is reported as a message; a bug ends in a traceback on stderr.
    """
    # Whatever libraries print is not for the launcher's eyes.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _serve(iter(sys.stdin.buffer), channel)
    except Damaged as damaged:
        _send(channel, {"failed": {"kind": "damaged", "text": str(damaged)}})
    except BrokenPipeError:
        return 1
    except OSError as error:
        path = None if error.filename is None else os.fsdecode(error.filename)
        said = {"kind": "io", "errno": error.errno, "path": path, "text": str(error)}
        _send(channel, {"failed": said})
    return 0
