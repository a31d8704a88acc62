"""Runs in processes of their own: all are done, a fault is the caller's, and none outlives the caller."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from pathlib import Path

import pytest

from sightline.errors import NonFiniteError, SightlineError
from sightline.evaluation import EvaluateConfig
from sightline.results.rows import read_rows
from sightline.training import jobs
from sightline.training.config import OptimizerConfig
from sightline.training.jobs import Job, run_job, run_jobs
from tests.tiny import MEASURES, fork_server, kill_me, killed, tiny_config, tree


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


def test_a_job_that_is_done_is_left_to_end_in_peace(tmp_path, monkeypatch):
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
