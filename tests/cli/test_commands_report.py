"""`sightline report`: one page from measured runs, and a reason where there is none."""

from __future__ import annotations

import shutil

import pytest

from sightline import Run, load_model, plugins, save_model
from sightline.reports.seen import by_run
from tests.pages import Page
from tests.tiny import pictures, tree


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


def test_a_page_of_models_that_no_run_trained(cli, tiny_run, tmp_path):
    """A saved model, measured into its folder and elsewhere: all but the training is shown, also beside a run."""
    saved, elsewhere, page = tmp_path / "saved", tmp_path / "elsewhere", tmp_path / "page.html"
    save_model(load_model(tiny_run), saved)
    for out in ([], ["--out", elsewhere]):
        assert cli("evaluate", saved, "--data", "digits", "--resolutions", "8,16", *FEW, *out)[0] == 0
    (saved / "predictions.csv").unlink(missing_ok=True)
    assert cli("report", elsewhere, "--out", page)[0] == 0
    alone = Page(page.read_text())
    assert alone.sections == ["curve", "numbers", "sure", "answers", "samples", "again"]
    assert "trained" not in "".join(alone.tables)
    assert cli("report", saved, elsewhere, tiny_run, "--out", page, "--overwrite")[0] == 0
    training = Page(page.read_text()).tables["What each run saw and took"]
    assert training[0] == ["", "tiny"]

    content = Run.open(saved).report(elsewhere, out=tmp_path / "python.html").content
    assert not isinstance(content, list)
    sizes = by_run(content.runs, content.rows)
    assert {name: (one.nominal, one.one) for name, one in sizes.items()} == dict.fromkeys(
        (str(saved), str(elsewhere)), (16, None)
    )
    assert (content.runs, content.chance) == ([], 0.1)
    assert content.other_commands == [f"sightline predict {saved} IMAGE"]


@pytest.mark.parametrize(("tuned", "data"), [(True, "digits"), (False, "pictures")])
def test_what_is_named_to_do_next_can_be_done(tuned, data, cli, run_copy, tmp_path, monkeypatch):
    """Nothing is tuned where nothing is held out for it, and plug-ins of a run stand in each line."""
    if not tuned:
        run_copy, data = tmp_path / "run", pictures(tmp_path / "pictures")
        options = ["--resolution", 16, "--images", 8, "--threads", 1, *[f"--model_options.{one}" for one in SMALL]]
        assert cli("train", "--data", data, "--out", run_copy, "--validation=null", *options)[0] == 0
    run = Run.open(run_copy)
    assert ("minival" in run.source.splits, run.model.knob is not None) == (tuned, True)
    monkeypatch.setattr(plugins, "given", ["my own"])
    content = run.report().content
    assert not isinstance(content, list)
    lines = [f"evaluate {run_copy} --tune"] * tuned + [f"predict {run_copy} IMAGE"]
    assert content.other_commands == [f"sightline {line} --plugins 'my own'" for line in lines]


def test_squares_of_images_that_have_other_aspects_are_cut(cli, tiny_run, tmp_path):
    data = pictures(tmp_path / "pictures", classes="0123456789", count=1)
    assert cli("evaluate", tiny_run, "--data", data, "--resolutions", 16, "--out", tmp_path / "out", *FEW)[0] == 0
    save_model(load_model(tiny_run), tmp_path / "saved")
    assert cli("evaluate", tmp_path / "saved", "--data", data, "--resolutions", 16, *FEW)[0] == 0
    for run, cut in ((tmp_path / "saved", True), (tiny_run, False)):
        content = Run.open(run).report(out=tmp_path / f"{cut}.html").content
        assert not isinstance(content, list)
        assert content.cut == cut


def test_a_note_names_the_sizes_at_which_images_are_enlarged(cli, tiny_run, tmp_path):
    """Sides are 8 to 39 px."""
    data = pictures(tmp_path / "pictures", classes="0123456789", count=1)
    save_model(load_model(tiny_run), tmp_path / "saved")
    assert cli("evaluate", tmp_path / "saved", "--data", data, "--resolutions", "8,48", *FEW)[0] == 0
    content = Run.open(tmp_path / "saved").report(out=tmp_path / "page.html").content
    assert not isinstance(content, list)
    [note] = [note for note in content.notes if "enlarged" in note]
    assert "at 48 px:" in note


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


SMALL = ("depth=1", "dim=48", "heads=4")
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


def test_a_page_without_the_images_that_are_damaged_by_now(cli, tiny_run, tmp_path):
    data = pictures(tmp_path / "pictures", classes="0123456789", count=1)
    save_model(load_model(tiny_run), tmp_path / "saved")
    assert cli("evaluate", tmp_path / "saved", "--data", data, "--resolutions", 16, *FEW)[0] == 0
    for image in (tmp_path / "pictures").rglob("*.png"):
        image.write_bytes(b"")
    content = Run.open(tmp_path / "saved").report(out=tmp_path / "page.html").content
    assert not isinstance(content, list)
    assert (content.samples, content.cut) == ({}, False)
