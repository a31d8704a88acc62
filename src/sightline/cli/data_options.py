"""What of a data set may be left out, as every command that reads one takes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sightline.errors import InputError

if TYPE_CHECKING:
    from sightline.cli.progress import Bars
    from sightline.data.allowance import SkipUnreadable as Skip
    from sightline.data.source import Source
    from sightline.data.summary import Summary
    from sightline.training.config import TrainConfig

SkipUnreadable = Annotated[
    str | None,
    Parameter(
        help="Images of a split that may be left out because they cannot be read: a number, or all.",
        allow_leading_hyphen=True,
    ),
]
MaxPixels = Annotated[
    int | None,
    Parameter(help="Width times height of the largest image that is read; 89478485 unless given."),
]


class TrainingSources:
    """The data set of a training run, opened once: for its recipe, which may want to measure it, and for the run."""

    def __init__(self) -> None:
        self._opened: dict[str, Source] = {}
        self._summary: Summary | None = None

    def open(self, config: TrainConfig) -> Source:
        """As `open_training_data`."""
        from sightline.training.course import shown
        from sightline.training.loop import open_training_data

        if config.data not in self._opened:
            self._opened[config.data] = open_training_data(config)
        return shown(self._opened[config.data], config)

    def summary(self, config: TrainConfig) -> Summary | None:
        """What the recipe of the data wants to know of it, with the headers read in sight of the user.

        Raises:
            UnreadableDataError: no image can be read, or more cannot than may be left out.
        """
        from sightline.cli.progress import Bars

        source = self.open(config)
        with Bars() as bars:

            def progress(done: int, total: int) -> None:
                # What takes no time is not worth a line: more may yet be refused.
                if done < total or sys.stderr.isatty():
                    bars.move("reading headers of train", done, total)

            source, _ = source.check_readable("train", skip_unreadable=config.skip_unreadable, progress=progress)
            self._summary = source.summary()
        return self._summary

    def say(self, config: TrainConfig) -> None:
        """On stderr what was chosen by what was measured."""
        found = self._summary
        if found is None:
            return
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (found.mean, found.std))
        # None is the model's own.
        size = "" if config.resolution is None else f" at {config.resolution} px"
        print(
            f"{config.data}: {found.images:,} images of about {found.side:.0f} px: {config.model}{size}; "
            f"mean {mean} and deviation {std} of {found.sampled} of them",
            file=sys.stderr,
        )


@dataclass(frozen=True)
class DataOptions:
    """What may be left out of each split, and how large an image may be."""

    skip_unreadable: Skip
    max_pixels: int


def data_options(
    skip_unreadable: str | None, max_pixels: int | None, trained: Mapping[str, Any] | None = None
) -> DataOptions:
    """What the command line says, or else the run.

    Args:
        trained: the saved configuration of the run, which may be an old one; None for none.

    Raises:
        InputError: a value is out of range.
    """
    from sightline.data.image_file import MAX_PIXELS
    from sightline.training.config import renamed

    saved = renamed(trained or {})
    pixels = saved.get("max_pixels", MAX_PIXELS) if max_pixels is None else max_pixels
    if pixels < 1:
        raise InputError(f"--max-pixels {pixels}: must be at least 1")
    skip = saved.get("skip_unreadable", 0) if skip_unreadable is None else parse_skip(skip_unreadable)
    return DataOptions(skip, pixels)


def parse_skip(word: str) -> Skip:
    """A whole number of 0 or more, or "all"; raises InputError."""
    from sightline.data.allowance import check_skip

    number = int(word) if word.removeprefix("-").isdecimal() and word.isascii() and len(word) < 20 else word
    return check_skip(number, "--skip-unreadable")


def open_data(spec: str, options: DataOptions) -> Source:
    """A data set, of which nothing is read yet but the names of its files."""
    from sightline.data.discovery import open_source

    return open_source(spec).up_to(options.max_pixels)


def read_headers(source: Source, splits: Iterable[str], options: DataOptions, bars: Bars) -> Source:
    """The source to use from here on, without what its headers show to be unreadable.

    Raises:
        UnreadableDataError: that is more than may be left out.
    """
    for name in dict.fromkeys(splits):
        source, _ = source.check_readable(
            name,
            skip_unreadable=options.skip_unreadable,
            progress=lambda done, total, name=name: bars.move(f"reading headers of {name}", done, total),
        )
    return source
