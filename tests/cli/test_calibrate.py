"""`sightline bench calibrate`: measures, keeps and shows by what attention is chosen."""

from __future__ import annotations

import json

import pytest
import torch

from sightline import runtime
from sightline.attention import calibrate, costs
from sightline.attention.calibrate import ALL_GROUPS
from sightline.attention.costs import Costs, Group, Point, current

POINTS = [Point(17, 1.0, 1.0)]


@pytest.fixture
def unknown(tmp_path, monkeypatch):
    """A processor that nobody has measured, grids of two sizes, and a cache of the user's own."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(costs, "_shipped", list)
    monkeypatch.setattr(costs, "_MEASURED", {})
    monkeypatch.setattr(calibrate, "_SIDES", (2, 4))
    costs.found.cache_clear()
    yield tmp_path / "cache"
    costs.found.cache_clear()


def test_measured_shown_and_kept(cli, unknown):
    code, said, _ = cli("bench", "calibrate", "--show", "--threads", 1)
    assert code == 0
    assert "Nothing is known of this processor" in said
    assert not unknown.exists()
    code, said, _ = cli("bench", "calibrate", "--threads", 1)
    assert code == 0
    assert runtime.processor() in said
    for word in ("bfloat16", "float32", "forward", "training", "SDPA ns", "1 thread", f"kept in {unknown}"):
        assert word in said, said
    assert all(len(line) <= 82 for line in said.splitlines() if "kept in" not in line), said
    (kept,) = (unknown / "attention").iterdir()
    assert set(Costs.of_record(json.loads(kept.read_text()), str(kept)).points) == set(ALL_GROUPS)
    # What is kept is shown again, and chooses.
    code, again, _ = cli("bench", "calibrate", "--show", "--threads", 1)
    assert (code, again) == (0, said)
    code, printed, _ = cli("bench", "calibrate", "--show", "--threads", 1, "--json")
    assert (code, json.loads(printed)) == (0, json.loads(kept.read_text()))
    assert current().as_record() == json.loads(kept.read_text())


def test_where_nothing_can_be_kept_it_says_so(cli, unknown, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", "")
    code, said, _ = cli("bench", "calibrate", "--threads", 1)
    assert code == 0
    assert "not kept: nothing is" in said
    assert not unknown.exists()


def test_a_place_that_cannot_be_written_is_named(cli, unknown):
    unknown.write_text("a file")
    code, said, err = cli("bench", "calibrate", "--threads", 1)
    assert code == 5
    # What took half a minute is shown all the same.
    assert "SDPA ns" in said
    assert err.splitlines()[-1].startswith(f"sightline: error: {unknown}/attention/")
    assert "cannot be written" in err
    code, said, _ = cli("bench", "calibrate", "--threads", 1, "--json")
    assert code == 5
    assert json.loads(said)["threads"] == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"threads": 1}'])
def test_a_record_that_is_not_read_is_named(content, cli, unknown):
    """It is passed over by every other command, which choose by what ships."""
    path = costs.kept_file(1)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    code, said, err = cli("bench", "calibrate", "--show", "--threads", 1)
    assert code == 0
    assert "kept in" not in said
    assert err.startswith(f"sightline: warning: {path}: damaged, or of another version, and not read")
    assert len(err.splitlines()) == 1


def test_numbers_of_other_threads_choose_and_are_called_so(cli, unknown, monkeypatch):
    one = Costs(
        runtime.processor(), "any", 1, points={Group("float32", "forward", 16): {"sdpa": [Point(17, 1.0, 1.0)]}}
    )
    monkeypatch.setattr(costs, "_shipped", lambda: [one])
    said = {count: cli("bench", "calibrate", "--show", "--threads", count)[1] for count in (1, 2)}
    assert "Nothing was measured with 2 threads" in said[2]
    assert "Nothing was measured" not in said[1]


@pytest.mark.parametrize(
    ("words", "says"), [(["--threads", "0"], "threads"), (["twice"], "twice"), (["--shwo"], "--show")]
)
def test_refused(refused, words, says):
    refused("bench", "calibrate", *words, says=[says])


def test_what_was_not_measured_is_not_said(cli, unknown):
    """Of numbers of an older version, one may not be there."""
    costs.keep(Costs(runtime.processor(), torch.__version__, 1, onednn=2.0, points={ALL_GROUPS[0]: {"sdpa": POINTS}}))
    code, said, _ = cli("bench", "calibrate", "--show", "--threads", 1)
    assert code == 0
    assert "oneDNN multiplies matrices 2.00 times as fast" in said
    assert "bfloat16 are multiplied" not in said
