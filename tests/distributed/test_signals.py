"""Signals to a command: what it is told, and what is left of them when it has ended."""

import contextlib
import signal

import pytest

from sightline.distributed import signals
from sightline.errors import StoppedError


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_is_going_on(number, code):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals.handle_signals(own_process=False):
        signal.raise_signal(number)
    assert signals.exit_code() == code
    assert signal.getsignal(number) is before


def told(*numbers, at_the_end=()):
    """Work that defers signals and gets some, also as it ends; what is left of the numbers is never sent."""
    with signals.handle_signals(own_process=False):
        with signals.defer_interrupts() as flag:
            try:
                for number in numbers:
                    signal.raise_signal(number)
                    assert flag.is_set()
            finally:
                for number in at_the_end:
                    signal.raise_signal(number)
        pytest.fail("goes on")


def test_the_first_is_noted_and_a_second_interrupt_ends_at_once():
    with pytest.raises(KeyboardInterrupt):
        told(signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, at_the_end=[signal.SIGINT] * 2)
    assert signals.exit_code() == 143


def after_a_stop(*numbers):
    """What a signal does after a run has stopped."""
    with signals.handle_signals(own_process=False):
        # As of a command, whose process ends with it.
        signals._Process.ends = True
        with contextlib.suppress(StoppedError), signals.defer_interrupts():
            for number in numbers:
                signal.raise_signal(number)
            raise StoppedError("stopped after step 3, which is saved")
        signal.raise_signal(signal.SIGTERM)


def test_a_run_that_was_stopped_is_not_ended_once_more():
    """A launcher of several ranks ends the others as soon as the first of them is gone."""
    after_a_stop(signal.SIGINT)
    assert signals.exit_code() == 130
    # As a worker of a sweep, whose cell another one took over.
    with pytest.raises(KeyboardInterrupt):
        after_a_stop()
