"""`sightline report`: one page from measured runs, and a reason where there is none."""

from __future__ import annotations

import shutil

import pytest

from tests.tiny import tree


def test_a_page_of_two_runs(cli, run_copy, tmp_path):
    other = shutil.copytree(run_copy, tmp_path / "other", symlinks=True)
    for run in (run_copy, other):
        assert cli("evaluate", run, "--resolutions", "8,24", "--images", 5, "--threads", 1)[0] == 0
    page = tmp_path / "new" / "page.html"
    code, out, err = cli("report", run_copy, other, "--out", page, "--title", "Two <runs>")
    assert (code, err) == (0, "")
    assert str(page) in out
    # The main metric alone.
    assert out.count(", split ") == 1
    text = page.read_text()
    assert "Two &lt;runs&gt;" in text
    for word in ("tiny", "other", "lookhere_90", "8", "24"):
        assert word in text
    assert "<script src" not in text


def test_a_paper_beside_a_run(cli, refused, tiny_run, tmp_path):
    page = tmp_path / "new" / "page.html"
    for name, says in (("lookher", ["--paper", "did you mean 'lookhere'"]), ("vit", ["--paper", "rope_vit"])):
        refused("report", tiny_run, "--paper", name, "--out", page, says=says)
    assert not page.parent.exists()
    code, _, err = cli("report", tiny_run, "--paper", "lookhere,rope_vit", "--out", page)
    assert (code, err) == (0, "")
    text = page.read_text()
    assert 'id="lookhere"' in text
    assert 'id="rope_vit"' in text
    assert "--paper lookhere,rope_vit" in text


@pytest.mark.slow
def test_two_runs_of_one_name_are_two_runs(cli, refused, run_copy, tmp_path):
    """As those of two seeds: sizes of one and sizes of the other would be one line of no model."""
    other = shutil.copytree(run_copy, tmp_path / "b" / "tiny", symlinks=True)
    (other / "results.jsonl").unlink()
    assert cli("evaluate", other, "--resolutions", "8", *FEW)[0] == 0
    code, _, _ = cli("report", run_copy, other, "--out", tmp_path / "page.html")
    assert code == 0
    text = (tmp_path / "page.html").read_text()
    assert str(other) in text
    assert "Two vision transformers" in text
    refused("report", run_copy, run_copy, "--out", tmp_path / "2.html", says=["is there twice", "each run once"])


FEW = ["--images", 5, "--threads", 1]


def damage_log(run):
    (run / "log.jsonl").write_text("{")


FAULTS = {
    "not measured": (lambda run: (run / "results.jsonl").unlink(), "has no results.jsonl yet; run: sightline evaluate"),
    "no rows": (lambda run: (run / "results.jsonl").write_text(""), "has no rows"),
    "damaged rows": (lambda run: (run / "results.jsonl").write_text("{}\n"), "results.jsonl:1: not a result row"),
    "no log": (lambda run: (run / "log.jsonl").unlink(), "log.jsonl: no such file"),
    "damaged log": (damage_log, "log.jsonl:1: not JSON"),
    "no checkpoint": (lambda run: shutil.rmtree(run / "checkpoints"), "not a checkpoint"),
    "no run": (shutil.rmtree, "no such checkpoint folder"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_is_not_whole(fault, refused, run_copy, tmp_path):
    damage, says = FAULTS[fault]
    damage(run_copy)
    before = tree(tmp_path)
    refused("report", run_copy, "--out", tmp_path / "new" / "page.html", says=[str(run_copy), says])
    assert tree(tmp_path) == before


@pytest.mark.slow
def test_a_page_shows_one_data_set(cli, refused, tmp_path):
    """That of the training, where it was measured; what else was measured is named, and shown where it is asked for."""
    run, page, other = tmp_path / "r", tmp_path / "a.html", tmp_path / "b.html"
    small = ["--model_options.depth=1", "--model_options.dim=48", "--model_options.heads=4"]
    train = ["train", "--recipe", "segment_scenes", "--images", 64, "--resolution", 16, "--threads", 1, *small]
    assert cli(*train, "--out", run)[0] == 0
    evaluate = ["evaluate", run, "--data", "scenes:search", "--resolutions", "16,24", "--images", 4]
    assert cli(*evaluate, "--threads", 1)[0] == 0
    assert cli("report", run, "--out", page)[0] == 0
    assert cli("report", run, "--data", "scenes:search", "--out", other)[0] == 0
    said, said_other = page.read_text(), other.read_text()
    assert f"sightline report {run} --data scenes:search" in said
    assert f"sightline report {run} --data scenes:pairs" in said_other
    assert "have the same size in pixels" in said_other
    assert "have the same size in pixels" not in said
    assert "shrinking makes them small" in said_other
    # At 16 px alone, nothing was shrunk.
    assert "shrunk" not in said
    refused("report", run, "--data", "digits", "--out", tmp_path / "c.html", says=[str(run), "not measured on digits"])
