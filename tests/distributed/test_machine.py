"""What this machine is: the same answer every time, and never an exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sightline import __version__
from sightline.distributed import machine
from sightline.errors import InputError

SOURCE = Path(machine.__file__)


def test_hardware_names_the_processor_and_the_cores():
    words = machine.hardware_name().split(", ")
    assert words[0]
    assert words[1] in (f"{machine.cpu_count()} cores", "1 core")
    assert machine.hardware_name() == machine.hardware_name()


def commit_in(root: Path) -> str:
    """What `commit` says for the sources in a folder, asked in a fresh process."""
    code = "from sightline.distributed import machine; print(machine.git_commit())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_commit_of_a_checkout(tmp_path):
    package = tmp_path / "src" / "sightline"
    for name in ("__init__.py", "errors.py", "distributed/__init__.py", "distributed/machine.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes((SOURCE.parents[1] / name).read_bytes())

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


def test_peak_memory_is_in_bytes():
    assert 10**7 < machine.peak_memory() < 10**12


def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    """Resource usage is inherited: a small child of a large parent would be large."""
    ballast = bytearray(600 * 2**20)
    ballast[:: 2**12] = b"x" * len(ballast[:: 2**12])
    code = "from sightline.distributed import machine; print(machine.peak_memory())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) < 200 * 2**20


def test_a_peak_is_forgotten_where_the_system_can():
    known = machine.reset_peak_memory()
    ballast = bytearray(200 * 2**20)
    ballast[:: 2**12] = b"x" * len(ballast[:: 2**12])
    high = machine.peak_memory()
    del ballast
    assert machine.reset_peak_memory() is known
    assert not known or machine.peak_memory() < high - 100 * 2**20


def test_a_system_that_only_seems_to_forget_is_seen(monkeypatch):
    monkeypatch.setattr(machine, "_read_fields", lambda _: {"VmHWM": "9000 kB", "VmRSS": "5000 kB"})
    assert not machine.reset_peak_memory()
    monkeypatch.setattr(machine, "_read_fields", lambda _: {})
    assert not machine.reset_peak_memory()


def test_threads():
    before = torch.get_num_threads()
    try:
        assert machine.set_threads(1) == torch.get_num_threads() == 1
        with pytest.raises(InputError, match="threads = 0"):
            machine.set_threads(0)
    finally:
        torch.set_num_threads(before)


def test_devices():
    assert machine.resolve_device("cpu") == machine.resolve_device(torch.device("cpu")) == torch.device("cpu")
    assert machine.resolve_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("cpuu", "cuda:99", "", "meta"):
        with pytest.raises(InputError, match="allowed: auto, cpu"):
            machine.resolve_device(name)


def test_available_memory_of_this_machine():
    assert 10**7 < machine.available_memory() < 10**14
    assert machine.available_memory(torch.device("cpu")) > 10**7


@pytest.mark.parametrize("count", [17, 100_000_000])
def test_found_21_workers_beyond_any_use(count, refused, tmp_path, tiny_run):
    """Refused before one is started, and before the run's folder is made."""
    says = [f"workers {count}", "at most 16", "1 cores"]
    refused("train", "--data", "digits", "--images", 8, f"--workers={count}", "--out", tmp_path / "r", says=says)
    refused("evaluate", tiny_run, "--resolutions", 16, "--workers", count, says=says)
    refused("cascade", tiny_run, "--workers", count, "--out", tmp_path / "c", says=says)
    assert not any(tmp_path.iterdir())


def test_found_21_threads_beyond_any_use(refused, tiny_run, tmp_path, monkeypatch):
    refused("evaluate", tiny_run, "--threads", 1_000_000, says=["threads 1000000", "at most 64"])
    monkeypatch.setattr(machine, "cpu_count", lambda: 100)
    with pytest.raises(InputError, match="at most 800 here"):
        machine.set_threads(801)
    assert machine.check_workers(800) == 800


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP")
@pytest.mark.parametrize(("given", "expected"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_of_a_command_wait_for_one_another_only_briefly(given, expected):
    """They turned for milliseconds an operator: beside other work a packed step took 12 times its processor time."""
    code = "import os, sightline.cli.app as app; app._run = lambda _: print(os.environ['GOMP_SPINCOUNT']); app.main()"
    environment = {"PATH": "/usr/bin:/bin"} | given
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
