# Says what this interpreter is, as one line of JSON: `python -c <this> [torch]`.
# Written so that any Python, also 2.7, can read it: the answer may be that it is too old.
import json
import os
import sys

# An isolated interpreter does not look for modules in the working folder; neither may this one.
if sys.path and sys.path[0] == "":
    del sys.path[0]


def present(module):
    try:
        from importlib.util import find_spec

        spec = find_spec(module)
        # A folder without code, left by an uninstalled package, has a spec but no origin.
        return spec is not None and spec.origin is not None
    except Exception:
        return False


def setting(name):
    try:
        import sysconfig

        return sysconfig.get_config_var(name)
    except Exception:
        return None


def libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except Exception:
        return None


def torch_version():
    if not present("torch"):
        return None
    try:
        from importlib.metadata import version

        return version("torch")
    except Exception:
        return "unknown"


implementation = getattr(getattr(sys, "implementation", None), "name", "cpython")
answer = {
    "implementation": implementation,
    "version": list(sys.version_info[:3]),
    "release": sys.version_info[3] == "final",
    "executable": sys.executable or "",
    "base": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable or ""),
    "wide": sys.maxsize > 2**32,
    "free_threaded": bool(setting("Py_GIL_DISABLED")),
    "musl": "musl" in str(setting("SOABI")),
    "libc": libc(),
    "venv": present("venv"),
    "ensurepip": present("ensurepip"),
    "torch": torch_version() if "torch" in sys.argv[1:] else None,
}
print(json.dumps(answer))
