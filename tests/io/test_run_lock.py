"""One process at a time in the folder of a run: of two at once one wins, and the dead hold nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import socket
import time

import pytest

from sightline.distributed.processes import is_alive
from sightline.errors import InputError, StorageError
from sightline.io import run_lock as module
from sightline.io.run_lock import LOCK, RunLock, lock_holder, refuse_locked

FORK = multiprocessing.get_context("fork")
GONE = 2**22 + 1


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.0)


def test_a_folder_has_one_owner_and_is_given_back(tmp_path, impatient):
    with RunLock(tmp_path / "a") as mine:
        assert json.loads((tmp_path / "a" / LOCK).read_text())["process"] == os.getpid()
        held = f"process {os.getpid()} on {socket.gethostname()} since "
        assert lock_holder(tmp_path / "a").startswith(held)
        for take in (lambda folder: RunLock(folder).__enter__(), refuse_locked):
            with pytest.raises(InputError, match=f"locked by {held}"):
                take(tmp_path / "a")
        mine.check()
        (tmp_path / "a" / "log.jsonl").touch()
    assert os.listdir(tmp_path / "a") == ["log.jsonl"]
    assert lock_holder(tmp_path / "a") is None
    with RunLock(tmp_path / "b"):
        pass
    # Made for nothing, it goes.
    assert os.listdir(tmp_path) == ["a"]


def hold(folder, pipe):
    with RunLock(folder):
        worker = FORK.Process(target=time.sleep, args=(600,))
        worker.start()
        pipe.send(worker.pid)
        time.sleep(600)


def test_a_dead_owner_holds_nothing_also_where_its_workers_live(tmp_path):
    here, there = FORK.Pipe()
    child = FORK.Process(target=hold, args=(tmp_path / "a", there))
    child.start()
    worker = here.recv()
    try:
        assert f"process {child.pid} " in lock_holder(tmp_path / "a")
        child.kill()
        # `join` waits for a pipe that the worker has too.
        os.waitpid(child.pid, 0)
        assert is_alive(worker)
        assert lock_holder(tmp_path / "a") is None
        # What it left says nothing any more.
        assert (tmp_path / "a" / LOCK).exists()
        with RunLock(tmp_path / "a"):
            assert f"process {os.getpid()} " in lock_holder(tmp_path / "a")
    finally:
        os.kill(worker, 9)


def try_to_lock(folder, barrier, outcomes):
    barrier.wait()
    try:
        with RunLock(folder):
            outcomes.put("owner")
            barrier.wait()
    except InputError:
        outcomes.put("refused")
        barrier.wait()


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_at_once_one_wins(stale, tmp_path):
    if stale:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / LOCK).write_text(json.dumps({"process": GONE, "host": "far", "since": "long"}))
    barrier, outcomes = FORK.Barrier(4), FORK.Queue()
    children = [FORK.Process(target=try_to_lock, args=(tmp_path / "a", barrier, outcomes)) for _ in range(4)]
    for child in children:
        child.start()
    found = sorted(outcomes.get(timeout=240) for _ in children)
    for child in children:
        child.join(240)
    assert found == ["owner", "refused", "refused", "refused"]
    assert not (tmp_path / "a" / LOCK).exists()


@pytest.mark.parametrize("how", ["moved", "deleted", "another's"])
def test_an_owner_notices_that_it_is_none_any_more(how, tmp_path):
    with contextlib.ExitStack() as held:
        mine = held.enter_context(RunLock(tmp_path / "a"))
        if how == "moved":
            (tmp_path / "a").rename(tmp_path / "b")
        else:
            (tmp_path / "a" / LOCK).unlink()
        if how == "another's":
            other = held.enter_context(RunLock(tmp_path / "a"))
            other.check()
        with pytest.raises(StorageError, match="moved or deleted"):
            mine.check()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_warned_of_once(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("filelock._unix.fcntl.flock", refuse)
    said = []
    with RunLock(tmp_path / "a", said.append) as mine:
        mine.check()
        (line,) = said
        assert line.startswith(f"{tmp_path / 'a' / LOCK}: ")
    refuse_locked(tmp_path / "a")
    with RunLock(tmp_path / "a"):
        assert lock_holder(tmp_path / "a") is None
