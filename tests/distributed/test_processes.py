"""What a process says that another one made."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A worker hands a file to its parent in a thread (`multiprocessing.resource_sharer`), and finds the parent gone.
WORKER = """
import multiprocessing, sys
from sightline.distributed import processes

def worker():
    processes.exit_with_parent()
    try:
        raise {fault}
    except Exception:
        sys.excepthook(*sys.exc_info())

child = multiprocessing.get_context("fork").Process(target=worker)
child.start()
child.join()
"""


@pytest.mark.parametrize(
    ("fault", "said"),
    [("ConnectionResetError(104, 'reset')", False), ("EOFError", False), ("ValueError('another fault')", True)],
)
def test_a_connection_that_is_cut_is_no_fault(fault, said):
    done = subprocess.run([sys.executable, "-c", WORKER.format(fault=fault)], capture_output=True, text=True)
    assert done.returncode == 0
    assert bool(done.stderr) == said
