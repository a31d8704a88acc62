"""Clips on the command line: trained on, measured with several numbers of frames, predicted, and refused in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sightline.cli.app import main
from sightline.results.predictions import read_predictions
from sightline.results.rows import read_rows
from tests.clips import frames_of, make, save_folder, save_gif, save_still

_MODEL = [f"--model_options.{name}={value}" for name, value in {"depth": 1, "dim": 48, "heads": 4}.items()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of some steps on a folder of clips."""
    out = tmp_path_factory.mktemp("runs") / "clips"
    words = [
        "--data",
        f"clips:{data}",
        "--model",
        "vit_micro_patch4",
        "--resolution",
        "12",
        "--frames",
        "4",
        "--images",
        "16",
    ]
    assert main(["train", *words, "--threads", "1", "--out", str(out), "--precision=float32", *_MODEL]) == 0
    return out


def test_rows_say_how_many_frames(run: Path, tmp_path: Path) -> None:
    trained = read_rows(run / "results.jsonl")
    assert {row.frames for row in trained} == {4}
    assert {row.grid for row in trained} == {(2, 3, 3)}
    out = tmp_path / "out"
    words = ["--frames", "8,2 4", "--resolutions", "12,native", "--threads", "1"]
    assert main(["evaluate", str(run), *words, "--out", str(out), "--logits"]) == 0
    measured = read_rows(out / "results.jsonl")
    rows = [row for row in measured if row.metric == "top1" and not row.slices]
    assert sorted((row.frames or 0, row.view, row.grid) for row in rows) == [
        (2, "native", None), (2, "square", (1, 3, 3)), (4, "native", None), (4, "square", (2, 3, 3)),
        (8, "native", None), (8, "square", (4, 3, 3)),
    ]  # fmt: skip
    at_4 = {row.metric: row.value for row in measured if row.frames == 4 and row.view == "square" and not row.slices}
    assert at_4 == {row.metric: row.value for row in trained if not row.slices}
    # What was said is of the clips as they were trained on.
    assert len(read_predictions(out / "predictions.csv")) == 2 * 8
    assert len(list((out / "logits").iterdir())) == 6


def test_what_is_measured_in_the_run_is_kept_by_its_frames(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    before = read_rows(copy / "results.jsonl")
    assert main(["evaluate", str(copy), "--frames", "2", "--resolutions", "12", "--precision", "float32"]) == 0
    rows = read_rows(copy / "results.jsonl")
    assert [row for row in rows if row.frames == 4] == before
    assert {row.frames for row in rows} == {2, 4}
    assert main(["report", str(copy), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "copy, 2 frames" in page
    assert "copy, 4 frames" in page


def test_predict_takes_files_and_folders(run: Path, data: Path, tmp_path: Path, capsys) -> None:
    folder = save_folder(tmp_path / "walk", frames_of(1, 6))
    gif, still = save_gif(tmp_path / "a.gif", frames_of(1, 6)), save_still(tmp_path / "b.png", frames_of(2, 1)[0])
    words = [str(folder), str(gif), str(still), f"clips:{data}"]
    capsys.readouterr()
    assert main(["predict", str(run), *words, "--precision", "float32", "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["image"] for one in said[:3]] == words[:3]
    assert len(said) == 3 + 16
    assert [(one["frames"], one["grid"]) for one in said[:3]] == [(4, [2, 3, 4]), (4, [2, 3, 4]), (1, [1, 3, 4])]
    assert said[0]["top"] == said[1]["top"]
    assert main(["predict", str(run), str(gif), "--precision", "float32", "--frames", "2"]) == 0
    assert (
        "16 x 12 px (width x height), 2 frames of it seen at 16 x 12 as 1 in time x 3 rows x 4 columns"
        in capsys.readouterr().out
    )
    assert main(["predict", str(run), str(still), "--precision", "float32"]) == 0
    assert ", 1 frame of it seen at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["predict", "{tiny}", "{gif}", "--frames", "2"], 2, "--frames 2: {tiny} takes images"),
        (["evaluate", "{tiny}", "--frames", "4"], 2, "--frames 4: this model's embedder 'patches' cuts images"),
        (["evaluate", "{tiny}", "--data", "moving"], 2, "data moving: is of clips"),
        (["evaluate", "{run}", "--data", "scenes", "--frames", "4"], 2, "data scenes: is of images, of one frame each"),
        (["evaluate", "{run}", "--frames", "4,x"], 2, "--frames x: expected whole numbers of frames"),
        (["evaluate", "{run}", "--frames", "0"], 2, "--frames 0: expected whole numbers of frames"),
        (["train", "--data", "moving", "--encoding", "rpe_learned"], 2, "encoding rpe_learned: a grid of 3 axes"),
        (["train", "--data", "moving", "--task", "segmentation", "--task-options.head", "pix"], 2, "segmentation"),
        (
            ["train", "--data", "moving", "--model_options.embedder=patches", "--model_options.embedder_options={}"],
            2,
            "is of clips",
        ),
        (["train", "--data", "clips:nowhere"], 2, "nowhere: no such folder"),
        (["predict", "{run}", "{empty}"], 2, "no clips in this folder"),
        (["predict", "{run}", "{broken}"], 3, "truncated"),
        (["pack", "stats", "clips:{data}"], 2, "is of clips"),
        (["data", "check", "moving"], 2, "comes with the package"),
    ],
    ids=lambda one: " ".join(one)[:40] if isinstance(one, list) else None,
)
def test_refusals_are_one_line(words, code, said, run, tiny_run, data, tmp_path, capsys) -> None:
    gif = save_gif(tmp_path / "a.gif", frames_of(0, 3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.gif").write_bytes(gif.read_bytes()[:-200])
    names = {
        "run": run,
        "tiny": tiny_run,
        "gif": gif,
        "empty": tmp_path / "empty",
        "broken": tmp_path / "broken.gif",
        "data": data,
    }
    given = [word.format(**names) if word.count("{") and "{}" not in word else word for word in words]
    if words[0] == "train":
        given += ["--out", str(tmp_path / "new"), "--images", "8"]
    elif words[0] == "evaluate":
        given += ["--out", str(tmp_path / "rows")]
    capsys.readouterr()
    assert main(given) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert said.format(**names) in lines[0]
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "rows").exists()


def test_data_check_counts_clips_and_says_what_to_train(data: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", f"clips:{data}"]) == 0
    said = capsys.readouterr().out
    assert f"sightline train --data clips:{data}" in said
    assert "navit" not in said
