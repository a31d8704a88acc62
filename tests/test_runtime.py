"""What this machine is: the same answer every time, and never an exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sightline import __version__, runtime
from sightline.errors import InputError

SOURCE = Path(runtime.__file__)


def test_hardware_names_the_processor_and_the_cores():
    words = runtime.hardware().split(", ")
    assert words[0]
    assert words[1] in (f"{runtime.cores()} cores", "1 core")
    assert runtime.hardware() == runtime.hardware()


def commit_in(root: Path) -> str:
    """What `commit` says for the sources in a folder, asked in a fresh process."""
    code = "from sightline import runtime; print(runtime.commit())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_commit_of_a_checkout(tmp_path):
    package = tmp_path / "src" / "sightline"
    package.mkdir(parents=True)
    for name in ("__init__.py", "runtime.py", "errors.py"):
        (package / name).write_bytes((SOURCE.parent / name).read_bytes())

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / ".gitignore").write_text("__pycache__\n")
    assert commit_in(tmp_path) == f"sightline {__version__}"
    git("init", "--quiet")
    assert commit_in(tmp_path) == f"sightline {__version__}"
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    head = git("rev-parse", "--short=12", "HEAD")
    assert commit_in(tmp_path) == head
    (package / "errors.py").write_bytes((package / "errors.py").read_bytes() + b"\n")
    assert commit_in(tmp_path) == f"{head}+dirty"


def test_default_precision_is_a_precision_and_constant():
    assert runtime.default_precision("cpu") in ("bfloat16", "float32")
    assert runtime.default_precision("cpu") == runtime.default_precision(torch.device("cpu"))


@pytest.mark.parametrize(("probe", "expected"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_default_precision_follows_the_processor(probe, expected, monkeypatch):
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        if probe is None:
            monkeypatch.delattr(torch.cpu, name, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda: probe, raising=False)
    assert runtime.default_precision("cpu") == expected


def test_peak_memory_is_in_bytes():
    assert 10**7 < runtime.peak_memory() < 10**12


def test_threads():
    before = torch.get_num_threads()
    try:
        assert runtime.set_threads(1) == torch.get_num_threads() == 1
        with pytest.raises(InputError, match="threads = 0"):
            runtime.set_threads(0)
    finally:
        torch.set_num_threads(before)


def test_devices():
    assert runtime.resolve_device("cpu") == torch.device("cpu")
    assert runtime.resolve_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("cpuu", "cuda:99", "", "meta"):
        with pytest.raises(InputError, match="allowed: auto, cpu"):
            runtime.resolve_device(name)
