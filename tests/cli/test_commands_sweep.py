"""`sweep`, `table` and `status` by the command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sightline.errors import NonFiniteError
from sightline.hub.load import read_config_record
from sightline.io.yaml import dump_yaml
from sightline.results.rows import MetricValue
from sightline.sweeps import run as sweep_run
from sightline.sweeps.run import read_sweep
from sightline.sweeps.scores import CellScore
from sightline.training.checkpointer import last_whole
from tests.tiny import MODEL, pictures, tree

BASE = {"data": "digits", "images": 64, "resolution": 16, "precision": "float32", "model_options": MODEL}
GRID = {"encoding": ["lookhere_90", "rope_axial"], "seed": [0, 1]}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """`written(**changes)` writes s.yaml into the current folder, which is empty but for it."""
    monkeypatch.chdir(tmp_path)

    def write(**changes):
        given = {"base": BASE, "grid": GRID, "out": "swept", **changes}
        text = dump_yaml({key: value for key, value in given.items() if value is not None})
        (tmp_path / "s.yaml").write_text(text)
        return "s.yaml"

    return write


@pytest.fixture
def stubbed(monkeypatch):
    """Cells that take no time: what they reach is 0.1 for each seed, and 0.5 more of LookHere; by name, they fail."""
    failing = []

    real = sweep_run.run_worker

    def run(claim):
        if claim.cell.name in failing:
            raise NonFiniteError("loss nan")
        value = 0.1 * claim.cell.fields["seed"] + 0.5 * (claim.cell.fields["encoding"] == "lookhere_90")
        measured = MetricValue("top1", value, "fraction", 100, better="higher")
        return CellScore(claim.cell.name, dict(claim.cell.fields), measured)

    monkeypatch.setattr(sweep_run, "run_worker", lambda queue, _, **options: real(queue, run, **options))
    return failing


def test_a_sweep_prints_best_and_average(written, stubbed, cli):
    file = written()
    code, out, err = cli("sweep", file)
    assert code == 0, err
    rows = [line.split() for line in out.splitlines()]
    # Student's t with one degree of freedom: 12.7 times 5 points.
    assert ["lookhere_90", "2", "60.0", "55.0", "[0.0,", "100.0]", "001-lookhere_90-seed1"] in rows
    assert ["rope_axial", "2", "10.0", "5.0", "[0.0,", "68.5]", "003-rope_axial-seed1"] in rows
    names = ["000-lookhere_90-seed0", "001-lookhere_90-seed1", "002-rope_axial-seed0", "003-rope_axial-seed1"]
    cells = [row for row in rows if row[:1] and row[0] in names]
    assert [row[0] for row in cells] == names
    assert [row[1:7] for row in cells[:2]] == [
        ["50.0", "[40.4,", "59.6]", "100", "encoding", "lookhere_90,"],
        ["60.0", "[50.2,", "69.1]", "100", "encoding", "lookhere_90,"],
    ]
    assert [line.split()[1] for line in err.splitlines() if line.startswith("cell ")] == names
    # No table by the seed: the best run is measured.
    assert shlex.split(out.splitlines()[-1])[-2] == "evaluate"
    # Once more: nothing is run, the same is printed.
    code, out, err = cli("sweep", file, "--json")
    assert (code, err) == (0, "")
    assert [(row["encoding"], row["best"], row["average"]) for row in map(json.loads, out.splitlines())] == [
        ("lookhere_90", 0.6, 0.55), ("rope_axial", 0.1, 0.05),
    ]  # fmt: skip
    code, out, _ = cli("status", "swept", "--json")
    assert code == 0
    assert json.loads(out) == {
        "sweep": "swept", "cells": 4, "waiting": 0, "running": 0, "finished": 4, "failed": 0, "runs": [], "faults": {}
    }  # fmt: skip


def test_a_choice_by_the_test_split_is_told_of(written, stubbed, cli):
    """Not where encodings alone are compared: nothing is chosen."""
    rates = {**GRID, "optimizer.lr": [1e-3, 2e-3]}
    for number, (split, grid, told) in enumerate([("test", rates, 1), ("minival", rates, 0), ("test", GRID, 0)]):
        evaluate = {"split": split, "resolutions": [16]}
        code, _, err = cli("sweep", written(base=BASE, grid=grid, out=f"swept{number}", evaluate=evaluate))
        assert code == 0, err
        assert err.count("warning") == told


def test_cells_that_failed_twice_are_named_and_the_code_is_7(written, stubbed, cli):
    stubbed.append("002-rope_axial-seed0")
    code, out, err = cli("sweep", written())
    assert code == 7
    assert "lookhere_90" in out
    assert "002-rope_axial-seed0: loss nan" in err.splitlines()[-1]
    assert err.count("002-rope_axial-seed0 failed") == 2
    code, out, _ = cli("status", "s.yaml")
    assert "002-rope_axial-seed0: loss nan" in out


def test_where_a_sweep_is_while_others_run(written, cli, run_copy):
    written()
    queue = read_sweep_here().queue()
    with queue.working():
        read_sweep_here().save()
        claim = queue.claim()
    code, out, _ = cli("status", "swept")
    assert code == 0
    assert ["4", "3", "1", "0", "0"] in [line.split() for line in out.splitlines()]
    assert "begins" in out
    shutil.copytree(run_copy, read_sweep_here().folder(claim.cell), symlinks=True)
    found = json.loads(cli("status", "swept", "--json")[1])
    assert found["runs"][0]["cell"] == "000-lookhere_90-seed0"
    assert found["runs"][0]["status"]["state"] == "finished"
    # Nothing was claimed by looking.
    assert list(queue.state().running) == [0]
    assert "finished" in cli("status", "swept")[1]


def read_sweep_here():
    return read_sweep(Path("s.yaml"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gird": {}}, ["s.yaml: option 'gird'", "did you mean 'grid'?"]),
        ({"base": {**BASE, "imges": 3}}, ["s.yaml, cell 000-", "option 'imges'", "did you mean 'images'?"]),
        ({"base": {**BASE, "recipe": 3}}, ["base.recipe 3"]),
        ({"grid": {"encoding": ["lookhere_90", "rope_axail"]}}, ["cell 001-rope_axail", "did you mean 'rope_axial'?"]),
        ({"grid": {"optimizer.lr": [1e-3, -1.0]}}, ["s.yaml, cell 001-lr-1.0: optimizer.lr = -1.0"]),
        ({"grid": None, "search": {"optimizer.lr": {"low": -1.0, "high": 1.0}}, "trials": 3}, ["optimizer.lr = -1.0"]),
        ({"evaluate": {"resolutions": [16], "split": "tset"}}, ["evaluate.split 'tset'", "did you mean 'test'?"]),
        ({"evaluate": {"resolutions": ["natve"]}}, ["s.yaml: evaluate.resolutions natve", "native"]),
        ({"base": {**BASE, "validation": None}}, ["validation is null", "evaluate"]),
        ({"base": {**BASE, "data": "imagefolder:pictures"}}, ["data imagefolder:pictures,minival=", "evaluate"]),
        ({"storage": "nothing"}, ["storage: "]),
        ({"base": {**BASE, "data": "imagefolder:pictures"}, "out": "pictures/swept"}, ["lies in pictures"]),
    ],
)
def test_every_cell_is_checked_before_the_first_one_begins(changes, says, written, stubbed, refused, tmp_path):
    pictures(tmp_path / "pictures")
    file = written(**changes)
    before = tree(tmp_path)
    refused("sweep", file, says=says)
    assert tree(tmp_path) == before


def test_the_password_of_a_storage_is_not_written_down(written, tmp_path):
    written(storage="postgresql://me:secret@host/db")
    swept = read_sweep(Path("s.yaml"))
    swept.out.mkdir()
    swept.save()
    text = (tmp_path / "swept" / "sweep.yaml").read_text()
    assert "secret" not in text
    assert "postgresql://me@host/db" in text
    assert read_sweep(Path("swept")).name == "swept"


def test_a_table_of_runs(cli, refused, run_copy, tmp_path):
    other = shutil.copytree(run_copy, tmp_path / "other", symlinks=True)
    file = other / "validation.jsonl"
    point = json.loads(file.read_text().splitlines()[-1])
    file.write_text(json.dumps({**point, "top1": 1.0}) + "\n")
    out = tmp_path / "table.jsonl"
    code, said, err = cli("table", run_copy, other, "--out", out)
    assert (code, err) == (0, "")
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["encoding"], row["runs"], row["best"], row["best_run"]) == ("lookhere_90", 2, 1.0, "other")
    assert row["average"] == (1.0 + point["top1"]) / 2
    assert "100.0" in said
    refused("table", run_copy, "--out", out, says=["exists already"])
    refused("table", run_copy, "--metric", "top2", says=["'top2'", "'top1'"])
    refused("table", run_copy, "--by", "encodign", says=["'encoding'"])
    refused("table", run_copy, "--resolutions", "16", says=["--resolutions"])
    refused("table", says=["table: "])
    refused("table", tmp_path / "none", says=[str(tmp_path / "none")])
    rows = [json.loads(line) for line in cli("table", run_copy, "--split", "test", "--json")[1].splitlines()]
    assert rows[0]["metric"] == "top1"


def test_where_a_run_is(cli, refused, run_copy, tmp_path):
    before = tree(run_copy)
    code, out, err = cli("status", run_copy)
    assert (code, err) == (0, "")
    said = dict(line.split(None, 1) for line in out.splitlines() if len(line.split()) > 1)
    assert said["state"].strip() == "finished"
    assert json.loads(cli("status", run_copy, "--json")[1])["state"] == "finished"
    assert tree(run_copy) == before
    refused("status", tmp_path / "none", says=[str(tmp_path / "none")])
    refused("status", tmp_path, says=[str(tmp_path)])


def worker(*words, **options):
    command = [sys.executable, "-m", "sightline", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def until(found, *processes):
    """Wait for something; a process that ended before it is an error."""
    deadline = time.monotonic() + 300
    while not (result := found()):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes), [one.communicate() for one in processes]
        time.sleep(0.02)
    return result


@pytest.mark.slow
def test_two_workers_one_of_them_killed_in_mid_cell(written, tmp_path, cli):
    """2 encodings x 8 settings: every cell once, that of the killed worker again, and the table is printed."""
    base = {**BASE, "images": 640, "batch_size": 16, "checkpoint_every": 32}
    rates = [5e-4, 1e-3, 2e-3, 4e-3]
    file = written(base=base, grid={"encoding": GRID["encoding"], "optimizer.lr": rates, "seed": [0, 1]})
    # At once, so that there are cells for both.
    first, second = (worker("sweep", file, "--threads", 1) for _ in range(2))
    cells = tmp_path / "swept" / "cells"
    killed = until(lambda: stopped_in_mid_cell(second, cells), first, second)
    os.kill(second.pid, signal.SIGKILL)
    assert second.wait() == -signal.SIGKILL
    assert 0 < read_config_record(last_whole(killed))["training"]["step"] < 40
    out, err = first.communicate(timeout=1200)
    assert first.returncode == 0, err
    rows = [line.split() for line in out.splitlines()]
    assert [row[1] for row in rows if row and row[0] in GRID["encoding"]] == ["8", "8"]
    begun = [line.split()[1] for line in err.splitlines() if line.startswith("cell ")]
    assert len(begun) == len(set(begun))
    assert any(killed.name in line and "goes on" in line for line in err.splitlines())
    steps = {folder.name: len((folder / "log.jsonl").read_text().splitlines()) for folder in cells.iterdir()}
    assert sorted(steps.values()) == [40] * 16
    found = json.loads(cli("status", "swept", "--json")[1])
    assert (found["finished"], found["failed"], found["running"], found["waiting"]) == (16, 0, 0, 0)
    lines = [json.loads(line) for line in cli("table", "swept", "--json")[1].splitlines()]
    assert [(line["encoding"], line["runs"]) for line in lines] == [("lookhere_90", 8), ("rope_axial", 8)]


def stopped_in_mid_cell(process, cells):
    """The folder of the cell that a worker is in, which has a checkpoint and is not at its end; the worker stands still
    there, however long it takes to look. None where it is not in one, and goes on."""
    process.send_signal(signal.SIGSTOP)
    for file in cells.glob("*/.lock"):
        if owned_by(file, process.pid) and (file.parent / "checkpoint" / "checksums.json").exists():
            last = last_whole(file.parent)
            if last is not None and 0 < read_config_record(last)["training"]["step"] < 40:
                return file.parent
    process.send_signal(signal.SIGCONT)
    return None


def owned_by(file, process):
    try:
        return json.loads(file.read_text())["process"] == process
    except (OSError, ValueError):
        return False


@pytest.mark.slow
def test_a_signal_gives_the_cell_back_and_the_next_worker_goes_on_with_it(written, tmp_path):
    file = written(base={**BASE, "images": 6400, "checkpoint_every": 320}, grid={"seed": [0]})
    cells = tmp_path / "swept" / "cells"
    first = worker("sweep", file, "--threads", 1)
    until(lambda: list(cells.glob("000*/checkpoint/checksums.json")), first)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=300)
    assert (first.returncode, out) == (143, "")
    assert "sweep s.yaml" in err.splitlines()[-1]
    done = len(next(cells.glob("000*/log.jsonl")).read_text().splitlines())
    steps = json.loads(next(cells.glob("000*/progress.json")).read_text())["steps"]
    assert 0 < done < steps
    second = worker("sweep", file, "--threads", 1)
    out, err = second.communicate(timeout=600)
    assert second.returncode == 0, err
    assert "goes on" in err
    assert len(next(cells.glob("000*/log.jsonl")).read_text().splitlines()) == steps
