"""Runs in processes of their own: all are done, a fault is the caller's, and none outlives the caller."""

from __future__ import annotations

import dataclasses
import multiprocessing
import shutil
import time
from pathlib import Path

import pytest

from sightline.errors import NonFiniteError, SightlineError
from sightline.evaluation import EvaluateConfig
from sightline.evaluation.logits import logits_name, read_logits, rescore
from sightline.results.rows import read_rows
from sightline.training import jobs
from sightline.training.config import OptimizerConfig
from sightline.training.jobs import Job, run_job, run_jobs
from tests.tiny import MEASURES, Stopped, fork_server, kill_me, killed, stop_at, tiny_config, train, tree, weights


def job(out, name="a", *, resolutions=(16, 24), images=8, **changes):
    return Job(name, tiny_config(**changes), EvaluateConfig(resolutions, images=images), out / name, threads=1)


@pytest.fixture
def start(monkeypatch):
    """Processes begin quickly; in life each loads torch anew."""
    context = fork_server()
    monkeypatch.setattr(jobs.multiprocessing, "get_context", lambda kind: context)


def test_one_job_is_trained_measured_and_not_done_again(tmp_path):
    seen = []
    run_job(job(tmp_path), seen.append)
    assert [(at.phase, at.done, at.total) for at in seen] == [
        ("train", 32, 64), ("train", 64, 64), ("test", 8, 24), ("test", 16, 24), ("test", 24, 24),
    ]  # fmt: skip
    assert seen[0].loss is not None
    assert seen[-1].loss is None
    rows = read_rows(tmp_path / "a" / "results.jsonl")
    assert {(row.run, row.resolution, row.metric) for row in rows if not row.slices} == {
        ("a", side, metric) for side in (16, 24) for metric in MEASURES
    }
    before = tree(tmp_path)
    run_job(job(tmp_path), seen.append)
    assert len(seen) == 5
    assert tree(tmp_path) == before


def test_a_job_is_measured_on_other_data_too(tmp_path):
    one = dataclasses.replace(
        job(tmp_path, resolutions=(16,), data="scenes:pairs", task="segmentation"),
        also={"scenes:search": EvaluateConfig((16, 24), images=4)},
    )
    seen = []
    run_job(one, seen.append)
    # The shrunk ones of 24 px too.
    assert [at.done for at in seen if at.phase == "test"][-1] == seen[-1].total == 8 + 3 * 4
    rows = read_rows(tmp_path / "a" / "results.jsonl")
    assert {(row.data, row.resolution) for row in rows} == {
        ("scenes:pairs", 16), ("scenes:search", 16), ("scenes:search", 24),
    }  # fmt: skip
    drawn = {row.picture: row.data for row in rows if row.picture}
    assert len(drawn) == 4
    assert {path.name for path in (tmp_path / "a" / "pictures").iterdir()} == {Path(name).name for name in drawn}
    before, told = tree(tmp_path), len(seen)
    run_job(one, seen.append)
    assert (tree(tmp_path), len(seen)) == (before, told)
    # What was measured on the data of the training alone is not done.
    run_job(dataclasses.replace(one, also={"scenes:search": EvaluateConfig((16, 24, 32), images=4)}), seen.append)
    assert {row.resolution for row in read_rows(tmp_path / "a" / "results.jsonl")} == {16, 24, 32}


def test_a_job_that_was_measured_before_its_end_is_not_taken_as_done(tmp_path):
    """As by `sightline evaluate` in the folder of a demonstration that was killed."""
    whole, half = job(tmp_path / "whole"), job(tmp_path / "half")
    run_job(whole, lambda at: None)
    with pytest.raises(Stopped):
        train(half.train, half.out, observe=stop_at(1))
    shutil.copy(whole.out / "results.jsonl", half.out)
    run_job(half, lambda at: None)
    assert weights(half.out) == weights(whole.out)
    assert all(row.seconds != old.seconds for row, old in zip(*map(rows_of, (half, whole)), strict=True))


def rows_of(one):
    return read_rows(one.out / "results.jsonl")


def test_two_jobs_at_once_are_as_two_alone(start, tmp_path):
    run_jobs([job(tmp_path), job(tmp_path, "b", encoding="rope_axial")], lambda at: None)
    train(tiny_config(encoding="rope_axial"), tmp_path / "alone")
    assert weights(tmp_path / "b") == weights(tmp_path / "alone")
    assert {row.encoding for row in read_rows(tmp_path / "a" / "results.jsonl")} == {"lookhere_90"}


