"""Shared set-up of the engine's tests, which need torch and transformers: `pytest tests/engine`."""

import os
import sys
from pathlib import Path

# Before torch is imported: no accelerator plug-ins, one thread per process, and gloo on the loopback
# interface only.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
ENGINE_PATH = Path(__file__).resolve().parents[2] / "trainer" / "engine"
sys.path.insert(0, str(ENGINE_PATH))
os.environ["PYTHONPATH"] = str(ENGINE_PATH)

import pytest  # noqa: E402
from ranks import RankPool  # noqa: E402


@pytest.fixture(scope="session")
def pool():
    """Four idle rank processes, shared by all tests: importing torch takes longer than any test."""
    with RankPool(size=4) as pool:
        yield pool
