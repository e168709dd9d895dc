"""Shared set-up of the tests of recipes, which need transformers, diffusers and jsonschema, and the binary
that is tested: `TITAN_BINARY=target/debug/titan-tpu pytest tests/recipes`.
"""

import json
import os
import subprocess
from pathlib import Path

# Before torch is imported by a test: no accelerator plug-ins, and nothing is fetched.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

# A debug build answers in milliseconds.
LIMIT_SECONDS = 60


def to_toml(recipe: dict) -> str:
    """A recipe as TOML. What TOML and JSON write alike is left to JSON."""

    def inline(value) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {inline(item)}" for key, item in value.items()) + " }"
        if isinstance(value, list):
            return "[" + ", ".join(map(inline, value)) + "]"
        return json.dumps(value)

    tables = {name: table for name, table in recipe.items() if isinstance(table, dict)}
    lines = [f"{key} = {inline(value)}" for key, value in recipe.items() if key not in tables]
    for name, table in tables.items():
        lines.append(f"\n[{name}]")
        lines += [f"{key} = {inline(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


class Titan:
    """The binary, in a folder with a recipe's data."""

    def __init__(self, binary: Path, folder: Path):
        self.binary = binary
        self.folder = folder
        (folder / "data.txt").write_text("To be, or not to be, that is the question.\n" * 100)

    def write(self, recipe: dict, name: str = "recipe.toml") -> Path:
        path = self.folder / name
        path.write_text(to_toml(recipe))
        return path

    def run(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.binary, *arguments],
            cwd=self.folder,
            env={**os.environ, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def output(self, *arguments) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments) -> dict:
        return json.loads(self.output(*arguments))


@pytest.fixture(scope="session")
def binary() -> Path:
    return Path(os.environ["TITAN_BINARY"]).resolve()


@pytest.fixture(scope="session")
def schema(binary, tmp_path_factory) -> dict:
    return Titan(binary, tmp_path_factory.mktemp("schema")).json("recipe", "schema")


@pytest.fixture
def titan(binary, tmp_path) -> Titan:
    return Titan(binary, tmp_path)
