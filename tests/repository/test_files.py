"""What holds for every file: size, names, and that the reference files are there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import sightline

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "sightline"
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_small_and_named_for_what_it_holds(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400
    assert file.stem not in {"utils", "util", "helpers", "helper", "misc", "common"}


def test_the_package_is_typed_and_has_one_version():
    import tomllib

    assert (PACKAGE / "py.typed").exists()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == sightline.__version__


def test_every_golden_file_is_here():
    golden = ROOT / "tests/parity/golden"
    index = json.loads((golden / "INDEX.json").read_text(encoding="utf-8"))
    assert set(index) == {file.name for file in golden.glob("*.safetensors")}


def test_constraints_pin_every_dependency_and_name_no_host():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    pins = [line.split(";")[0].strip() for line in text.splitlines() if line and not line.startswith("#")]
    assert all("==" in pin and "+" not in pin for pin in pins)


def test_nothing_stands_at_the_root_but_what_belongs_there():
    """A test that writes beside itself would otherwise be committed with the next change."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.split("/")[0] for line in tracked.splitlines()}
    assert names == {
        ".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md",
        "LICENSE", "Makefile", "README.md", "SECURITY.md", "benchmarks", "constraints.txt", "docs",
        "mkdocs.yml", "pyproject.toml", "src", "tests", "tools",
    }  # fmt: skip
