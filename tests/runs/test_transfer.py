"""A model fine-tuned to data sets: the grid, the final trainings, VTAB-1k, and what is there after a kill."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import sightline
from sightline.errors import InputError
from sightline.hub.load import load_model
from sightline.results.rows import read_rows
from sightline.results.transfer import TransferRow
from sightline.runs.report import report
from tests.pages import Page
from tests.tiny import KillAt, killed, pictures, tiny_config, train
from tests.vtab import save_tiny, write_task

SMALL = {"resolution": 16, "batch_size": 8, "steps": 3, "device": "cpu", "training": {"precision": "float32"}}


def refused(*arguments, **options):
    with pytest.raises(InputError) as fault:
        sightline.transfer(*arguments, **SMALL | options)
    return fault.value


def same(rows):
    return [replace(row, commit="", hardware="") for row in rows]


def test_a_grid_chooses_on_held_out_images_and_the_test_is_seen_once(tmp_path):
    model = save_tiny(tmp_path / "model", classes=10)
    found = sightline.transfer(model, "digits", tmp_path / "out", lrs=[0.5, 0.001], seeds=2, **SMALL)
    [row] = found.rows
    assert (row.model, row.data, row.title, row.group) == (str(model), "digits", "digits", "")
    assert (row.metric, row.count, row.steps, row.batch_size, row.resolution) == ("top1", 300, 3, 8, 16)
    assert list(row.held_out) == ["0.001", "0.5"]
    best = max(row.held_out.values())
    assert row.lr == min(float(rate) for rate, value in row.held_out.items() if value == best)
    assert row.seeds == (0, 1)
    assert row.value == pytest.approx(sum(row.values) / 2)
    runs = sorted((tmp_path / "out" / "digits").glob("*/cells/*"))
    assert [one.parent.parent.name for one in runs] == ["final", "final", "grid", "grid"]
    measured = [{line.split for line in read_rows(run / "results.jsonl")} for run in runs]
    assert measured == [{"test"}, {"test"}, {"minival"}, {"minival"}]
    head = load_model(runs[0]).config
    assert (head.num_classes, head.head) == (10, "linear")
    # A new head of zeros, though the model has as many classes; and as many steps as were asked for.
    logs = [[json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in runs]
    assert [len(log) for log in logs] == [3] * 4
    assert all(log[0]["loss"] == pytest.approx(math.log(10), abs=1e-6) for log in logs)
    # Again: nothing is trained anew, and the rows are the same.
    stamps = [(run / "checkpoint").resolve().stat().st_mtime_ns for run in runs]
    again = sightline.transfer(model, "digits", tmp_path / "out", lrs=[0.001, 0.5], seeds=2, **SMALL)
    assert again.rows == found.rows == read_rows(found.path, TransferRow)
    assert [(run / "checkpoint").resolve().stat().st_mtime_ns for run in runs] == stamps


def test_vtab_has_one_setting_and_means_by_group(tmp_path):
    model, root = save_tiny(tmp_path / "model"), tmp_path / "vtab-1k"
    for task, classes in (("svhn", 10), ("dtd", 5), ("kitti", 4)):
        write_task(root / task, classes)
    found = sightline.transfer(model, f"vtab:{root}", tmp_path / "out", **SMALL)
    titles = ["DTD", "SVHN", "KITTI-Dist", "Natural", "Structured", "all tasks"]
    assert [row.title for row in found.rows] == titles
    values = {row.title: row.value for row in found.rows}
    assert values["Natural"] == pytest.approx((values["DTD"] + values["SVHN"]) / 2)
    assert values["all tasks"] == pytest.approx((values["DTD"] + values["SVHN"] + values["KITTI-Dist"]) / 3)
    assert (found.rows[0].lr, found.rows[0].held_out, found.rows[-1].tasks) == (0.01, {}, tuple(titles[:3]))
    assert len(found.missing) == 16
    config = json.loads((tmp_path / "out/kitti/final/cells/000-seed0/checkpoint/config.json").read_text())
    trained = config["training"]["config"]
    assert (trained["parts"], trained["flip"]) == ("whole", 0.5)
    assert config["preparation"]["crop_mode"] == "squash"
    # A task that comes later joins the means.
    write_task(root / "eurosat")
    more = sightline.transfer(model, f"vtab:{root / 'eurosat'}", tmp_path / "out", **SMALL)
    assert [row.title for row in more.rows if row.tasks] == ["Natural", "Specialized", "Structured", "all tasks"]

    page = Page(report([found.path.parent], tmp_path / "page.html", papers=["vit"]).path.read_text())
    lines = page.tables["VTAB-1k, mean over tasks in %"]
    printed = {line[0]: line[2:] for line in lines}
    # By hand, over DTD, SVHN, KITTI-Dist and EuroSAT.
    assert printed["all tasks"] == ["86.3", "85.1", "82.6"]
    assert printed["Specialized"] == ["96.7", "96.5", "95.6"]
    with pytest.raises(InputError):
        report([found.path.parent], tmp_path / "other.html", papers=["lookhere"])


def test_other_options_and_other_models_are_refused(tmp_path):
    model = save_tiny(tmp_path / "model")
    sightline.transfer(model, "digits", tmp_path / "out", lrs=[0.01], **SMALL)
    assert refused(model, "digits", tmp_path / "out", lrs=[0.01], steps=4).field == "base.images"
    decided = refused(model, "digits", tmp_path / "new", training={"optimizer": {"lr": 3}})
    assert decided.field == "training.optimizer.lr"
    assert refused(model, "digits", tmp_path / "out", lrs=[0.01], resolution=20).field == "--out"
    other = shutil.copytree(model, tmp_path / "other")
    assert refused(other, "digits", tmp_path / "out", lrs=[0.01]).field == "--out"
    for options in ({"lrs": [0.0]}, {"lrs": ["x"]}, {"seeds": 0}, {"held_out": 1.0}, {"training": {"lrr": 1}}):
        assert refused(model, "digits", tmp_path / "new", **options)
    assert refused(model, [], tmp_path / "new")
    assert refused(tmp_path / "nothing", "digits", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_rate_that_diverges_is_left_out(tmp_path):
    found = sightline.transfer(save_tiny(tmp_path / "model"), "digits", tmp_path / "out", lrs=[0.001, 1e38], **SMALL)
    assert (found.rows[0].lr, list(found.rows[0].held_out)) == (0.001, ["0.001"])


def transfer_and_die(model, data, out, step):
    """Killed in the third training of the second data set."""
    sweeps = []

    def watch(name, count):
        sweeps.append(name)
        return contextlib.nullcontext({"on_set_up": lambda *_: sweeps.append("cell"), "on_step": at})

    def at(progress):
        if sweeps[-3:] == ["cell"] * 3 and sweeps.count("cell") > 5:
            KillAt(step)(progress)

    sightline.transfer(model, data, out, watch=watch, **SMALL | {"steps": 6})


@pytest.mark.slow
def test_killed_and_resumed_is_the_same(tmp_path):
    """Four rates, a model of an embedded source, two targets."""
    train(tiny_config(data="scenes"), tmp_path / "model")
    data = ["digits", pictures(tmp_path / "own", count=20)]
    whole = sightline.transfer(tmp_path / "model", data, tmp_path / "whole", **SMALL | {"steps": 6})
    killed(transfer_and_die, tmp_path / "model", data, tmp_path / "out", 4)
    assert len(read_rows(tmp_path / "out/transfer.jsonl", TransferRow)) == 1
    rest = sightline.transfer(tmp_path / "model", data, tmp_path / "out", **SMALL | {"steps": 6})
    assert same(rest.rows) == same(whole.rows)
    assert [list(row.held_out) for row in rest.rows] == [["0.001", "0.003", "0.01", "0.03"]] * 2
    assert Path(tmp_path / "out/own/grid/cells").is_dir()
