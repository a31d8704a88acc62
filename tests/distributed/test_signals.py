"""Signals to a command: what is left of them when it has ended."""

import signal
import subprocess
import sys

import pytest

from sightline.cli import app
from sightline.distributed import signals
from sightline.errors import StoppedError


def test_a_signal_that_ended_a_command_does_not_end_the_next():
    with pytest.raises(signals.Terminated), signals.listening(own_process=False):
        signal.raise_signal(signal.SIGTERM)
    with signals.defer_interrupts() as told:
        assert not told()
    assert not signals.heard()


def test_a_signal_is_noted_where_it_is_deferred():
    with signals.listening(own_process=False), signals.defer_interrupts() as told:
        signal.raise_signal(signal.SIGTERM)
        assert told()
        assert signals.exit_code() == 143


def test_a_process_that_was_stopped_is_not_ended_once_more(monkeypatch):
    """A launcher of several ranks ends the others as soon as the first of them is gone."""
    with signals.listening(own_process=False):
        monkeypatch.setattr(signals._Heard, "own_process", True)
        monkeypatch.setattr(signals._Heard, "deferred", 0)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        with pytest.raises(StoppedError, match="which is saved"), signals.defer_interrupts():
            # Another rank heard it.
            raise StoppedError("stopped after step 3, which is saved", 130)
        signal.raise_signal(signal.SIGTERM)


def test_what_was_not_stopped_by_a_signal_can_still_be_ended(monkeypatch):
    """As a worker of a sweep, whose cell another one took over."""
    with signals.listening(own_process=False):
        monkeypatch.setattr(signals._Heard, "own_process", True)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        with pytest.raises(StoppedError), signals.defer_interrupts():
            raise StoppedError("stopped after step 3, which is saved")
        with pytest.raises(signals.Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_an_interrupt_while_one_is_told_leaves_the_way_on(cli, monkeypatch):
    def call(*_):
        try:
            with signals.resume_hint("sightline train --resume"):
                signal.raise_signal(signal.SIGINT)
        finally:
            # As what was begun is being ended.
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(app, "_call", call)
    assert cli("train") == (130, "", "sightline: interrupted; go on with: sightline train --resume\n")
    monkeypatch.setattr(app, "_call", lambda *_: signal.raise_signal(signal.SIGINT))
    assert cli("train") == (130, "", "sightline: interrupted\n")


def test_an_interrupt_as_the_line_is_written_is_no_traceback(cli, monkeypatch):
    real = app._say_interrupted

    def say():
        monkeypatch.setattr(app, "_say_interrupted", real)
        signal.raise_signal(signal.SIGINT)
        return real()

    monkeypatch.setattr(app, "_say_interrupted", say)
    monkeypatch.setattr(app, "_call", lambda *_: signal.raise_signal(signal.SIGINT))
    assert cli("train") == (130, "", "sightline: interrupted\n")


WORKER = """
import multiprocessing, os, signal, time
from sightline.distributed import signals

def told(*_):
    raise RuntimeError("a worker is killed")

child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
try:
    with signals.listening(own_process=True):
        signals.begun()
        child.start()
        # As torch's loaders have it.
        signal.signal(signal.SIGCHLD, told)
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    while child.is_alive():
        time.sleep(0.01)
"""


def test_workers_that_are_killed_at_the_end_are_no_fault():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
