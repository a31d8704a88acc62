"""Pictures of answers: evaluation writes them, rows name them, a report shows them, and they go with their rows."""

from __future__ import annotations

import base64
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from sightline import load_model
from sightline.cli.app import main
from sightline.data.open import open_source
from sightline.evaluation import EvaluateConfig, evaluate, measure
from sightline.evaluation.measure import RunInfo
from sightline.tasks.drawing import class_colours, overlay, sheet

WORDS = ["--data", "scenes:pairs", "--task", "segmentation", "--model_options={depth: 1, dim: 48, heads: 4}",
         "--batch_size=16", "--images", "32", "--resolution", "16"]  # fmt: skip


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(measure, "default_image_count", lambda source: 12)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("drawn") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "default_image_count", lambda source: 12)
        assert main(["train", *WORDS, "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run", symlinks=True)


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_rows_name_what_was_drawn_and_a_report_shows_it(run, tmp_path, capsys):
    assert main(["evaluate", str(run), "--resolutions", "16,24", "--images", "6"]) == 0
    named = [row["picture"] for row in rows_of(run / "results.jsonl") if "picture" in row]
    sizes = ["16_px", "24_px", "24_px_shrunk_to_16_px"]
    assert [name.rpartition("_")[0] for name in named] == [f"pictures/scenes_pairs_test_{size}" for size in sizes]
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    for name in named:
        picture = Image.open(run / name)
        assert picture.height > 100
        shown = [base64.b64decode(part.split('"')[0]) for part in page.split("data:image/png;base64,")[1:]]
        assert any((np.asarray(Image.open(io.BytesIO(one))) == np.asarray(picture)).all()
                   for one in shown if Image.open(io.BytesIO(one)).size == picture.size)  # fmt: skip
    # A name that leads out of the folder is not followed.
    lines = (run / "results.jsonl").read_text().replace(named[0], "../secret.png")
    (run / "results.jsonl").write_text(lines)
    Image.new("RGB", (300, 20), "red").save(tmp_path / "secret.png")
    assert main(["report", str(run), "--out", str(tmp_path / "other.html")]) == 0
    assert 'width="300"' not in (tmp_path / "other.html").read_text()
    capsys.readouterr()


@pytest.mark.slow
def test_measurements_that_rows_tell_apart_have_pictures_of_their_own(run):
    """Of other data, and looked at otherwise: what an earlier row names stays what it saw."""
    for data in ("scenes:pairs", "scenes:many"):
        assert main(["evaluate", str(run), "--resolutions", "16", "--images", "4", "--data", data]) == 0
    rows = [row for row in rows_of(run / "results.jsonl") if "picture" in row]
    assert len({row["picture"] for row in rows}) == len({(row["data"], row["resolution"]) for row in rows}) == 2
    model, source = load_model(run), open_source("scenes:pairs")
    config = EvaluateConfig((16, 24), images=4, task_options={"inference": {"flip": True}})
    pictures = {}
    found = evaluate(model, source, config, RunInfo("run", "scenes:pairs", 16, 0), pictures=pictures)
    assert len(pictures) == 3
    assert not {row["picture"] for row in rows} & set(pictures)
    # The shrunk ones too were looked at so, and are measured.
    assert {row.shrunk for row in found if row.metric == "miou"} == {None, 16}
    assert {row.slices["inference"] for row in found} == {"mirrored too"}


@pytest.mark.slow
def test_options_of_the_task_by_the_command(run, tmp_path, capsys):
    """Windows are looked through; what cannot be is refused before anything is measured."""
    words = ["evaluate", str(run), "--resolutions", "16,24", "--images", "4", "--out", str(tmp_path / "rows")]
    windows = [
        "--task-options.inference.kind=mmseg",
        "--task-options.inference.window=16",
        "--task-options.inference.stride=8",
    ]
    for wrong, says in (
        (["--task-options.inference.kind=slide"], "slide"),
        (
            [*windows[:1], "--task-options.inference.window=18", "--task-options.inference.stride=8"],
            "nearest to 18: 16 or 20",
        ),
        (["--task-options.thresold=0.1"], "thresold"),
    ):
        assert main([*words, *wrong]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1
        assert not (tmp_path / "rows" / "results.jsonl").exists()
    assert main([*words, *windows]) == 0
    assert {row["slices"]["inference"] for row in rows_of(tmp_path / "rows" / "results.jsonl")} == {"mmseg 16/8"}
    # Beside those of whole images they are a line of their own.
    assert main([*words[:-2], *windows]) == 0
    assert main(words[:-2]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "run, mmseg 16/8" in page
    assert "by inference" not in page


def test_rows_elsewhere_have_their_pictures_beside_them(run, tmp_path):
    out = tmp_path / "elsewhere" / "rows"
    assert main(["evaluate", str(run), "--resolutions", "16", "--images", "6", "--out", str(out)]) == 0
    (named,) = (row["picture"] for row in rows_of(out / "results.jsonl") if "picture" in row)
    assert (out / named).is_file()


@pytest.mark.slow
def test_a_run_that_is_replaced_loses_its_pictures(run):
    assert (run / "pictures").is_dir()
    (run / "pictures" / "old_64_px.png").write_bytes(b"")
    assert main(["train", *WORDS, "--out", str(run), "--overwrite"]) == 0
    assert [file.name.rpartition("_")[0] for file in (run / "pictures").iterdir()] == ["scenes_pairs_test_16_px"]
    (run / "pictures" / "mine.txt").write_text("kept")
    assert main(["train", *WORDS, "--out", str(run), "--overwrite"]) == 2
    assert (run / "pictures" / "mine.txt").read_text() == "kept"


def test_pictures_of_predict(run, tmp_path, capsys):
    for name, size in (("a", (20, 30)), ("b", (50, 18))):
        Image.new("RGB", size, "green").save(tmp_path / f"{name}.png")
    (tmp_path / "more").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "more" / "a.png")
    files = [str(tmp_path / name) for name in ("a.png", "b.png", "more/a.png")]
    words = ["predict", str(run), *files, "--out", str(tmp_path / "drawn")]
    assert main(words) == 0
    names = {file.name for file in (tmp_path / "drawn").iterdir()}
    assert names == {"sheet.png", *(f"{one}.{what}.png" for one in ("a", "b", "a-2") for what in ("labels", "overlay"))}
    assert np.asarray(Image.open(tmp_path / "drawn" / "b.labels.png")).shape == (18, 50)
    capsys.readouterr()
    assert main(words) == 2
    assert main([*words, "--overwrite"]) == 0
    assert main(["predict", str(run), files[0], "--out", files[1]]) == 2
    assert Image.open(files[1]).size == (50, 18)


def test_colours_are_told_apart():
    colours = class_colours(256)
    assert len(np.unique(colours, axis=0)) == 256
    assert colours[:5].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]]


def test_an_overlay_leaves_the_background():
    image = np.full((2, 3, 3), 200, np.uint8)
    labels = np.array([[0, 255, 1], [2, 0, 0]], np.uint8)
    drawn = np.asarray(overlay(image, labels))
    assert (drawn[labels == 0] == 200).all()
    assert (drawn[0, 1] == 200).all()
    assert drawn[0, 2].tolist() == [160, 90, 90]


@pytest.mark.parametrize("count", [1, 5, 13])
def test_a_sheet_holds_all_of_its_pictures_and_its_legend(count):
    pictures = [(f"name {number}", Image.new("RGB", (40, 30 + number), "blue")) for number in range(count)]
    legend = [(f"class {number}", (255, 0, 0)) for number in range(30)]
    made = np.asarray(sheet(pictures, legend))
    blue, red = ((made == colour).all(axis=-1).sum() for colour in ([0, 0, 255], [255, 0, 0]))
    assert blue == sum(40 * (30 + number) for number in range(count))
    assert red >= 30 * 60
