"""`--plugins DIR`: what its files add is found by every command, and the commands that are named hand it on."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from sightline import plugins
from sightline.encodings import discovery

SLANTED = '''"""One file, and no other edit."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline.encodings import RotaryEncoding


@dataclass(frozen=True)
class SlantedConfig:
    base: float = 20.0


class Slanted(RotaryEncoding):
    """All channels turn with x + 2y."""

    names: ClassVar = {"slanted": {}}
    Config: ClassVar = SlantedConfig
    source: ClassVar = "this test"
    extrapolation: ClassVar = "the same coordinates"

    def angles(self, coords, grid, layer):
        y, x = coords.float().unsqueeze(1).unsqueeze(-1).unbind(-2)
        half = torch.arange(self.shape.head_dim // 2, device=coords.device).float()
        return (x + 2 * y) * self.config.base ** (-2 * half / self.shape.head_dim)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "my plug-ins"
    there.mkdir()
    (there / "slanted.py").write_text(SLANTED)
    return there


def sightline(*words: object) -> subprocess.CompletedProcess[str]:
    """A process of its own, which inherits no plug-ins."""
    environment = {key: value for key, value in os.environ.items() if key != plugins.FOLDERS}
    command = [sys.executable, "-m", "sightline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
def test_an_encoding_is_trained_and_its_next_command_measures_it(folder):
    words = ["--encoding", "slanted", "--data", "digits", "--images", 64, "--out", "run", "--threads", 1]
    tiny = [f"--model_options.{one}" for one in ("depth=1", "dim=48", "heads=4")]
    trained = sightline("train", "--plugins", folder.name, *words, *tiny)
    assert trained.returncode == 0, trained.stderr
    last = trained.stdout.splitlines()[-1]
    assert last == "next: sightline evaluate run --plugins 'my plug-ins'"
    measured = sightline(*shlex.split(last)[2:], "--resolutions", "16", "--images", 8, "--threads", 1)
    assert measured.returncode == 0, measured.stderr
    last = measured.stdout.splitlines()[-1]
    assert last.startswith("next: sightline report run ")
    assert last.endswith(" --plugins 'my plug-ins'")
    # Without it the encoding is not known, and nothing else fails.
    alone = sightline("evaluate", "run")
    assert (alone.returncode, "slanted" in alone.stderr, alone.stderr.count("\n")) == (2, True, 1)


@pytest.mark.slow
def test_it_may_stand_anywhere_and_is_in_the_help(cli, folder, monkeypatch):
    monkeypatch.setattr(plugins, "__path__", plugins.__path__[:])
    monkeypatch.setattr(discovery, "_found", dict(discovery._found))
    monkeypatch.setenv(plugins.FOLDERS, "")
    for words in (("encodings", f"--plugins={folder}", "slanted"), ("--plugins", folder, "encodings", "slanted")):
        code, out, err = cli(*words)
        assert (code, err) == (0, "")
        assert "this test" in out
    # A command after it names what it was given itself.
    assert "--plugins" not in cli("models")[1].splitlines()[-1]
    assert "--plugins" in cli("--help")[1]
    assert "--plugins" in cli("evaluate", "--help")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["encodings", "--plugins"], ["--plugins: expected a folder"]),
        (["encodings", "--plugins="], ["--plugins: expected a folder"]),
        (["encodings", "--plugins", "nowhere"], ["--plugins", "nowhere: no such folder"]),
        (["encodings", "--plugins", "my plug-ins/slanted.py"], ["is a file", "--plugins my plug-ins"]),
        (["encodings", "--plugins", "empty"], ["--plugins", "empty: holds no Python file"]),
    ],
)
def test_what_is_refused(words, says, refused, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(*words, says=says)


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_a_file_that_exits_is_named(code, tmp_path):
    (tmp_path / "leaves.py").write_text(f"import sys; sys.exit({code})")
    done = sightline("encodings", "--plugins", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"leaves.py: cannot be imported (SystemExit: {code})" in done.stderr
