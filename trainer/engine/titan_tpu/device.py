"""Devices: what torch calls them, which backend connects them, and whether they have a queue."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """One kind of device, as seen by one rank."""

    torch_device: torch.device
    backend: str
    """Backend of torch.distributed for tensors on this device."""
    asynchronous: bool
    """True if operations are queued: reading a result then waits for everything queued before it."""
    compiler: str
    """Backend of torch.compile for this device."""
    smallest_message: int
    """Bytes below which a message costs mostly latency, so that it had better travel with another."""


def device_by_name(name: str) -> Device:
    """The device called `name` in a recipe; raises `ValueError` for one that this engine cannot drive."""
    if name == "cpu":
        # Gloo over loopback: a collective costs half a millisecond whatever its size, and several on busy
        # cores, where ranks wait for each other to be scheduled.
        return Device(
            torch.device("cpu"),
            backend="gloo",
            asynchronous=False,
            compiler="inductor",
            smallest_message=8 << 20,
        )
    raise ValueError(f"this engine cannot drive device {name!r}")
