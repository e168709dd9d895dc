"""Joining and leaving the world of ranks."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from titan_tpu.config import Rendezvous

T = TypeVar("T")


def join(rendezvous: Rendezvous, backend: str, rank: int, world: int) -> None:
    """Create the default process group; returns when all `world` ranks have joined.

    Rank 0 serves the key-value store on the socket that the launcher has bound for it: choosing a free port
    first and binding it later would leave a moment in which another process can take it. Raises
    `DistStoreError` if some rank does not come in time.
    """
    timeout = timedelta(seconds=rendezvous.timeout_seconds)
    store = dist.TCPStore(
        rendezvous.host,
        rendezvous.port,
        world_size=world,
        is_master=rank == 0,
        timeout=timeout,
        master_listen_fd=rendezvous.listen_fd if rank == 0 else None,
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


def leave() -> None:
    """Destroy the default process group, every group made from it, and the names that `mesh.py` gave them."""
    dist.destroy_process_group()


def rank_zero_first(name: str, limit: timedelta, work: Callable[[], T]) -> T:
    """Do `work` on rank 0 and then on all others; returns when all ranks have done it.

    For work that is the same on all ranks and leaves its result in a cache. Ranks must call this in the same
    order, with another `name` each time. Raises `DistStoreError` if some rank is not done within `limit`.
    """
    if not dist.is_initialized():
        return work()
    store = dist.distributed_c10d._get_default_store()
    keys = [f"titan/{name}/{rank}" for rank in range(dist.get_world_size())]
    if dist.get_rank() > 0:
        store.wait(keys[:1], limit)
    result = work()
    store.set(keys[dist.get_rank()], "")
    store.wait(keys, limit)
    return result
