#!/bin/sh
# A Python that only does what a set-up asks for. FAKE_* variables make it fail in chosen ways; FAKE_SLOW counts
# tenths of a second.
# The last argument names what is wanted, except for venv and pip.
self=$(readlink -f "$0")
environment=$(dirname "$(dirname "$0")")
packages=$environment/lib/python3.11/site-packages
all="$*"
for last; do :; done

answer() {
    echo "noise from a start-up file"
    echo "{\"implementation\":\"cpython\",\"version\":[${FAKE_VERSION:-3,11,7}],\"release\":true," \
        "\"executable\":\"$0\",\"base\":\"$self\",\"wide\":true,\"free_threaded\":false,\"musl\":false," \
        "\"libc\":\"glibc 2.36\",\"venv\":true,\"ensurepip\":${FAKE_ENSUREPIP:-true},\"torch\":$1}"
}

case "$all" in
*" probe")
    [ -z "$FAKE_SHIM" ] || { echo "pyenv: python3: command not found" >&2; exit 127; }
    answer null ;;
*" probe torch")
    if [ -d "$packages/torch" ] || [ -n "$FAKE_TORCH" ]; then answer "\"${FAKE_TORCH:-2.15.0}\""; else answer null; fi ;;
*"-m venv"*)
    mkdir -p "$last/bin" "$last/lib/python3.11/site-packages" && ln -s "$self" "$last/bin/python" ;;
*" ensurepip")
    echo "Installing collected packages: pip"
    mkdir "$packages/pip" ;;
*"-m pip install"*)
    echo "$all" >> "$FAKE_JOURNAL"
    env | grep '^PIP_' >> "$FAKE_JOURNAL"
    [ -z "$FAKE_PIP_PID" ] || echo $$ > "$FAKE_PIP_PID"
    case "$all" in
    *torch==*)
        if [ -n "$PIP_INDEX_URL" ] && [ -n "$FAKE_NO_CPU" ]; then
            echo "ERROR: No matching distribution found for torch==2.15.0" >&2
            exit 1
        fi ;;
    esac
    echo "Collecting torch==2.15.0"
    echo "  Downloading torch-2.15.0-cp311-cp311-linux_x86_64.whl (539.1 MB)"
    mkdir -p "$TMPDIR/pip-unpack"
    echo wheel > "$TMPDIR/pip-unpack/torch-2.15.0-cp311-cp311-linux_x86_64.whl"
    # In small steps, so that no sleep is left behind when this is killed.
    tenths=0
    while [ "$tenths" -lt "${FAKE_SLOW:-0}" ]; do sleep 0.1; tenths=$((tenths + 1)); done
    if [ -n "$FAKE_PIP_ERROR" ]; then echo "$FAKE_PIP_ERROR" >&2; exit 1; fi
    echo "Installing collected packages: torch"
    mkdir -p "$packages/torch/lib" "$packages/sympy"
    touch "$packages/torch/__init__.py" "$packages/torch/lib/libtorch_cpu.so" ;;
*" compile "*) ;;
*" check")
    [ -z "$FAKE_BROKEN" ] || { echo "ImportError: libcudart.so.13: cannot open shared object file" >&2; exit 1; }
    echo '{"torch": "2.15.0", "seconds": 1.5}' ;;
*) echo "fake python: what is $all" >&2; exit 99 ;;
esac
