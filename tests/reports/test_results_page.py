"""The results page on synthetic content: one file, whole, escaped, and with every number of the rows."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from sightline.reports.content import FieldsOfViewFigure, LossCurve, RunSummary, Sample
from sightline.reports.results_page import render
from sightline.results.rows import wilson_interval
from tests.pages import Page
from tests.reports.synthetic import VALUES, accuracy_rows, all_rows, at, full_report, page, picture, row, run_summary

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
    said = [training["looker", line] for line in ("training", "parameters", "encoding's parameter now / default")]
    assert said == ["2 min 58 s", "1,812,504", "slope 0.5 / 1"]


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


def test_pictures_are_embedded_whole():
    image = picture(32, seed=5)
    shown = Page(render(full_report(samples={32: [Sample(image, "one")]}, fields=[])))
    link = next(link for link in shown.links if link.startswith("data:"))
    assert (np.asarray(Image.open(BytesIO(base64.b64decode(link.partition(",")[2])))) == image).all()
