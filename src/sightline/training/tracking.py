"""Curves of a run for programs that draw them; what goes wrong with one ends no training."""

from __future__ import annotations

import contextlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sightline import registry
from sightline.errors import InputError
from sightline.training.loop import TrainProgress

_PACKAGE = "sightline.training.trackers"


class Tracker(ABC):
    """A program that draws curves; one file in `trackers/`, or a plug-in.

    Attributes:
        name: as `--track` takes it; needs: the package that must be installed.
    """

    name: ClassVar[str]
    needs: ClassVar[str]

    @abstractmethod
    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        """Begin, or go on.

        Args:
            folder: of the run; config: resolved, as plain values.
            step: the last that is saved: what a killed sitting noted after it is not to stand twice.
        """

    @abstractmethod
    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Values by name after a step, as "train/loss"."""

    @abstractmethod
    def close(self) -> None:
        """Whatever is left is written."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse names that are none, and those whose package is not there."""
    for name in names:
        kind = registry.find(Tracker, _PACKAGE, "tracker", name)
        if importlib.util.find_spec(kind.needs) is None:
            raise InputError(f"--track {name}: {kind.needs} is not installed (pip install '.[{name}]')")


@contextlib.contextmanager
def tracking(
    names: Sequence[str], folder: Path, config: Mapping[str, Any], step: int, warn: Callable[[str], None]
) -> Iterator[Callable[[TrainProgress], None]]:
    """Inside, what is called after each step of a run to note it with every tracker.

    Args:
        warn: called with a line, once for each tracker that fails; the run goes on without it.
    """
    at_work: dict[str, Tracker] = {}

    @contextlib.contextmanager
    def trying(name: str) -> Iterator[None]:
        try:
            yield
        # Somebody else's code may raise anything.
        except Exception as error:
            at_work.pop(name, None)
            said = " ".join(str(error).split())[:200] or type(error).__name__
            warn(f"--track {name}: goes on without it ({said})")

    for name in names:
        with trying(name):
            at_work[name] = registry.find(Tracker, _PACKAGE, "tracker", name)(folder, config, step)
    drawn = None

    def note(at: TrainProgress) -> None:
        nonlocal drawn
        values = {
            "train/lr": at.lr, "train/tokens": float(at.tokens), "train/images": float(at.images),
            "train/loss": at.loss, "speed/images": at.pace.images_per_second, "speed/tokens": at.pace.tokens_per_second,
        }  # fmt: skip
        if at.validated is not None and at.validated != drawn:
            drawn = at.validated
            values[f"validation/{drawn.metric}"] = drawn.value
        for name, one in list(at_work.items()):
            with trying(name):
                one.note(at.step, {kind: value for kind, value in values.items() if value is not None})

    try:
        yield note
    finally:
        for name, one in list(at_work.items()):
            with trying(name):
                one.close()
