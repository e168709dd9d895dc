"""Joining and leaving the world of ranks."""

from datetime import timedelta

import torch.distributed as dist

from titan_tpu.config import Rendezvous


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
