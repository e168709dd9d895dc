"""What the interpreter of an environment does for titan-tpu: `python -I -c <this> TASK [ARGUMENT..]`."""

import sys


def ensurepip():
    """Put pip into the environment."""
    import ensurepip
    import runpy

    # Normally pip runs in a process below this one, which would survive if this one is killed. So it runs
    # here. If a later Python has another name for this hook, pip runs below again; the rest still works.
    def run_here(args, additional_paths=None):
        sys.path[:0] = additional_paths or []
        sys.argv[1:] = args
        runpy.run_module("pip", run_name="__main__", alter_sys=True)

    ensurepip._run_pip = run_here
    ensurepip.bootstrap(default_pip=True)


def compile(folder, part, parts):
    """Compile every `parts`-th module of a folder to bytecode; some packages ship files that cannot be."""
    import compileall
    import os
    import warnings

    warnings.simplefilter("ignore")
    sources = []
    for parent, _, names in os.walk(folder):
        sources += [os.path.join(parent, name) for name in names if name.endswith(".py")]
    for source in sorted(sources)[int(part) :: int(parts)]:
        try:
            compileall.compile_file(source, quiet=2)
        except Exception as problem:
            print(f"not compiled: {source}: {problem}", file=sys.stderr)


def check():
    """Import torch and let it compute something."""
    import importlib.metadata
    import json
    import time

    start = time.perf_counter()
    import torch

    seconds = time.perf_counter() - start
    total = float(torch.arange(4.0).sum())
    if total != 6.0:
        raise SystemExit(f"torch computes 0 + 1 + 2 + 3 = {total}")
    print(json.dumps({"torch": importlib.metadata.version("torch"), "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
