"""A folder of clips with one folder a class: clips:DIR."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from PIL import Image

from sightline.data.clip_file import Clip, ClipHeader, clip_at, clip_stamp, is_frame, too_long
from sightline.data.crops import FrameStream, Picture, size_of
from sightline.data.folders import entries_of, folders_in, walk
from sightline.data.image_list import ANIMATIONS, holds_images, scan_class_folders
from sightline.data.labelled import ClassificationFiles
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError


class Clips(ClassificationFiles):
    """Clips in `DIR/SPLIT/CLASS/`, splits and classes as `imagefolder` has them.

    A clip is an animated GIF or WebP file in a class folder, or a folder at any depth below it that holds image files:
    its frames, in natural order (2 before 10), all of one size. Any other image file in a class folder is a clip of one
    frame. `clips:DIR,flip=0` mirrors no clip in training (half of them are), for classes that say left or right.

    Headers alone are read before a run. `train` shows the same random part of all frames of a clip; which frames is
    `sampling`'s to say.
    """

    name: ClassVar[str] = "clips"
    is_video: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("flip",)

    def __init__(self, root: str | Path, flip: str | None = None) -> None:
        """Scan the folder DIR; raises as `ImageFolder`, and where `flip` is no share."""
        found = scan_class_folders(Path(root), clips_below, "clips", holds_clips, clip_stamp)
        classes, listing, labels, self.skipped, self._places = found
        listing.contents = clip_of
        super().__init__(Path(root), classes, listing, labels)
        try:
            self.transform = self.transform.changed(flip=None if flip is None else float(flip))
        except ValueError:
            raise InputError(f"clips:{root}: flip={flip} (expected a share from 0 to 1)") from None

    def header_error(self, row: int) -> str | None:
        """As `FileSource.header_error`; all frames together are bounded too."""
        height, width = self.listing.sizes[row].tolist()
        header = ClipHeader(height, width, self.listing.frames.get(row, 1))
        return super().header_error(row) or too_long(header, self.max_pixels)

    def stored_frames(self, split: str, index: int) -> int:
        """As `Source.stored_frames`, from the headers."""
        self.stored_size(split, index)
        return self.listing.frames.get(self._row(split, index), 1)

    def _frames(self, row: int, places: Sequence[int], least: tuple[int, int] | None = None) -> Iterator[Image.Image]:
        return clip_at(self.listing.paths[row]).frames(places, max_pixels=self.max_pixels, least=least)

    def _picture(self, row: int, least: tuple[int, int] | None, **shown: Any) -> Picture:
        stored = self.stored_frames(shown["split"], shown["index"])
        if self.sampling is None:
            # As an image: that in the middle.
            return next(self._frames(row, [stored // 2], least))
        if shown["split"] == "train" and not self.still:
            places = self.sampling.draw(stored, seed=shown["seed"], epoch=shown["epoch"], index=shown["index"])
        else:
            places = self.sampling.positions(stored)
        return FrameStream(self._frames(row, places.tolist(), least))

    def decoded_size(self, row: int) -> tuple[int, int]:
        [last] = deque(self._frames(row, range(self.listing.frames.get(row, 1))), maxlen=1)
        return size_of(last)


def clip_of(row: int, path: str) -> Clip:
    """The clip of a row of a listing, at its path."""
    return clip_at(path)


def clips_below(folder: Path, skipped: list[Unreadable]) -> Iterator[str]:
    """The clips of a class folder: its own image files, one each, and every folder below it that holds image files (by
    `folders.walk`, as which it raises). What is passed over is added to `skipped`."""
    for place, folders, files in walk(folder, skipped):
        others, reason = files, "unknown extension"
        if place == str(folder):
            yield from (entry.path for entry in files if is_frame(entry.name))
        elif any(is_frame(entry.name) for entry in (*files, *folders)):
            yield place
            others, reason = [*files, *folders], "no frame, in a folder of frames"
            folders.clear()
        elif not folders:
            skipped.append(Unreadable(place, "a folder without frames"))
        skipped += [Unreadable(entry.path, reason) for entry in others if not is_frame(entry.name)]


def holds_clips(folder: Path) -> str:
    """As what clips stand in a folder directly: "files", "folders" of frames, or "" where none does."""
    inside = [folder / name for name in folders_in(folder)]
    moving = (entry for one in inside for entry in entries_of(one) if entry.name.lower().endswith(ANIMATIONS))
    framed = inside and all(map(holds_images, inside)) and not any(moving)
    return holds_images(folder) or ("folders" if framed else "")
