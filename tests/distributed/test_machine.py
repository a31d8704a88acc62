"""What this machine is: the same answer every time, and never an exception."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sightline.distributed import machine
from sightline.errors import InputError


def test_hardware_names_the_processor_and_the_cores():
    words = machine.hardware_name().split(", ")
    assert words[0]
    assert words[1] in (f"{machine.cpu_count()} cores", "1 core")
    assert machine.hardware_name() == machine.hardware_name()


def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    """Resource usage is inherited: a small child of a large parent would be large."""
    ballast = bytearray(600 * 2**20)
    ballast[:: 2**12] = b"x" * len(ballast[:: 2**12])
    code = "from sightline.distributed import machine; print(machine.peak_memory())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) < 200 * 2**20


@pytest.mark.parametrize("count", [17, 100_000_000])
def test_workers_beyond_any_use(count, refused, tmp_path, tiny_run):
    """Refused before one is started, and before the run's folder is made."""
    says = [f"workers {count}", "at most 16", "1 cores"]
    refused("train", "--data", "digits", "--images", 8, f"--workers={count}", "--out", tmp_path / "r", says=says)
    refused("evaluate", tiny_run, "--resolutions", 16, "--workers", count, says=says)
    refused("cascade", tiny_run, "--workers", count, "--out", tmp_path / "c", says=says)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variable", "asked", "threads"),
    [("3", None, 3), ("3", 2, 2), ("", None, 5), ("0", None, 5), ("2,1", None, 5), ("200", None, 5)],
)
def test_threads_are_those_of_the_option_the_variable_or_the_cores(variable, asked, threads, monkeypatch):
    monkeypatch.setattr(machine, "cpu_count", lambda: 5)
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert machine.set_threads(asked) == threads
    assert torch.get_num_threads() == threads


def test_threads_beyond_any_use(refused, tiny_run, tmp_path, monkeypatch):
    refused("evaluate", tiny_run, "--threads", 1_000_000, says=["threads 1000000", "at most 64"])
    monkeypatch.setattr(machine, "cpu_count", lambda: 100)
    with pytest.raises(InputError, match="at most 800 here"):
        machine.set_threads(801)
    assert machine.check_workers(800) == 800
