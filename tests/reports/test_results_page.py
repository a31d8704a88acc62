"""The results page on synthetic content: one file, whole, escaped, and with every number of the rows."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from sightline.errors import InputError, StorageError
from sightline.reports import results_page
from sightline.reports.content import FieldsOfViewFigure, LossCurve, RunSummary, Sample, SeenSizes
from sightline.reports.results_page import data_words, encoding_words, render, write_report
from sightline.reports.words import duration
from sightline.results.rows import wilson_interval
from tests.pages import Page
from tests.reports.synthetic import (
    VALUES,
    accuracy_rows,
    all_rows,
    at,
    full_report,
    page,
    page_of,
    picture,
    row,
    run_summary,
)

HOSTILE = '<script>alert("1")</script>'
TOP1 = "Top-1 accuracy in %, split test"


@functools.cache
def full_text() -> str:
    return render(full_report())


def test_page_is_balanced_and_needs_nothing_else(figures):
    text = full_text()
    shown = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert "script" not in shown.tags
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\((?!#)", text)
    assert shown.links
    for link in shown.links:
        assert link.startswith("data:image/png;base64,") or link[1:] in shown.ids, link[:80]
    assert len(shown.ids) == len(set(shown.ids)), "an id is used twice"
    assert all(reference in shown.ids for reference in re.findall(r"url\(#([^)]+)\)", text))


def test_another_process_gives_the_same_bytes(figures):
    code = (
        "import sys, hashlib; from sightline.reports.results_page import render;"
        "heavy = [name for name in ('torch', 'matplotlib', 'jinja2', 'rich', 'PIL') if name in sys.modules];"
        "from tests.reports.synthetic import full_report; text = render(full_report());"
        "assert 'torch' not in sys.modules; print(heavy, hashlib.sha256(text.encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[] {hashlib.sha256(full_text().encode()).hexdigest()}"


def test_every_section_run_and_number_is_there():
    report = full_report()
    shown = Page(render(report))
    assert shown.sections == [
        "curve", "numbers", "sizes", "groups", "fonts", "samples", "views", "training", "again",
    ]  # fmt: skip
    numbers = shown.table(TOP1)
    for item in report.rows:
        low, high = wilson_interval(item.value, item.images)
        cell = f"{100 * item.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        assert cell in shown.text, item
        if item.metric == "top1" and not item.slices and item.split == "test":
            assert numbers[item.run, at(item.resolution)] == cell
    said = [*(run.about for run in report.runs), *report.notes, *report.other_commands, report.command]
    for words in (*said, report.hardware, report.commit, report.created, "8 min 32 s", "sample 1", '"rate": 0.0015'):
        assert words in shown.text, words
    training = shown.table("What each run saw and took")
    said = [training["looker", line] for line in ("training", "parameters", "knob now / default")]
    assert said == ["2 min 58 s", "1,812,504", "slope 0.5 / 1"]


def test_best_of_a_column_is_bold():
    text = render(full_report(rows=accuracy_rows({"a": [0.25, 0.75], "b": [0.5, 0.25]}, [32, 64]), runs=[]))
    assert re.findall(r"<td[^>]*><b>([\d.]+)</b>", text) == ["75.0", "50.0"]


def test_hostile_names_are_only_text(figures):
    values = {HOSTILE: [0.5, 0.4], "b": [0.3, 0.2]}
    rows = accuracy_rows(values, [32, 64])
    rows += [row(HOSTILE, 0.4, 32, slices={"group": "<script>"}), row(HOSTILE, 0.4, 32, split="heldout_fonts")]
    run = run_summary(HOSTILE, config={HOSTILE: HOSTILE}, knob_name=HOSTILE, about=HOSTILE, precision=HOSTILE)
    field = FieldsOfViewFigure(HOSTILE, 0, (2, 2), np.ones((1, 2, 2), np.float32))
    report = full_report(
        title=HOSTILE, command=HOSTILE, runs=[run], rows=rows, hardware=HOSTILE, commit=HOSTILE, created=HOSTILE,
        notes=[HOSTILE], other_commands=[HOSTILE], fields=[field],
        samples={32: [Sample(picture(32), '"><script>x</script>')]},
    )  # fmt: skip
    text = render(report)
    shown = Page(text)
    assert "script" not in shown.tags
    assert "<script" not in text.lower()
    assert HOSTILE in shown.text


@pytest.mark.parametrize(
    "missing",
    [
        {"fields": []},
        {"samples": {}},
        {"runs": []},
        {"rows": accuracy_rows({"solo": [0.5]}, [32]), "runs": [RunSummary("solo", "none")]},
        {"rows": [row(metric="top5")]},
        {"rows": [row(split="heldout_fonts")]},
        {"rows": [row(split="minival")]},
        {"rows": accuracy_rows({"solo": [0.5]}, [64])},
        {"runs": [run_summary(loss=LossCurve(), knob=None, knob_name=None, knob_default=None, config={})]},
        {"notes": [], "other_commands": [], "hardware": "", "commit": "", "created": "", "seconds_total": 0.0},
    ],
)
def test_parts_may_be_missing(missing):
    shown = Page(render(full_report(**missing)))
    assert all(link[1:] in shown.ids for link in shown.links if link.startswith("#"))


def test_minimal_report_needs_only_rows():
    assert set(VALUES) <= {line for line, _ in page(accuracy_rows()).table(TOP1)}
    rows = [*all_rows(), row("stranger", 0.111, 32)]
    assert Page(render(full_report(rows=rows))).table(TOP1)["stranger", at(32)].startswith("11.1 ")


@pytest.mark.parametrize("fault", ["rows", "absent", "taken", "full"])
def test_a_page_that_cannot_be_written_leaves_what_was_there(fault, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    if fault == "full":
        monkeypatch.setattr(os, "replace", fail)
    elif fault != "rows":
        path = tmp_path / fault / "report.html"
        if fault == "taken":
            path.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError if fault == "rows" else StorageError) as caught:
        write_report(path, full_report(rows=[]) if fault == "rows" else page_of("uniform"))
    if fault in ("absent", "taken"):
        assert str(path) in str(caught.value)
    assert (tmp_path / "report.html").read_text() == "before"
    assert sorted(tmp_path.rglob("*")) == before


def test_any_text_can_be_written(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, page_of("uniform", title="lone \udcff surrogate, 名前"))
    assert "名前" in path.read_text("utf-8")


def test_pictures_are_embedded_whole():
    image = picture(32, seed=5)
    shown = Page(render(full_report(samples={32: [Sample(image, "one")]}, fields=[])))
    link = next(link for link in shown.links if link.startswith("data:"))
    assert (np.asarray(Image.open(BytesIO(base64.b64decode(link.partition(",")[2])))) == image).all()


def test_dashed_lines_are_explained_where_there_are_some():
    default, tuned = row("a", 0.5, 64, knob=1.0), row("a", 0.7, 64, knob=0.25, tuned=True)
    for rows, dashed, searched in (([default], False, False), ([tuned], False, True), ([default, tuned], True, True)):
        text = page(rows).text
        assert ("dashed lines" in text) == dashed
        assert ("searched" in text) == searched


def opening(rows, runs=()) -> str:
    return page(rows, runs).text.split("t t ", 1)[-1]


def test_introduction_says_what_was_trained_and_tested():
    text = opening(accuracy_rows(), [run_summary(name) for name in VALUES])
    for words in ("Three ", "(1.8 million", "patches of 4", "48,000", "20 to 148 px", "position encoding"):
        assert words in text, words
    assert "One " in opening([row("a")])
    parts, whole = (Page(render(page_of(kind))).text for kind in ("parts", "uniform"))
    assert "35 %" in parts
    assert "35 %" not in whole
    assert ["once" in opening(rows) for rows in ([row(), row("b", seed=1)], [row(), row(seed=1)])] == [True, False]


def test_models_of_several_kinds_are_not_said_to_differ_in_their_encoding_alone():
    rows = accuracy_rows({"a": [0.5], "b": [0.4]}, [32])
    rows = [replace(one, encoding="rope_mixed" if one.run == "a" else "none") for one in rows]
    several, one = (
        page(rows, [run_summary(name, kind=kind) for name, kind in zip("ab", kinds, strict=True)]).text
        for kinds in (("vit, patches", "swin, patches"), ("vit, patches",) * 2)
    )
    assert "(swin, patches; vit, patches)" in several
    assert "What is compared" not in several
    assert "What is compared" in one


def test_encodings_are_explained_by_family_by_pair_or_by_the_run():
    assert encoding_words("lookhere_90") == encoding_words("lookhere")
    assert encoding_words("learned_1d") != encoding_words("learned_2d")
    pair = encoding_words("rope_mixed+learned_1d")
    assert encoding_words("rope_mixed") in pair
    assert encoding_words("learned_1d") in pair
    assert encoding_words("of_tomorrow") == ""
    assert encoding_words("looker", [run_summary("looker")]) == run_summary("looker").about


def test_what_is_asked_of_data_that_nobody_knows_is_said_without_them():
    """ "Which of them" needs a sentence before it that names them."""
    assert "photos" in data_words(row(task="imagefolder", data="photos"))
    for metric in ("miou", "box_ap"):
        assert " of them" in data_words(row(metric=metric, data="scenes:pairs", task="pairs"))
        unknown = data_words(row(metric=metric, data="masks:mine", task="segmentation"))
        assert "masks:mine" in unknown
        assert "them" not in unknown
    for metric in ("patch_loss", "patch_accuracy", "patch_mse"):
        for data, task in (("scenes", "glyphs"), ("images:DIR", "masked_patches")):
            said = data_words(row(metric=metric, data=data, task=task))
            assert "name it" not in said
            assert "hidden" in said


def test_clips_are_not_called_images_and_have_the_patches_of_their_frames():
    rows = [row(frames=frames, grid=(frames, 8, 8), data="clips:DIR", task="classification") for frames in (4, 8)]
    said = results_page.introduction([], rows, {"looker": SeenSizes.of_one(32)})
    assert [words.split(" of ")[0] for words in said["trainings"]] == ["on clips"]
    assert said["details"] == ["patches of 4 \u00d7 4 px"]
    assert data_words(rows[0]).startswith("The clips ")
    assert data_words(replace(rows[0], data="moving")) != data_words(rows[0])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "\u2013"), (0.44, "0.4 s"), (12.2, "12 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_durations(seconds, text):
    assert duration(seconds).replace("\xa0", " ") == text
