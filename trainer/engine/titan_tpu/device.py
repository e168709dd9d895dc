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


def device_by_name(name: str) -> Device:
    """The device called `name` in a recipe; raises `ValueError` for one that this engine cannot drive."""
    if name == "cpu":
        return Device(torch.device("cpu"), backend="gloo", asynchronous=False)
    raise ValueError(f"this engine cannot drive device {name!r}")
