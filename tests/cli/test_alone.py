"""Two commands at once for one output: the second is refused before it works, and nothing of the first is lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sightline.cli.alone import hold, one_command
from sightline.errors import InputError
from tests.tiny import tree

# Another process, which makes the output of that name until it is told to end.
_HOLDING = """
import sys
from sightline.cli.alone import hold, one_command
with one_command():
    hold(sys.argv[1])
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def held(cache, tmp_path):
    """What another process makes."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", _HOLDING, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield out, process
        process.kill()


def test_what_another_command_writes_is_refused_before_any_work(held, refused, run_copy, tmp_path):
    out, _ = held
    before = tree(tmp_path)
    commands = (
        ("report", run_copy),
        ("export", run_copy, "--to", "onnx"),
        ("cascade", run_copy),
        ("table", run_copy),
        ("convert", "timm", tmp_path / "none.safetensors", out),
    )
    for words in commands:
        option = {"export": ("--output", out), "convert": ()}.get(words[0], ("--out", out))
        refused(*words, *option, says=[str(out), "another command is writing it now"])
    assert tree(tmp_path) == before


def test_a_link_and_other_words_name_the_same_output(held, tmp_path):
    _out, _ = held
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (tmp_path / "link" / "out", tmp_path / "link" / ".." / tmp_path.name / "out"):
        with one_command(), pytest.raises(InputError, match="another command is writing it now"):
            hold(other)
    with one_command():
        hold(tmp_path / "another")


def test_it_is_free_when_its_command_has_ended_or_was_killed(held, cache):
    out, process = held
    process.kill()
    process.wait()
    for _ in range(2):
        with one_command():
            hold(out)
            # Its own place is no other's.
            hold(out)
    assert list((cache / "writing").iterdir()) == []


def test_where_nothing_can_be_kept_nobody_is_refused(held, tmp_path, monkeypatch):
    out, _ = held
    for nowhere in ("", os.devnull):
        monkeypatch.setenv("SIGHTLINE_CACHE", nowhere)
        with one_command():
            hold(out)
