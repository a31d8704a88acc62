"""The folder of a run has one owner: the dead are found out, the living are left alone, and of two at once one wins."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import socket
import time

import pytest

from sightline.distributed.processes import is_alive, locked, machine, started_at
from sightline.errors import InputError, StorageError
from sightline.io import run_lock as module
from sightline.io.run_lock import DEAD_AFTER, OWNER, claim, refuse_owned

HERE = {
    "host": socket.gethostname(),
    "process": os.getpid(),
    "machine": machine(),
    "started": started_at(os.getpid()),
    "token": "0",
}
GONE = 2**22 + 1


def leave(folder, silent=0.0, **changes):
    """An `owner.json` of somebody else, whose heartbeat moved so many seconds ago."""
    folder.mkdir(exist_ok=True)
    (folder / OWNER).write_text(json.dumps({**HERE, **changes}) + "\n")
    os.utime(folder / OWNER, (time.time() - silent,) * 2)


def test_found_28_a_folder_has_one_owner_and_is_given_back(tmp_path):
    with claim(tmp_path / "a") as mine:
        assert json.loads((tmp_path / "a" / OWNER).read_text())["process"] == os.getpid()
        for take in (claim, refuse_owned):
            with pytest.raises(InputError, match=f"process {os.getpid()} on this host, which is at work.*--take-over"):
                take(tmp_path / "a")
        mine.check()
        (tmp_path / "a" / "log.jsonl").touch()
    assert os.listdir(tmp_path / "a") == ["log.jsonl"]
    with claim(tmp_path / "b"):
        pass
    # Made for nothing, it goes.
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("changes", "silent", "says"),
    [
        ({"process": GONE}, 0, f"process {GONE} on this host, which is gone"),
        # The id is used again, by a process that began later.
        ({"started": 17}, 0, " on this host, which is gone"),
        ({"machine": "other", "host": "far"}, DEAD_AFTER + 60, "on host far, whose heartbeat has not moved for 6 min"),
        ({"machine": None}, DEAD_AFTER + 60, "whose heartbeat has not moved for 6 minutes"),
    ],
)
def test_found_28_a_dead_owner_is_taken_over_with_a_line(changes, silent, says, tmp_path):
    leave(tmp_path / "a", silent, **changes)
    said = []
    refuse_owned(tmp_path / "a")
    with claim(tmp_path / "a", warn=said.append):
        (line,) = said
        assert says in line
        assert json.loads((tmp_path / "a" / OWNER).read_text())["token"] != "0"


@pytest.mark.parametrize(
    ("changes", "silent", "says"),
    [
        # A process of this machine is seen: its heartbeat may stand still, as in a debugger.
        ({}, DEAD_AFTER + 60, "process"),
        ({"machine": "other", "host": "far"}, 4, "on host far, which is at work: its heartbeat moved 4 s ago (it"),
        ({"machine": "other"}, DEAD_AFTER - 30, "counts as dead when that has not moved for 5 minutes"),
        ({"process": "many"}, 0, "somebody (owner.json cannot be read)"),
    ],
)
def test_found_28_a_living_owner_is_left_alone_unless_forced(changes, silent, says, tmp_path):
    leave(tmp_path / "a", silent, **changes)
    before = (tmp_path / "a" / OWNER).read_text()
    with pytest.raises(InputError) as error:
        claim(tmp_path / "a")
    assert says in str(error.value)
    assert (os.listdir(tmp_path / "a"), (tmp_path / "a" / OWNER).read_text()) == ([OWNER], before)
    said = []
    with claim(tmp_path / "a", take_over=True, warn=said.append) as mine:
        assert "taken over from" in said[0]
        mine.check()


def try_to_claim(folder, barrier, outcomes):
    barrier.wait()
    try:
        mine = claim(folder)
    except InputError:
        outcomes.put("refused")
        barrier.wait()
    else:
        outcomes.put("owner")
        barrier.wait()
        mine.release()


@pytest.mark.parametrize("stale", [False, True])
def test_found_28_of_many_at_once_one_wins(stale, tmp_path):
    if stale:
        leave(tmp_path / "a", process=GONE)
    context = multiprocessing.get_context("fork")
    barrier, outcomes = context.Barrier(4), context.Queue()
    children = [context.Process(target=try_to_claim, args=(tmp_path / "a", barrier, outcomes)) for _ in range(4)]
    for child in children:
        child.start()
    found = sorted(outcomes.get(timeout=240) for _ in children)
    for child in children:
        child.join(240)
    assert found == ["owner", "refused", "refused", "refused"]
    assert not (tmp_path / "a" / OWNER).exists()


@pytest.mark.parametrize("how", ["moved", "deleted", "taken over"])
def test_found_30_an_owner_notices_that_it_is_none_any_more(how, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.01)
    mine = claim(tmp_path / "a")
    other = None
    if how == "moved":
        (tmp_path / "a").rename(tmp_path / "b")
    elif how == "deleted":
        (tmp_path / "a" / OWNER).unlink()
    else:
        other = claim(tmp_path / "a", take_over=True)
    with pytest.raises(StorageError, match="has taken it over" if other else "moved or deleted"):
        mine.check()
    mine._thread.join(240)
    with pytest.raises(StorageError):
        mine.check(read=False)
    mine.release()
    if other is not None:
        # What is not its own stays.
        assert (tmp_path / "a" / OWNER).exists()
        other.release()


def test_a_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.01)
    with claim(tmp_path / "a"):
        os.utime(tmp_path / "a" / OWNER, (0, 0))
        deadline = time.monotonic() + 240
        while (tmp_path / "a" / OWNER).stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_moment_without_the_file_system_ends_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.01)
    real, looked, away = os.stat, [], [True]

    def stat(path, *arguments, **options):
        if away[0] and str(path).endswith(OWNER):
            looked.append(path)
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *arguments, **options)

    with claim(tmp_path / "a") as mine:
        monkeypatch.setattr(os, "stat", stat)
        deadline = time.monotonic() + 240
        while len(looked) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        mine.check(read=False)
        # Nothing is saved while nobody can say whose it is.
        with pytest.raises(StorageError, match="cannot be read"):
            mine.check()
        away[0] = False
        assert mine._thread.is_alive()
        mine.check()


def test_processes(tmp_path):
    assert is_alive(os.getpid())
    assert not is_alive(GONE)
    assert started_at(GONE) is None
    assert started_at(os.getpid()) == started_at(os.getpid())
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def count_up(file):
    for _ in range(50):
        with locked(file.with_name("lock")):
            file.write_text(str(int(file.read_text()) + 1))


def test_a_short_lock_lets_one_in_at_a_time(tmp_path):
    (tmp_path / "count").write_text("0")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=count_up, args=(tmp_path / "count",)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(240)
    assert (tmp_path / "count").read_text() == "200"
