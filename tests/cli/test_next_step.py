"""The last line of a command is the next one to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from sightline.cli import next_step
from sightline.predictions import read_predictions
from tests.tiny import pictures


def following(said: str) -> list[str]:
    """The words of the line that a command ended with."""
    last = said.splitlines()[-1]
    assert last.startswith("next: sightline "), said
    return shlex.split(last)[2:]


def test_found_34_each_line_can_be_pasted(cli, tmp_path, monkeypatch):
    """From a folder with spaces in its name to an export, with no option looked up; once more over what is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(next_step.importlib.util, "find_spec", lambda name: None)
    words = ["train", "--data", pictures(tmp_path / "my pictures"), "--model", "vit_micro_patch4", "--resolution", "16"]
    words += ["--images", "8", "--set", "model_options.depth=1", "--set", "packing.tokens=200", "--out", "runs/a b"]
    seen = []
    for _ in range(2):
        while words[0] != "export":
            code, out, err = cli(*words)
            assert code == 0, err
            seen.append(words[0])
            words = following(err if words[0] == "predict" else out)
        assert seen[-1] == "predict"
        assert words == ["export", "runs/a b", "--to", "torch", "--output", "a b.pt2", "--check"]
        words = ["evaluate", "runs/a b"]
    assert seen == ["train", *(2 * ["evaluate", "cascade", "report", "predict"])]
    Path("a b.pt2").touch()
    code, _, err = cli("predict", "runs/a b", "my pictures/test/a/0.png")
    assert (code, following(err)[-2:]) == (0, ["--overwrite", "--check"])


def test_found_34_where_sightline_is_not_on_the_path_it_is_named_as_it_was_called(monkeypatch):
    monkeypatch.setattr(sys, "argv", [".venv/bin/sightline", "train"])
    monkeypatch.setattr(next_step.shutil, "which", lambda name: None)
    assert next_step.command("evaluate", Path("a b"), None, 3) == ".venv/bin/sightline evaluate 'a b' 3"
    monkeypatch.setattr(next_step.shutil, "which", lambda name: "/bin/sightline")
    assert next_step.command("evaluate") == "sightline evaluate"


@pytest.mark.parametrize(
    ("run", "expected"), [("runs/a", "runs/a_cascade"), (".", "{here}_cascade"), ("/x/a", "/x/a_cascade")]
)
def test_what_is_written_beside_a_run(run, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert next_step.beside(Path(run), "_cascade") == Path(expected.format(here=tmp_path))


def test_after_a_report_on_drawn_images_there_is_none_to_predict(cli, run_copy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_predictions(run_copy / "predictions.csv")[0].name.startswith("digits/test/")
    code, out, _ = cli("report", run_copy)
    assert (code, following(out)[:2]) == (0, ["export", str(run_copy)])
