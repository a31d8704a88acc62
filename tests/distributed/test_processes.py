"""What a process says that another one made, when that one is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# A worker hands a file to its parent in a thread (`multiprocessing.resource_sharer`), and finds the parent gone.
WORKER = """
import multiprocessing, os, signal, sys, time
from sightline.distributed import processes
processes.PATIENCE = {patience}

def worker(parent):
    processes.exit_with_parent()
    parent.send("begun")
    try:
        raise {fault}
    except Exception:
        sys.excepthook(*sys.exc_info())

if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=worker, args=(there,))
    child.start()
    here.recv()
    time.sleep(0.2)
    if {killed}:
        os.kill(os.getpid(), signal.SIGKILL)
    child.join()
"""


@pytest.mark.parametrize(
    ("fault", "killed", "said"),
    [
        ("ConnectionResetError(104, 'Connection reset by peer')", True, ""),
        ("EOFError", True, ""),
        ("ConnectionResetError(104, 'Connection reset by peer')", False, "Connection reset by peer"),
        ("ValueError('another fault')", True, "another fault"),
    ],
)
def test_a_connection_that_ends_with_the_parent_is_no_fault(fault, killed, said, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(fault=fault, killed=killed, patience=60.0 if killed else 0.0))
    # Its standard error ends when the worker has ended too.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)
