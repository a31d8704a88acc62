"""Memory that is not there: a line that warns before the work, and one that says what failed."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from PIL import Image

from tests.tiny import tree

ABSURD = 8 * 10**5
# Bytes of addresses: where the system gives no more, whatever else is at work.
LIMIT = 12 << 30


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "{run}", "--resolutions", ABSURD],
        pytest.param(
            ["predict", "{run}", "{run}/a.png", "--resolution", f"tokens:{4 * 10**10}"], marks=pytest.mark.slow
        ),
        pytest.param(
            ["train", "--data", "digits", "--out", "{run}_new", "--resolution", ABSURD], marks=pytest.mark.slow
        ),
    ],
    ids=["evaluate", "predict", "train"],
)
def test_memory_that_is_not_there(words, run_copy):
    Image.new("RGB", (20, 20)).save(run_copy / "a.png")
    before = tree(run_copy)
    done = subprocess.run(
        [sys.executable, "-m", "sightline", *(str(word).format(run=run_copy) for word in words)],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert len(lines) == 2, lines
    warned, said = lines
    assert (done.returncode, done.stdout) == (1, "")
    assert warned.startswith("sightline: warning: ")
    assert f"{ABSURD} px" in warned
    assert said.startswith("sightline: error: ")
    assert tree(run_copy) == before
