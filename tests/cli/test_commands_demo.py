"""`sightline demo`: a quick one from end to end, and what it refuses at once."""

from __future__ import annotations

import json
import shutil

import pytest

from sightline.cli.commands import demo as module
from sightline.recipes.demo import ENCODINGS, RESOLUTIONS
from sightline.training import side_by_side
from tests.tiny import tree


@pytest.fixture
def no_work(monkeypatch):
    """The demonstration ends where its runs would begin."""

    class Begun(Exception):
        pass

    def begin(jobs, observe, *_):
        raise Begun

    monkeypatch.setattr(side_by_side, "run_jobs", begin)
    return Begun


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seed", "-1"], ["seed -1"]),
        (["--seed", str(2**64)], ["seed 18446744073709551616"]),
        (["--device", "tpu"], ["device 'tpu'"]),
        (["--resume", "--overwrite"], ["--resume and --overwrite"]),
        (["--encoding", "none"], ["--encoding"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path):
    refused("demo", "--out", tmp_path / "d", *words, says=says)
    assert tree(tmp_path) == {}


def test_a_folder_that_exists(cli, refused, tmp_path, no_work):
    (tmp_path / "d" / "rope_axial").mkdir(parents=True)
    (tmp_path / "d" / "rope_axial" / "log.jsonl").write_text('{"step": 1, "images": 32, "loss": 1.0}\n')
    before = tree(tmp_path)
    refused("demo", "--quick", "--out", tmp_path / "d", says=["exists already", "--resume"])
    (tmp_path / "d" / "rope_axial" / "mine.txt").write_text("years of work")
    refused("demo", "--quick", "--out", tmp_path / "d", "--overwrite", says=["mine.txt", "not deleted"])
    (tmp_path / "d" / "rope_axial" / "mine.txt").unlink()
    assert tree(tmp_path) == before
    with pytest.raises(no_work):
        cli("demo", "--quick", "--out", tmp_path / "d", "--overwrite")
    assert set(tree(tmp_path / "d")) == {*ENCODINGS, *(f"{name}/config.yaml" for name in ENCODINGS)}


def test_another_seed_cannot_go_on(cli, refused, tmp_path, no_work):
    with pytest.raises(no_work):
        cli("demo", "--quick", "--out", tmp_path / "d")
    before = tree(tmp_path)
    again = ["demo", "--out", tmp_path / "d", "--resume"]
    refused(*again, "--quick", "--seed", 1, says=["seed 0, not 1"])
    refused(*again, says=["with images ", ", not 48000"])
    assert tree(tmp_path) == before
    with pytest.raises(no_work):
        cli(*again, "--quick")


def test_it_says_how_long_it_takes(tmp_path, no_work, capsys, monkeypatch):
    monkeypatch.setattr("sightline.training.estimate.estimate_seconds", lambda job: 200.0)
    monkeypatch.setattr("sightline.runtime.cores", lambda: 3)
    with pytest.raises(no_work):
        module.demo(out=tmp_path / "d")
    said = capsys.readouterr().out
    # A third more than 200 s, three at once.
    assert "about 4 minutes here" in said
    assert "48,000 scenes at 32 px" in said
    assert "20, 24, 32, 44, 56, 64, 108, 148 px" in said


@pytest.mark.slow
def test_a_quick_demonstration(cli, tmp_path):
    out = tmp_path / "d"
    code, said, _ = cli("demo", "--quick", "--out", out)
    assert code == 0
    for file in ("report.html", "results.jsonl"):
        assert str(out / file) in said
    assert "quick run" in (out / "report.html").read_text()
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    for metric in ("top1", "top5"):
        assert {
            (row["run"], row["resolution"]) for row in rows if row["metric"] == metric and row["split"] == "test"
        } == {(name, side) for name in ENCODINGS for side in RESOLUTIONS}
    assert {row["split"] for row in rows} == {"test", "heldout_fonts"}
    assert {(row["train_resolution"], row["seed"], row["tuned"]) for row in rows} == {(32, 0, False)}
    before = tree(out)
    # Done before: nothing is done again, the page is made anew.
    shutil.rmtree(out / "rope_axial")
    assert cli("demo", "--quick", "--out", out, "--resume")[0] == 0
    weights = "rope_axial/checkpoint/model.safetensors"
    assert tree(out)[weights] == before[weights]
