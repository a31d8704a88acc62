"""The last line of a command is the next one to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from sightline.cli import next_step
from tests.tiny import pictures


def following(said: str) -> list[str]:
    """The words of the line that a command ended with."""
    last = said.splitlines()[-1]
    assert last.startswith("next: sightline "), said
    return shlex.split(last)[2:]


@pytest.mark.slow
def test_each_line_can_be_pasted(cli, tmp_path, monkeypatch):
    """From a folder with spaces in its name to an export, with no option looked up; once more over what is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(next_step.importlib.util, "find_spec", lambda name: None)
    words = ["train", "--data", pictures(tmp_path / "my pictures"), "--model", "vit_micro_patch4", "--resolution", "16"]
    words += ["--images", "8", "--model_options.depth=1", "--packing.tokens=200", "--out", "runs/a b"]
    seen = []
    for _ in range(2):
        while words[0] != "export":
            code, out, err = cli(*words)
            assert code == 0, err
            seen.append(words[0])
            words = following(out)
        assert words == ["export", "runs/a b", "--to", "torch", "--output", "a b.pt2", "--check"]
        words = ["evaluate", "runs/a b"]
    assert seen == ["train", *(2 * ["evaluate", "report"])]
    Path("a b.pt2").touch()
    code, _, err = cli("predict", "runs/a b", "my pictures/test/a/0.png")
    assert (code, following(err)[-2:]) == (0, ["--overwrite", "--check"])


def test_where_sightline_is_not_on_the_path_it_is_named_as_it_was_called(monkeypatch):
    monkeypatch.setattr(sys, "argv", [".venv/bin/sightline", "train"])
    monkeypatch.setattr(next_step.shutil, "which", lambda name: None)
    assert next_step.command("evaluate", Path("a b"), None, 3) == ".venv/bin/sightline evaluate 'a b' 3"
    monkeypatch.setattr(next_step.shutil, "which", lambda name: "/bin/sightline")
    assert next_step.command("evaluate") == "sightline evaluate"


@pytest.mark.slow
def test_each_list_names_a_command_that_works(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert following(cli("models")[1])[:2] == ["bench", "memory"]
    code, out, err = cli(*following(cli("models")[1]))
    assert (code, following(out)) == (0, ["bench", "model", "--quick"]), err
    data = pictures(tmp_path / "mine")
    words = following(cli("pack", "stats", data)[1])
    budget = ["--packing.tokens", "1024", "--model-options.patch-size", "16"]
    assert words == ["train", "--recipe", "navit_imagefolder", "--data", data, "--out", "runs/mine_packed", *budget]
    words = following(cli("pack", "stats", "digits", "--images", 9)[1])
    assert words[1:] == ["--data", "digits", "--out", "runs/digits_packed", "--packing.tokens", "1024"]
