"""How many images may be left out because they cannot be read, and which were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sightline.data.config import SkipUnreadable
from sightline.errors import UnreadableDataError

Progress = Callable[[int, int], None]
"""What is called with how many are done, and how many there are in all."""
WAY_ON = "--skip-unreadable N or all leaves out what cannot be read"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An example that could not be read, and why, in one line."""

    path: str
    reason: str


@dataclass(eq=False)
class SkipPolicy:
    """How many images a source may leave out of each split, and split -> path -> reason of those left out until now;
    shared by the copies of the source in one process."""

    allowed: SkipUnreadable = 0
    found: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, split: str, images: Iterable[Unreadable], where: str = "") -> None:
        """Count images that are left out of a split; one that is met again counts once. Raises UnreadableDataError,
        which begins with `where`, if they are more than is allowed; it names the first ones and the way on."""
        found = self.found.setdefault(split, {})
        for image in images:
            found.setdefault(image.path, image.reason)
        if self.allowed == "all" or len(found) <= self.allowed:
            return
        said = where or f"{len(found)} images of {split} cannot be read"
        shown = [f"{path}: {reason}" for path, reason in list(found.items())[:_SHOWN]]
        shown += [f"and {len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
        raise UnreadableDataError(f"{said} (allowed: {self.allowed}): {'; '.join(shown)} ({WAY_ON})")

    def left_out(self, split: str) -> tuple[Unreadable, ...]:
        """Those left out of a split, in the order in which they were met."""
        return tuple(Unreadable(path, reason) for path, reason in self.found.get(split, {}).items())

    def restore(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Count also what an earlier sitting of a run left out."""
        for split, images in found.items():
            self.found[split] = {**images, **self.found.get(split, {})}
