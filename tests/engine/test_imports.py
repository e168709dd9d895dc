"""What is imported, and when. Each test needs an interpreter of its own."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def python(program: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join((os.environ["PYTHONPATH"], str(HERE)))
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_package_does_not_import_torch():
    result = python("import sys, titan_tpu; print(titan_tpu.__version__, 'torch' in sys.modules)")
    assert result.returncode == 0, result.stderr
    version, torch_imported = result.stdout.split()
    assert version.count(".") == 2 and torch_imported == "False"


def test_the_worker_is_bound_to_its_parent_before_torch_is_imported():
    result = python("""
import sys, types
calls = []
def bind_to_parent():
    calls.append("bind")
    assert "torch" not in sys.modules
def serve(import_seconds):
    calls.append("serve")
    assert "titan_tpu.engine" in sys.modules and 0.1 < import_seconds < 60
    return 7
native = types.ModuleType("titan_tpu._native")
native.bind_to_parent, native.serve = bind_to_parent, serve
sys.modules["titan_tpu._native"] = native
from titan_tpu.worker import main
code = main([])
assert calls == ["bind", "serve"], calls
sys.exit(code)
""")
    assert result.returncode == 7, result.stderr


def test_numpy_is_not_needed():
    result = python("""
import sys
sys.modules["numpy"] = None
import json
from titan_tpu.engine import Engine
from training import CONFIG
engine = Engine(json.dumps(CONFIG), 0, "null")
tokens = bytearray(4 * CONFIG["local_batch"] * (CONFIG["sequence_length"] + 1))
losses = [engine.read(engine.step(tokens, 0.1, False))[0] for _ in range(5)]
assert losses[-1] < losses[0] - 1, losses
""")
    assert result.returncode == 0, result.stderr


def test_a_step_does_not_import_the_compiler():
    """It takes over a second, of every worker's start."""
    result = python("""
import json, sys
from titan_tpu.engine import Engine
from training import ADAMW, CONFIG
engine = Engine(json.dumps(CONFIG | {"optimizer": ADAMW, "gradient_clip": 1.0}), 0, "null")
engine.step(bytearray(4 * CONFIG["local_batch"] * (CONFIG["sequence_length"] + 1)), 0.1, False)
assert "torch._dynamo" not in sys.modules
""")
    assert result.returncode == 0, result.stderr
