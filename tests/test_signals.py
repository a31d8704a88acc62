"""Signals to a command: what is left of them when it has ended."""

import os
import signal
import sys

import pytest

from sightline import signals
from sightline.errors import StoppedError


def test_a_signal_that_ended_a_command_does_not_end_the_next():
    with pytest.raises(signals.Terminated), signals.listening(own_process=False):
        os.kill(os.getpid(), signal.SIGTERM)
    with signals.deferred() as told:
        assert not told()
    assert not signals.heard()


def test_a_signal_is_noted_where_it_is_deferred():
    with signals.listening(own_process=False), signals.deferred() as told:
        os.kill(os.getpid(), signal.SIGTERM)
        assert told()
        assert signals.exit_code() == 143


def test_a_process_that_was_stopped_is_not_ended_once_more(monkeypatch):
    """A launcher of several ranks ends the others as soon as the first of them is gone."""
    with signals.listening(own_process=False):
        monkeypatch.setattr(signals._Heard, "own_process", True)
        monkeypatch.setattr(signals._Heard, "deferred", 0)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        with pytest.raises(StoppedError, match="which is saved"), signals.deferred():
            # Another rank heard it.
            raise StoppedError("stopped after step 3, which is saved", 130)
        os.kill(os.getpid(), signal.SIGTERM)


def test_what_was_not_stopped_by_a_signal_can_still_be_ended(monkeypatch):
    """As a worker of a sweep, whose cell another one took over."""
    with signals.listening(own_process=False):
        monkeypatch.setattr(signals._Heard, "own_process", True)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        with pytest.raises(StoppedError), signals.deferred():
            raise StoppedError("stopped after step 3, which is saved")
        with pytest.raises(signals.Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
