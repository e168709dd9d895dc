"""Reading the metadata of a torch.distributed.checkpoint without running what it may contain.

`.metadata` is a pickle, and a pickle is a program: torch's own reader runs it. Here only the classes that
such a file is made of can be named in it, and what comes out is looked at before anybody works with it.
"""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

METADATA = ".metadata"

_ALLOWED = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    # Before torch 2.2.
    "torch.distributed._shard.sharded_tensor.metadata": {"TensorProperties", "MEM_FORMAT_ENCODING"},
    "collections": {"OrderedDict"},
    "builtins": {"dict", "frozenset", "int", "list", "set", "str", "tuple"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}


class Damaged(Exception):
    """A checkpoint that cannot be used; the text names the file."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        raise _Forbidden(f"{module}.{name}")


class _Forbidden(Exception):
    pass


def read_metadata(folder: Path) -> Metadata:
    """The metadata of the checkpoint in `folder`, whose files are all there and long enough.

    Raises `Damaged`.
    """
    path = folder / METADATA
    try:
        metadata = _Unpickler(io.BytesIO(path.read_bytes())).load()
    except _Forbidden as forbidden:
        text = f"{path}: it asks for {forbidden}, which is not of such a checkpoint; nothing of it was run"
        raise Damaged(text) from None
    # A damaged pickle can raise anything.
    except Exception as error:
        raise Damaged(f"{path}: it cannot be read: {type(error).__name__}: {error}") from error
    try:
        _check(folder, metadata)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise Damaged(f"{path}: it is not the metadata of a checkpoint: {error}") from error
    return metadata


def _check(folder: Path, metadata: Metadata) -> None:
    _expect(isinstance(metadata, Metadata), "another object")
    _expect(isinstance(metadata.storage_data, dict), "no places of tensors")
    ends: dict[str, int] = {}
    for index, info in metadata.storage_data.items():
        _expect(isinstance(index, MetadataIndex), "a place of nothing")
        _expect(isinstance(info, _StorageInfo), "a place of another kind")
        name, offset, length = info.relative_path, info.offset, info.length
        _expect(isinstance(name, str) and _is_inside(name), f"a file outside the folder: {name!r}")
        _expect(type(offset) is int and type(length) is int, f"a place in {name} that is no number")
        _expect(min(offset, length) >= 0, f"a place before {name}")
        ends[name] = max(ends.get(name, 0), offset + length)
    for name, entry in metadata.state_dict_metadata.items():
        _expect(isinstance(name, str), "a name that is no text")
        if isinstance(entry, TensorStorageMetadata):
            _check_tensor(name, entry)
            for chunk in entry.chunks:
                index = MetadataIndex(name, chunk.offsets)
                _expect(index in metadata.storage_data, f"{name} has a part that is nowhere")
        else:
            _expect(isinstance(entry, BytesStorageMetadata), f"{name} is of an unknown kind")
            _expect(MetadataIndex(name) in metadata.storage_data, f"{name} is nowhere")
    for name, end in sorted(ends.items()):
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path}: this file of the checkpoint is missing")
        if (size := path.stat().st_size) < end:
            raise Damaged(f"{path}: it has {size} bytes, and {end} were written: it is cut off")


def _is_inside(name: str) -> bool:
    """Whether a name is that of a file below a folder."""
    path = Path(name)
    return name != "" and not path.is_absolute() and ".." not in path.parts


def _check_tensor(name: str, entry: TensorStorageMetadata) -> None:
    """Whether the parts of a tensor make up all of it, each element once."""
    _expect(isinstance(entry.properties.dtype, torch.dtype), f"{name} has no number format")
    shape = tuple(entry.size)
    _expect(all(type(size) is int and size >= 0 for size in shape), f"{name} has no shape")
    boxes = []
    for chunk in entry.chunks:
        _expect(isinstance(chunk, ChunkStorageMetadata), f"{name} has a part of another kind")
        box = list(zip(chunk.offsets, chunk.sizes, shape, strict=True))
        is_inside = all(0 <= at and 0 <= n and at + n <= size for at, n, size in box)
        _expect(is_inside, f"{name} has a part outside it")
        if math.prod(chunk.sizes) > 0:
            boxes.append([(at, at + n) for at, n, _ in box])
    count = sum(math.prod(end - start for start, end in box) for box in boxes)
    is_whole = count == math.prod(shape) and _are_apart(boxes)
    _expect(is_whole, f"the parts of {name} are not all of it, each once")


def _are_apart(boxes: list[list[tuple[int, int]]]) -> bool:
    boxes = sorted(boxes)
    for place, box in enumerate(boxes):
        for later in boxes[place + 1 :]:
            if box and later[0][0] >= box[0][1]:
                break
            if all(a[0] < b[1] and b[0] < a[1] for a, b in zip(box, later, strict=True)):
                return False
    return True


def _expect(condition: Any, what: str) -> None:
    if not condition:
        raise ValueError(what)
