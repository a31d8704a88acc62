"""How far long work is, told to whoever looks: nothing here, bars in a terminal (`cli.progress`)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping

from sightline.data.config import SkipUnreadable
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source

# Files that are named one by one.
_SHOWN = 20


class Progress:
    """Progress that is not shown; files that are left out are named on stderr, each once."""

    def __init__(self) -> None:
        self._left_out: set[str] = set()

    def move(self, name: str, done: int, total: int, *notes: str) -> None:
        """Note that `done` of `total` is done of the work called `name`."""

    def counter(self, name: str, total: int) -> Callable[[int], None]:
        """What moves a work on by so many."""
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.move(name, done, total)

        return advance

    def read_headers(self, source: Source, splits: Iterable[str], skip_unreadable: SkipUnreadable) -> Source:
        """The source to use from here on, without what the headers of some splits show to be unreadable.

        Raises:
            UnreadableDataError: that is more than may be left out.
        """
        for name in dict.fromkeys(splits):
            moved = functools.partial(self.move, f"reading headers of {name}")
            source, _ = source.check_readable(name, skip_unreadable=skip_unreadable, progress=moved)
        self.say_left_out(source)
        return source

    def say_left_out(self, source: Source) -> None:
        """Name the files that are not used, and why: some are found out in the middle of the work."""
        images = list(source.skipped)
        if source.allowance is not None:
            images += [image for split in source.allowance.found for image in source.allowance.left_out(split)]
        self.say(images, source.left_out)

    def say(self, images: Iterable[Unreadable], parts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        """As `say_left_out`, of these images, and of what was left out of others, by their paths."""
        reasons = {image.path: image.reason for image in images}
        reasons |= {
            path: ", ".join(f"{what}: {count:,}" for what, count in said.items())
            for path, said in (parts or {}).items()
        }
        fresh = {path: reason for path, reason in reasons.items() if path not in self._left_out}
        self._left_out |= set(fresh)
        for path, reason in list(fresh.items())[:_SHOWN]:
            print(f"left out: {path}: {reason}", file=sys.stderr)
        if len(fresh) > _SHOWN:
            print(f"left out: {len(fresh) - _SHOWN} more", file=sys.stderr)
