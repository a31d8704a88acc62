"""Faults as a shell sees them: the real exit code, one line, no traceback; also without UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.tiny import INPUTS, tree


def sightline(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sightline", *map(str, words)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"), [(["train", "--data", "imagefolder:nowhere"], 2), (["evaluate", INPUTS / "truncated.pt"], 2)]
)
def test_exit_codes(words, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = sightline(*words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.startswith(b"sightline: error: ")
    assert done.stderr.count(b"\n") == 1
    assert tree(tmp_path) == {}


@pytest.mark.slow
def test_names_that_the_terminal_cannot_print(tiny_run, tmp_path):
    """A name that is not UTF-8, and one that is not ASCII: answered all the same."""
    picture = Image.fromarray(np.zeros((8, 12, 3), np.uint8))
    names = [os.fsencode(tmp_path) + b"/\xff.png", os.fsencode(tmp_path / "ä ♥.png"), os.fsencode(tmp_path / "no.png")]
    for name in names[:2]:
        with open(name, "wb") as stream:
            picture.save(stream, "PNG")
    words = [sys.executable, "-m", "sightline", "predict", str(tiny_run), *names]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, env=environment)
    assert done.returncode == 3, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert b"Traceback" not in done.stderr
    done = subprocess.run([*words, "--json"], capture_output=True, env=environment)
    found = [json.loads(line)["image"] for line in done.stdout.splitlines()]
    assert [os.fsencode(name) for name in found] == names