def test_a_fault_in_a_job_is_the_callers(start, tmp_path):
    poisoned = OptimizerConfig(lr=3e38)
    with pytest.raises(NonFiniteError, match=r"^run a") as error:
        run_jobs([job(tmp_path, images=8, optimizer=poisoned)], lambda at: None)
    assert error.value.exit_code == 4


def test_a_job_that_is_killed_is_noticed(tmp_path, monkeypatch):
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(jobs.multiprocessing, "get_context", lambda kind: context)
    monkeypatch.setattr(jobs, "run_job", kill_me)
    with pytest.raises(SightlineError, match=r"^run a .*-9"):
        run_jobs([job(tmp_path)], lambda at: None)


def end_slowly(job, *_):
    def last():
        time.sleep(0.5)
        job.out.write_text("tidied")

    multiprocessing.util.Finalize(None, last, exitpriority=10)


def test_found_28_a_job_that_is_done_is_left_to_end_in_peace(tmp_path, monkeypatch):
    """A slow machine's demonstration ended with the traceback of a signal in an interpreter that was tidying up."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(jobs.multiprocessing, "get_context", lambda kind: context)
    monkeypatch.setattr(jobs, "run_job", end_slowly)
    run_jobs([job(tmp_path)], lambda at: None)
    assert (tmp_path / "a").read_text() == "tidied"


@dataclasses.dataclass(frozen=True)
class NoteChildrenAndDie:
    path: Path

    def __call__(self, at):
        self.path.write_text("".join(f"{child.pid}\n" for child in multiprocessing.active_children()))
        kill_me()


@pytest.mark.slow
def test_no_job_outlives_its_caller(tmp_path):
    """The caller is killed, and cannot tell its children; a scene's training of hours must end all the same."""

    killed(run_jobs, [job(tmp_path, data="scenes", images=10**7)], NoteChildrenAndDie(tmp_path / "children"))
    children = [int(line) for line in (tmp_path / "children").read_text().split()]
    assert len(children) == 1
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and any(map(alive, children)):
        time.sleep(0.1)
    assert not any(map(alive, children))


def alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_so_many_at_once_and_one_after_another(start, tmp_path):
    """Never two at a time, in their order, but for one that waits for another; its weights are that one's."""
    first = job(tmp_path, "first", images=4)
    last = job(tmp_path, "last", images=4)
    last = dataclasses.replace(
        last, after="first", train=dataclasses.replace(last.train, init_from=str(first.out), resolution=24)
    )
    middle = job(tmp_path, "middle", images=4, encoding="rope_axial")
    seen = []
    run_jobs([last, first, middle], lambda at: seen.append(at.name), at_once=1)
    assert list(dict.fromkeys(seen)) == ["first", "last", "middle"]
    assert seen == sorted(seen)
    assert {row.train_resolution for row in rows_of(last)} == {24}
    # A job that is not among them was done before.
    run_jobs([last], seen.append, at_once=1)


def test_a_job_keeps_its_logits_and_is_measured_in_more_ways(tmp_path):
    one = dataclasses.replace(job(tmp_path), logits=True, more=(EvaluateConfig((16,), ("minival",), images=4),))
    assert not one.is_measured
    seen = []
    run_job(one, seen.append)
    assert one.is_measured
    assert seen[-1].done == seen[-1].total == 8 + 16 + 4
    rows = rows_of(one)
    assert {(row.split, row.resolution) for row in rows} == {("test", 16), ("test", 24), ("minival", 16)}
    kept = {(row.split, row.resolution, row.shrunk): logits_name(vars(row)) for row in rows}
    assert {path.name for path in (one.out / "logits").iterdir()} == set(kept.values())
    stored = read_logits(one.out / "logits" / kept["minival", 16, None])
    assert rescore(stored) == [row for row in rows if row.split == "minival"]
    # One of them is lost: all are written again, to the same bytes.
    before = tree(one.out / "logits")
    (one.out / "logits" / kept["test", 24, None]).unlink()
    assert not one.is_measured
    run_job(one, seen.append)
    assert tree(one.out / "logits").keys() == before.keys()
