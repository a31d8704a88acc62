"""What of a data set is not used, found out and named in sight of the user."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline.cli.progress import Bars
    from sightline.data.allowance import SkipUnreadable
    from sightline.data.source import Source

_SHOWN = 20


class LeftOut:
    """Names on stderr the files that are not used, and why, each once: some are found out in the middle of the work."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._said: set[str] = set()

    def read(self, source: Source, splits: Iterable[str], skip_unreadable: SkipUnreadable) -> Source:
        """The source to use from here on, without what the headers of some splits show to be unreadable.

        Raises:
            UnreadableDataError: that is more than may be left out.
        """
        for name in dict.fromkeys(splits):
            source, _ = source.check_readable(
                name,
                skip_unreadable=skip_unreadable,
                progress=lambda done, total, name=name: self._bars.move(f"reading headers of {name}", done, total),
            )
        self.say(source)
        return source

    def say(self, source: Source) -> None:
        """Name those that were not named yet."""
        found = {} if source.allowance is None else source.allowance.found
        images = [*source.skipped, *(image for split in found for image in source.allowance.left_out(split))]  # pyright: ignore[reportOptionalMemberAccess]  # empty then
        fresh = {image.path: image.reason for image in images if image.path not in self._said}
        self._said |= set(fresh)
        for path, reason in list(fresh.items())[:_SHOWN]:
            print(f"left out: {path}: {reason}", file=sys.stderr)
        if len(fresh) > _SHOWN:
            print(f"left out: {len(fresh) - _SHOWN} more", file=sys.stderr)
