"""The rules of the architecture hold, and each of them is noticed when a line of code breaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# file, line planted at its end, the contract that must be reported as broken
IMPORTS = {
    "order": ("tokens/grid.py", "import sightline.attention", "Rooms import in the order"),
    "order at the top": ("results/rows.py", "from sightline.cli import app", "Rooms import in the order"),
    "order, hidden in a function": (
        "tokens/layout.py",
        "def f():\n    import sightline.models",
        "Rooms import in the order",
    ),
    "a new room": ("utils.py", "", "Rooms import in the order"),
    "encodings of one kind": (
        "encodings/rotation/rope_axial.py",
        "import sightline.encodings.rotation.rope_mixed",
        "No encoding knows another",
    ),
    "encodings of two kinds": (
        "encodings/pattern/lookhere.py",
        "import sightline.encodings.added.sincos_2d",
        "No encoding knows another",
    ),
    "back ends": ("attention/varlen.py", "import sightline.attention.tiles", "No attention back end knows another"),
    "data": ("encodings/base.py", "import sightline.data", "The model never sees the data pipeline"),
    "reports, torch": ("reports/__init__.py", "import torch", "Reports read rows and arrays, never torch"),
    "reports, torch by another": (
        "reports/__init__.py",
        "import sightline.models",
        "Reports read rows and arrays, never torch",
    ),
    "matplotlib": (
        "encodings/interpolate.py",
        "import matplotlib.pyplot",
        "The model and what it stands on import only",
    ),
    "hub": ("tokens/grid.py", "import huggingface_hub", "The model and what it stands on import only"),
}
CALLS = {
    "sdpa": ("import torch\n\ntorch.nn.functional.scaled_dot_product_attention()", "scaled_dot_product_attention"),
    "sdpa by F": (
        "import torch.nn.functional as F\n\nF.scaled_dot_product_attention()",
        "scaled_dot_product_attention",
    ),
    "sdpa by name": ("from torch.nn.functional import scaled_dot_product_attention", "scaled_dot_product_attention"),
    "flex": ("from torch.nn.attention.flex_attention import flex_attention", "flex_attention"),
    "varlen": ("from torch.nn.attention.varlen import varlen_attn", "varlen"),
    "flex module": ("import torch.nn.attention.flex_attention", "flex_attention"),
    "torch.load": ("import torch\n\ntorch.load('x')", "torch.load"),
}


@pytest.fixture
def copy(tmp_path):
    """The sources in a folder of their own."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(command: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name(command)), *arguments],
        cwd=folder,
        # Before the installed package, so that the copy is what is looked at. Wide, so that no name is broken in two.
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return run("lint-imports", "--no-cache", "--no-logo", folder=folder)


def banned(folder: Path) -> subprocess.CompletedProcess[str]:
    return run("ruff", "check", "--no-cache", "--select", "TID251", "src", folder=folder)


def test_the_sources_keep_every_rule(copy):
    contracts = lint_imports(copy)
    assert contracts.returncode == 0, contracts.stdout
    assert " 0 broken" in contracts.stdout
    calls = banned(copy)
    assert calls.returncode == 0, calls.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPORTS)
def test_a_forbidden_import_is_caught(name, copy):
    file, line, contract = IMPORTS[name]
    with (copy / "src/sightline" / file).open("a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stderr
    broken = [row for row in done.stdout.splitlines() if row.rstrip().endswith("BROKEN") or " BROKEN " in row]
    assert any(row.startswith(contract) for row in broken), done.stdout


@pytest.mark.parametrize("name", CALLS)
def test_a_banned_call_is_caught(name, copy):
    code, told = CALLS[name]
    (copy / "src/sightline/attention/planted.py").write_text(code + "\n", encoding="utf-8")
    done = banned(copy)
    assert done.returncode == 1, done.stderr
    assert "TID251" in done.stdout
    assert told in done.stdout
