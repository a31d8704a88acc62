"""The last line of a command is the next one to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

import sightline
from sightline import create_model, save_model
from sightline.cli import next_step
from tests.tiny import pictures


def following(said: str) -> list[str]:
    """The words of the line that a command ended with."""
    last = said.splitlines()[-1]
    assert last.startswith("next: sightline "), said
    return shlex.split(last)[2:]


@pytest.mark.slow
def test_found_34_each_line_can_be_pasted(cli, tmp_path, monkeypatch):
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


def test_what_was_trained_is_never_offered_to_be_trained_over(tmp_path):
    """`train --overwrite` would delete it."""
    run = tmp_path / "runs" / "digits"
    assert next_step.free(run) == run
    run.mkdir(parents=True)
    assert next_step.free(run) == run.with_name("digits_2")
    run.with_name("digits_2").mkdir()
    assert next_step.free(run) == run.with_name("digits_3")


def test_no_export_is_offered_of_what_is_not_exported(cli, tmp_path):
    """Windows and clips have no program for every size."""
    small = {"image_size": 8, "num_classes": 2, "depth": 1, "dim": 48}
    stages = {"depths": [1], "heads": [4]}
    for name, options in (
        ("vit_micro_patch4", {**small, "heads": 4}),
        ("vit_micro_patch4", {**small, "heads": 4, "embedder": "tubelets"}),
        ("swin_micro_patch4", {**small, "heads": 4, "architecture_options": stages}),
    ):
        folder = tmp_path / f"{name}_{options.get('embedder')}"
        save_model(create_model(name, **options), folder)
        Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
        code, _, err = cli("predict", folder, tmp_path / "one.png")
        assert code == 0
        assert ("export" in err) == (folder.name == "vit_micro_patch4_None"), err


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


def others(said: str, what: str) -> list[str]:
    """The words of the one other command that was named."""
    (line,) = [line for line in said.splitlines() if line.startswith(f"or {what}: ")]
    return shlex.split(line.rpartition(": sightline ")[2])


@pytest.mark.slow
def test_the_packed_training_is_offered(cli, tmp_path, monkeypatch):
    """By the check of the data; both commands train."""
    monkeypatch.chdir(tmp_path)
    data = pictures(tmp_path / "my pictures")
    short = ["--images", "8", "--model", "vit_micro_patch4", "--model_options.depth=1", "--threads", "1"]
    code, out, _ = cli("data", "check", data)
    packed = ["train", "--recipe", "navit_imagefolder", "--data", data, "--out", "runs/my pictures_packed"]
    assert (code, others(out, "packed, each at its own aspect")) == (0, packed)
    assert following(out) == ["train", "--data", data, "--out", "runs/my pictures"]
    sized = ["--resolution", "16", "--packing.tokens=200", "--packing.resolutions=[8,16]"]
    assert cli(*following(out), *short, "--resolution", "16")[0] == 0
    assert cli(*packed, *short, *sized)[0] == 0


@pytest.mark.slow
def test_each_list_names_a_command_that_works(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert following(cli("models")[1])[:2] == ["bench", "memory"]
    code, out, err = cli(*following(cli("models")[1]))
    assert (code, following(out)) == (0, ["bench", "model", "--quick"]), err
    data = pictures(tmp_path / "mine")
    words = following(cli("pack", "stats", data)[1])
    assert words == ["train", "--recipe", "navit_imagefolder", "--data", data, "--out", "runs/mine_packed"]
    assert following(cli("pack", "stats", "scenes:pairs", "--images", 9)[1])[-2:] == ["--data", "scenes:pairs"]
    words = following(cli("pack", "stats", "digits", "--images", 9)[1])
    assert words == ["train", "--data", "digits", "--packing.tokens", "1024"]


@pytest.mark.parametrize(("name", "options", "offered"), [
    ("swin_micro_patch4", {}, False),
    ("vit_micro_patch4", {"embedder": "tubelets", "clip_frames": 4, "encoding": "rope_axial"}, False),
    ("axial_vit_micro_patch4", {"depth": 2}, True),
])  # fmt: skip
def test_an_export_is_offered_of_what_is_exported(name, options, offered, tmp_path, capsys):
    sightline.save_model(sightline.create_model(name, **options), tmp_path / "m")
    next_step.say_export(tmp_path / "m")
    assert capsys.readouterr().out.startswith("next: sightline export ") == offered
