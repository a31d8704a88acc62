"""The faults that a user can cause, each with the exit code that the command line promises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SightlineError(Exception):
    """A fault with one line for the user; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class InputError(SightlineError, ValueError):
    """The user's input or configuration is wrong; nothing was written."""

    exit_code = 2


class UnreadableDataError(SightlineError):
    """Data could not be read, beyond the number of files that may be skipped."""

    exit_code = 3


class InaccessibleDataError(UnreadableDataError):
    """The system did not let a file be read: it may be whole, and readable another time."""


class NonFiniteError(SightlineError):
    """Training stopped before an optimiser step because a number was not finite."""

    exit_code = 4


class StorageError(SightlineError):
    """A file could not be written; what was there before is untouched."""

    exit_code = 5


class RanksError(SightlineError):
    """Another process of a run on several ended or cannot be reached; what was saved is whole."""

    exit_code = 6


class SweepError(SightlineError):
    """Cells of a sweep failed, each as often as it is tried; all others are finished."""

    exit_code = 7


class StoppedError(SightlineError):
    """A run was asked to stop; it finished its step and is saved.

    Attributes:
        by_signal: a signal asked, to this process or to another of the run; `exit_code` is then that signal's.
    """

    exit_code = 143

    def __init__(self, said: str, exit_code: int | None = None) -> None:
        super().__init__(said)
        self.by_signal = exit_code is not None
        if exit_code is not None:
            self.exit_code = exit_code


# Our names, the first that a command has before others -> what other programs call them.
_SYNONYMS = {
    "lr": "learning_rate",
    "weight_decay": "wd",
    "ema": "ema_decay model_ema model_ema_decay",
    "batch_size": "bs",
    "workers": "num_workers",
    "resolution": "img_size image_size input_size",
    "resolutions": "img_size image_size input_size",
    "init_from": "pretrained checkpoint ckpt",
    "model": "pretrained checkpoint ckpt",
}


def known_as(name: object, allowed: Iterable[str]) -> list[str]:
    """The one of `allowed` that has this name, or that other programs call so; empty where none is."""
    names, said = list(allowed), str(name).lower().replace("-", "_")
    called = (one for one, words in _SYNONYMS.items() if said in words.split())
    return [one for one in (said, *called) if one in names][:1]


def near(name: object, allowed: Iterable[str]) -> list[str]:
    """What was probably meant; of a family, as `rope`, some of its members."""
    names, family = list(allowed), f"{str(name).lower().replace('-', '_')}_"
    begun = [one for one in names if one.startswith(family)][:4]
    return known_as(name, names) or begun or difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)


def did_you_mean(name: object, allowed: Iterable[str]) -> str:
    """The end of a message that says what is near, "; did you mean 'lr'?", or nothing."""
    close = near(name, allowed)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def unknown_name_error(kind: str, name: object, allowed: Iterable[str], *, limit: int = 40) -> InputError:
    """The error for a name that is not among `allowed`: it says the nearest ones and the list.

    Returned, not raised, so that the caller's line says `raise`.
    """
    names = sorted(allowed)
    hint = did_you_mean(name, names)
    shown = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return InputError(f"{kind} {str(name)!r} is not known{hint} (allowed: {shown})")
