"""What of a data set may be left out, as every command that reads one takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sightline.errors import InputError

if TYPE_CHECKING:
    from sightline.cli.progress import Bars
    from sightline.data.allowance import SkipUnreadable as Skip
    from sightline.data.source import Source

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
INHERITED = "As the run was trained unless given."


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
