"""Makes a corpus of real text for benchmarks, out of two Debian packages: about 77 MB of JSON lines.

    python3 tests/bench/corpus.py OUTPUT.jsonl

The documentation of the Linux kernel (GPL-2; reStructuredText, some of it in Chinese, Italian, Japanese and
Korean) and the GNU version of Webster's dictionary of 1913 (GPL-2+). For measurements only: the text is
neither committed nor passed on. Needs apt-get and dpkg-deb, and their package lists to be fresh.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ["linux-doc-6.1", "dict-gcide"]
SUFFIXES = {".rst", ".txt", ".yaml"}
ENTRIES = 40
"""Entries of the dictionary that make a document."""


def documents(root: Path) -> Iterator[str]:
    """The texts of unpacked packages, in an order that does not depend on the file system."""
    for path in sorted((root / "usr/share/doc").rglob("*")):
        name = path.with_suffix("") if path.suffix == ".gz" else path
        if not path.is_file() or path.is_symlink() or name.suffix not in SUFFIXES:
            continue
        content = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8", errors="replace").replace("\0", "")
        if text.strip():
            yield text
    for path in sorted((root / "usr/share/dictd").glob("*.dict.dz")):
        entries = gzip.open(path).read().decode("utf-8", errors="replace").split("\n\n")
        for start in range(0, len(entries), ENTRIES):
            yield "\n\n".join(entries[start : start + ENTRIES])


def make(output: Path) -> tuple[int, int]:
    """Write the corpus; returns documents and bytes of text."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True, stdout=sys.stderr)
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        count = size = 0
        staged = output.with_suffix(".partial")
        with staged.open("w", encoding="utf-8") as file:
            for text in documents(Path(folder)):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                count, size = count + 1, size + len(text.encode())
        staged.rename(output)
    return count, size


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    count, size = make(Path(sys.argv[1]))
    print(f"{count} documents, {size / 1e6:.1f} MB of text", file=sys.stderr)
