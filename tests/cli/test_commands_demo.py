"""`sightline demo`: a quick one from end to end, and what it refuses at once."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from sightline.cli.commands import demo as module
from sightline.recipes import demo as recipes
from sightline.recipes.demo import ENCODINGS, RESOLUTIONS
from sightline.results.rows import FRACTION, MetricValue, read_rows
from sightline.runs import outputs
from sightline.training.jobs import JobProgress
from tests.tiny import tree


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seed", "-1"], ["seed = -1"]),
        (["--seed", str(2**64)], ["seed = 18446744073709551616"]),
        (["--device", "tpu"], ["device 'tpu'"]),
        (["--resume", "--overwrite"], ["--resume and --overwrite"]),
        (["--encoding", "none"], ["--encoding"]),
        (["--task", "segmentaton"], ["task 'segmentaton'", "did you mean 'segmentation'?"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path):
    refused("demo", "--out", tmp_path / "d", *words, says=says)
    assert tree(tmp_path) == {}


def test_it_says_how_long_it_takes_from_real_steps(tmp_path, capsys, monkeypatch):
    """A bar for each run has its time left, its loss and its validation."""
    now = [1000.0]
    monkeypatch.setattr("sightline.cli.progress.time.monotonic", lambda: now[0])

    class Enough(Exception):
        pass

    def begin(jobs, observe, *_):
        for step in range(120):
            for job in jobs:
                now[0] += 1 / 3
                validated = MetricValue("top1", 0.25, FRACTION, 256) if job is jobs[0] and step > 10 else None
                observe(JobProgress(job.name, "train", 48 * (step + 1), 48_000, 3.0 - step / 100, validated))
        raise Enough

    monkeypatch.setattr("sightline.runs.demo.run_jobs", begin)
    with pytest.raises(Enough):
        module.demo(out=tmp_path / "d")
    said = capsys.readouterr()
    assert "48,000 scenes at 32 px" in said.out
    assert "20, 24, 32, 44, 56, 64, 108, 148 px" in said.out
    # A step a second, 1,000 in all: after 30 of them.
    assert re.search(r"train lookhere_90: .* about 16:\d\d left loss \d\.\d\d", said.err)
    assert "minival 25%" in said.err


def make_smaller(task, monkeypatch, **training):
    """The quick demonstration of a task with fewer images to test on, and other fields of its training."""
    whole, quick = recipes.DEMOS[task]

    def small():
        demo = quick()
        few = {"images": 20, "images_beyond": (64, 4)}
        return dataclasses.replace(
            demo,
            train=dataclasses.replace(demo.train, **training),
            evaluate=dataclasses.replace(demo.evaluate, **few),
            also={data: dataclasses.replace(config, **few) for data, config in demo.also.items()},
        )

    monkeypatch.setitem(recipes.DEMOS, task, (whole, small))


@pytest.mark.slow
def test_a_quick_demonstration(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "QUICK_IMAGES", 320)
    make_smaller("classification", monkeypatch)
    out = tmp_path / "d"
    monkeypatch.chdir(tmp_path)
    # A run of the user's own.
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    code, said, _ = cli("demo", "--quick", "--out", out)
    assert code == 0
    for file in ("report.html", "results.jsonl"):
        assert str(out / file) in said
    # What to open, and what to type next, come last.
    assert said.splitlines()[-2] == f"open in a browser: {out / 'report.html'}"
    assert said.splitlines()[-1] == "next: sightline train --data digits --out runs/digits_2"
    assert 'http-equiv="refresh"' not in (out / "report.html").read_text()
    # What it shows is said on the terminal and on the page.
    (sentence,) = (line for line in said.splitlines() if line.startswith("A quick run:"))
    assert sentence in (out / "report.html").read_text()
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    for metric in ("top1", "top5"):
        assert {
            (row["run"], row["resolution"]) for row in rows if row["metric"] == metric and row["split"] == "test"
        } == {(name, side) for name in ENCODINGS for side in RESOLUTIONS}
    assert {row["split"] for row in rows} == {"test", "heldout_fonts"}
    assert {(row["train_resolution"], row["seed"]) for row in rows} == {(32, 0)}
    # No knob is tuned, for which there is no time.
    tuned = {(row["run"], row["tuned"], bool(row.get("shrunk"))) for row in rows if row["split"] == "test"}
    assert tuned == {(name, False, shrunk) for name in ENCODINGS for shrunk in (False, True)}


@pytest.mark.slow
def test_a_quick_demonstration_of_segmentation(cli, tmp_path, monkeypatch):
    make_smaller("segmentation", monkeypatch, images=64)
    out = tmp_path / "d"
    code, said, _ = cli("demo", "--task", "segmentation", "--quick", "--out", out)
    assert code == 0
    assert "then tested on scenes:search at 32, 64, 96, 128 px." in said
    rows = read_rows(out / "results.jsonl")
    whole = {(row.run, row.data, row.resolution, row.shrunk) for row in rows if row.metric == "miou"}
    sides = {"scenes:pairs": (32, 64, 108), "scenes:search": (32, 64, 96, 128)}
    assert whole == {
        (name, data, side, shrunk)
        for name in ENCODINGS
        for data, some in sides.items()
        for side in some
        for shrunk in ((None,) if side == 32 else (None, 32))
    }
    for page, other in (("report.html", "search.html"), ("search.html", "report.html")):
        text = (out / page).read_text()
        assert f'<a href="{other}">' in text
        assert text.count("data:image/png") > 3 * len(ENCODINGS)
    assert "objects stay as large in pixels" in (out / "search.html").read_text()
    # All of it is the demonstration's own: it can be deleted.
    assert list(outputs._foreign(out, ENCODINGS)) == []
