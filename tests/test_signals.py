"""Signals to a command: what is left of them when it has ended."""

import os
import signal

import pytest

from sightline import signals


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
