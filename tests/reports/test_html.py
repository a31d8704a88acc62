"""The HTML report on synthetic content: one file, whole, escaped, and saying every number."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from sightline.errors import InputError, StorageError
from sightline.reports.content import FieldsOfViewFigure, LossCurve, Report, RunSummary, Sample, SampleRow
from sightline.reports.html import render, write_report
from sightline.results.rows import wilson_interval
from tests.reports.synthetic import VALUES, accuracy_rows, all_rows, full_report, page_of, picture, row, run_summary

VOID = {"meta", "img", "br", "link", "hr", "input"}
HOSTILE = '<script>alert("1")</script>'


class Page(HTMLParser):
    """Reads a page: elements must be closed in order; collects tags, links, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "elements left open"

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\xa0", " ").split())


@functools.cache
def full_text() -> str:
    return render(full_report())


def test_page_is_balanced_and_needs_nothing_else():
    text = full_text()
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert "script" not in page.tags
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\((?!#)", text)
    assert page.links
    for link in page.links:
        assert link.startswith("data:image/png;base64,") or link[1:] in page.ids, link[:80]
    assert len(page.ids) == len(set(page.ids)), "an id is used twice"
    assert all(reference in page.ids for reference in re.findall(r"url\(#([^)]+)\)", text))


def test_every_run_and_number_is_said():
    text, report = Page(full_text()).text, full_report()
    for item in report.rows:
        assert item.run in text
        assert f"{100 * item.value:.1f}" in text, item
        low, high = wilson_interval(item.value, item.images)
        assert f"[{100 * low:.1f}, {100 * high:.1f}]" in text, item
    for run in report.runs:
        assert run.about in text
    for words in ("sightline demo --seed 7", "sightline report runs/x", "a synthetic note", "synthetic cores",
                  "abc1234", "2020-02-02", "8 min 32 s", "2 min 58 s", "48,000", "1,812,504", "slope 0.5 / 1",
                  "sample 1", '"rate": 0.0015'):  # fmt: skip
        assert words in text, words


def test_best_of_a_column_is_bold():
    text = render(full_report(rows=accuracy_rows({"a": [0.25, 0.75], "b": [0.5, 0.25]}, [32, 64]), runs=[]))
    assert re.findall(r"<td[^>]*><b>([\d.]+)</b>", text) == ["75.0", "50.0"]


def test_hostile_names_are_only_text():
    values = {HOSTILE: [0.5, 0.4], "b": [0.3, 0.2]}
    rows = accuracy_rows(values, [32, 64])
    rows += [row(HOSTILE, 0.4, 32, slices={"group": "<script>"}), row(HOSTILE, 0.4, 32, split="heldout_fonts")]
    run = run_summary(HOSTILE, config={HOSTILE: HOSTILE}, knob_name=HOSTILE, about=HOSTILE, precision=HOSTILE)
    field = FieldsOfViewFigure(HOSTILE, 0, (2, 2), np.ones((1, 2, 2), np.float32))
    report = full_report(
        title=HOSTILE, command=HOSTILE, runs=[run], rows=rows, hardware=HOSTILE, commit=HOSTILE, created=HOSTILE,
        notes=[HOSTILE], other_commands=[HOSTILE], fields=[field],
        samples=[SampleRow(32, [Sample(picture(32), '"><script>x</script>')])],
    )  # fmt: skip
    text = render(report)
    page = Page(text)
    assert "script" not in page.tags
    assert "<script" not in text.lower()
    assert HOSTILE in page.text


@pytest.mark.slow
def test_same_content_gives_the_same_bytes(tmp_path):
    paths = [tmp_path / "a.html", tmp_path / "b.html"]
    for path in paths:
        write_report(path, page_of("uniform"))
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.slow
def test_another_process_gives_the_same_bytes():
    code = (
        "import sys, hashlib; from sightline.reports.html import render;"
        "from tests.reports.synthetic import full_report; text = render(full_report());"
        "assert 'torch' not in sys.modules; print(hashlib.sha256(text.encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(full_text().encode()).hexdigest()


def test_importing_reports_loads_nothing_heavy():
    code = (
        "import sys, sightline.reports.html, sightline.reports.tables;"
        "print([name for name in ('torch', 'matplotlib', 'jinja2', 'rich', 'PIL') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MISSING = [
    {"fields": []},
    {"samples": []},
    {"runs": []},
    {"rows": accuracy_rows()},
    {"rows": accuracy_rows({"solo": [0.5]}, [32]), "runs": [RunSummary("solo", "none")]},
    {"rows": [row(metric="top5")]},
    {"rows": [row(split="heldout_fonts")]},
    {"rows": [row(split="minival")]},
    {"rows": accuracy_rows({"solo": [0.5]}, [64])},
    {"runs": [run_summary(loss=LossCurve(), knob=None, knob_name=None, knob_default=None, config={})]},
    {"notes": [], "other_commands": [], "hardware": "", "commit": "", "created": "", "seconds_total": 0.0},
]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [*MISSING[:2], *(pytest.param(one, marks=pytest.mark.slow) for one in MISSING[2:])])
def test_parts_may_be_missing(missing):
    page = Page(render(full_report(**missing)))
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))


