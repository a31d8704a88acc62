"""The queue of a sweep: every cell once, whoever joins, fails, is killed or told to stop."""

from __future__ import annotations

import contextlib
import math
import multiprocessing

import pytest

from sightline.errors import InputError, NonFiniteError, StoppedError
from sightline.sweeps import queue as queues
from sightline.sweeps.queue import SweepQueue
from sightline.sweeps.run import run_worker
from sightline.sweeps.space import SweepConfig
from tests.sweeps.joining import join, scored

PROCESSES = multiprocessing.get_context("spawn")
GRID = SweepConfig(grid={"encoding": ["a", "b"], "optimizer.lr": [1e-3, 2e-3, 3e-3]})
PAIR = SweepConfig(grid={"seed": [0, 1]})
LR, SIZE = {"low": 1e-4, "high": 1e-2, "log": True}, {"low": 1, "high": 9, "int": True}
SEARCH = SweepConfig(search={"lr": LR, "size": SIZE, "of": ["a", [1]]}, trials=6)

WORKING = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _ended():
    with WORKING:
        yield


def queue(folder, config=GRID, url=None):
    """A worker's, who is at work until the test ends."""
    made = SweepQueue(config, folder, "s", url=url)
    WORKING.enter_context(made.working())
    return made


def done_by(said, fault=None):
    """A run of a cell that says which it was given, and fails by `fault`."""

    def run(claim):
        said.append((claim.cell.number, claim.again))
        if fault is not None and fault(claim):
            raise NonFiniteError("loss nan")
        return scored(float(claim.cell.number))

    return run


def worked(queue_, run, warned=None):
    return run_worker(
        queue_, run, observe=lambda *_: None, warn=(warned if warned is not None else []).append, poll=0.0
    )


@pytest.mark.slow
def test_the_cell_of_a_killed_worker_is_done_again_at_once(tmp_path):
    worker = PROCESSES.Process(target=join, args=(GRID, tmp_path, 3))
    worker.start()
    worker.join(600)
    assert worker.exitcode == -9
    mine, said = queue(tmp_path), []
    assert mine.state().running.keys() == {2}
    state = worked(mine, done_by(said))
    # It comes after those that were waiting before.
    assert said == [(3, False), (4, False), (5, False), (2, True)]
    assert sorted(state.scores) == list(range(6))


def test_a_failed_cell_is_tried_once_more_and_then_named(tmp_path):
    said, warned = [], []
    state = worked(queue(tmp_path), done_by(said, lambda claim: claim.cell.number == 1), warned)
    assert said == [(0, False), (1, False), (2, False), (3, False), (4, False), (5, False), (1, True)]
    assert (state.failed, sorted(state.scores)) == ({1: "loss nan"}, [0, 2, 3, 4, 5])
    assert ["001-a-lr0.002" in line for line in warned] == [True] * 2
    assert state.cells[1].fields == {"encoding": "a", "optimizer.lr": 2e-3}
    # Joining again does not try it again.
    worked(queue(tmp_path), done_by(said))
    assert len(said) == 7


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_cell_whose_value_is_no_number_failed(value, tmp_path):
    """As a metric of no image gives it: told to Optuna it would be a cell that is done, or lost."""
    state = worked(queue(tmp_path, PAIR), lambda claim: scored(value if claim.cell.number == 0 else 0.5))
    assert (list(state.failed), list(state.scores)) == ([0], [1])
    assert state.done


def test_another_file_for_a_study_is_refused_by_its_field(tmp_path):
    worked(queue(tmp_path, PAIR), done_by([]))
    other = SweepQueue(SweepConfig(grid={"seed": [0, 2]}), tmp_path, "s")
    with pytest.raises(InputError) as error, other.working():
        pass
    assert (error.value.field, error.value.value) == ("grid.seed", [0, 2])
    # Nothing of the study is changed.
    assert queue(tmp_path, PAIR).state().cells[1].fields == {"seed": 1}


def test_a_worker_waits_for_cells_that_others_run(tmp_path):
    other, mine, seen = queue(tmp_path), queue(tmp_path), []
    theirs = other.claim()

    def observe(state, claim):
        seen.append((claim and claim.cell.number, len(state.running), state.done))
        if len(seen) == 8:
            other.finish(theirs, {}, 1.0)

    state = run_worker(mine, lambda _: scored(0.0), observe=observe, warn=print, poll=0.0)
    assert [one[0] for one in seen[:5]] == [1, 2, 3, 4, 5]
    assert seen[5:] == [(None, 1, False)] * 3 + [(None, 0, True)]
    assert state.done


@pytest.mark.parametrize("stop", [KeyboardInterrupt, StoppedError])
def test_a_signal_gives_the_cell_back(stop, tmp_path):
    def run(*_):
        raise stop

    mine = queue(tmp_path, PAIR)
    for _ in range(queues.LOSSES):
        with pytest.raises(stop):
            worked(mine, run)
    # However often: nothing failed, and nothing was lost.
    said = []
    state = worked(queue(tmp_path, PAIR), done_by(said))
    assert (len(said), state.failed, len(state.scores)) == (2, {}, 2)


def test_a_search_draws_so_many_cells_by_what_was_measured_and_no_worker(tmp_path):
    def drawn(name, workers):
        found = []

        def run(claim):
            found.append(dict(claim.cell.fields))
            return scored(-abs(claim.cell.fields["lr"] - 1e-3))

        for _ in range(workers):
            queue(tmp_path / name, SEARCH)
        worked(queue(tmp_path / name, SEARCH), run)
        return found

    first = drawn("a", 1)
    assert len(first) == 6
    assert len({one["lr"] for one in first}) == 6
    assert all(1e-4 <= one["lr"] <= 1e-2 and one["size"] in range(1, 10) and one["of"] in ("a", [1]) for one in first)
    assert drawn("b", 2) == first


def test_a_finished_cell_is_never_run_again(tmp_path):
    given = []
    for _ in range(2):
        worked(queue(tmp_path, PAIR), done_by(given))
        WORKING.pop_all().close()
    assert [number for number, _ in given] == [0, 1]
