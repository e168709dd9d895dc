"""Entry of a worker host process: the launcher calls `main`.

The native module, written in Rust, does the work: it receives its orders from the launcher, forks or becomes
a rank, and drives `titan_tpu.engine.Engine`. What is left to Python is the order of imports.
"""

import faulthandler
import importlib
import signal
import time


def main(argv: list[str]) -> int:
    """Import, then serve until told to stop; returns the exit code.

    The process is tied to its parent before torch is imported. That import takes seconds, and a launcher
    killed in the meantime would otherwise leave an orphan behind. SIGUSR1 makes the process, and every rank
    that is forked from it, write the stacks of its threads to its log, whatever it is doing: that is how the
    launcher finds out where a rank is stuck.
    """
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    native = importlib.import_module("titan_tpu._native")
    native.bind_to_parent()
    started = time.monotonic()
    importlib.import_module("torch")
    importlib.import_module("titan_tpu.engine")
    return native.serve(time.monotonic() - started)