def test_empty_rows_write_nothing(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(InputError, match="no result rows"):
        write_report(path, full_report(rows=[]))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_wrong_pictures_are_refused():
    for image in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InputError, match="uint8"):
            render(full_report(samples=[SampleRow(32, [Sample(image)])]))


@pytest.mark.slow
def test_storage_faults_name_the_path_and_leave_nothing(tmp_path):
    path = tmp_path / "absent" / "report.html"
    with pytest.raises(StorageError, match=re.escape(str(path))):
        write_report(path, page_of("uniform"))
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(StorageError, match="taken"):
        write_report(folder, page_of("uniform"))
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failed_replace_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match="No space left"):
        write_report(path, page_of("uniform"))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_any_text_can_be_written(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, page_of("uniform", title="lone \udcff surrogate, 名前"))
    assert "名前" in path.read_text("utf-8")


def test_pictures_are_embedded_whole():
    import base64
    from io import BytesIO

    from PIL import Image

    image = picture(32, seed=5)
    report = full_report(samples=[SampleRow(32, [Sample(image, "one")])], fields=[])
    link = next(link for link in Page(render(report)).links if link.startswith("data:"))
    decoded = np.asarray(Image.open(BytesIO(base64.b64decode(link.partition(",")[2]))))
    assert (decoded == image).all()


@pytest.mark.slow
def test_rows_of_runs_without_summary_are_shown():
    rows = [*all_rows(), row("stranger", 0.111, 32)]
    text = Page(render(full_report(rows=rows))).text
    assert "stranger" in text
    assert "11.1" in text


def test_minimal_report_needs_only_rows():
    page = Page(render(Report("t", "c", [], accuracy_rows())))
    assert all(name in page.text for name in VALUES)


@pytest.mark.slow
def test_dashed_lines_are_explained_where_there_are_some():
    default, tuned = row("a", 0.5, 64, knob=1.0), row("a", 0.7, 64, knob=0.25, tuned=True)
    for rows, dashed, searched in (([default], False, False), ([tuned], False, True), ([default, tuned], True, True)):
        text = Page(render(Report("Knobs", "sightline report a", [], rows))).text
        assert ("dashed lines" in text) == dashed
        assert ("searched on separate images at each size" in text) == searched


@pytest.mark.slow
def test_a_run_that_saw_parts_says_so():
    text = Page(render(page_of("parts"))).text.replace("\xa0", " ")
    assert "shown in all, of each a random part (35 % of its area or more); it was then tested" in text
    assert "a random part" not in Page(render(page_of("uniform"))).text


def test_models_of_several_kinds_are_not_said_to_differ_in_their_encoding_alone():
    rows = accuracy_rows({"a": [0.5], "b": [0.4]}, [32])
    rows = [replace(one, encoding="rope_mixed" if one.run == "a" else "none") for one in rows]
    kinds = {"a": "vit, patches", "b": "swin, patches"}

    def said(of):
        runs = [run_summary(name, kind=of[name]) for name in kinds]
        return " ".join(render(full_report(rows=rows, runs=runs)).split())

    assert "They are models of 2 kinds" in said(kinds)
    assert "(swin, patches; vit, patches)" in said(kinds)
    assert "What is compared is their position encoding" not in said(kinds)
    assert "What is compared is their position encoding" in said(dict.fromkeys(kinds, "vit, patches"))
    assert "models of 2 kinds" not in said(dict.fromkeys(kinds, "vit, patches"))
