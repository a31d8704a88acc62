"""A folder of images with one folder a class: imagefolder:DIR."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from sightline.data.folder_scan import SPLIT_FOLDERS, scan
from sightline.data.image_file import MAX_PIXELS, read_image, read_image_size
from sightline.data.source import Example, Source, Unreadable
from sightline.data.transforms import eval_view, train_view
from sightline.errors import InputError, UnreadableDataError, choose

_SHOWN = 3


class ImageFolder(Source):
    """Images in `DIR/SPLIT/CLASS/`, at any depth below CLASS, in the order of their paths.

    SPLIT is `train`, `minival`, `val` or `validation`, and `test`. The splits are called `train`, `minival` and `test`
    as everywhere: `val` is `test` where there is no `test` folder, else `minival` where there is no `minival` folder,
    and can be asked for by its own name too. A DIR that holds class folders directly is one split, `test`: it can be
    evaluated on, not trained on.

    One class is enough to evaluate; a `train` split needs two. Hidden files and unknown extensions are passed over,
    and listed in `skipped`. `train` shows random parts of the images (`train_view`), the others their centre
    (`eval_view`).
    """

    name: ClassVar[str] = "imagefolder"

    def __init__(
        self, root: str | Path, *, crop: float = 1.0, interpolation: str = "bicubic", max_pixels: int = MAX_PIXELS
    ) -> None:
        """Scan the folder.

        Args:
            root: DIR.
            crop: see `eval_view`.
            interpolation: a filter of Pillow, antialiased.
            max_pixels: see `read_image`.

        Raises:
            InputError: the folder is not as described; see `folder_scan.scan`.
            UnreadableDataError: a folder in it may not be read.
        """
        self.root = Path(root)
        self.crop, self.interpolation, self.max_pixels = crop, interpolation, max_pixels
        self._stretch = (3 / 4, 4 / 3)
        # (height, width) of files whose headers were read: a run asks for each in every pass.
        self._sizes: dict[str, tuple[int, int]] = {}
        found = scan(self.root)
        if "train" in found.files and len(found.classes) == 1:
            raise InputError(f"{self.root / 'train'}: one class only, {found.classes[0]!r} (expected: at least 2)")
        self.task = "classification"
        self.classes = found.classes
        self.groups = {}
        self.skipped = found.skipped
        self._files = found.files
        self._folder_of = _roles(tuple(found.files))
        self.splits = tuple(split for split in ("train", "minival", "test") if split in self._folder_of)

    @classmethod
    def open(cls, argument: str) -> Self:
        """The folder that the argument names."""
        if not argument:
            raise InputError("the data set imagefolder needs a folder: imagefolder:DIR")
        return cls(argument)

    @classmethod
    def folders(cls, argument: str) -> tuple[Path, ...]:
        """The folder, and those that links among its splits and classes lead to."""
        root = Path(argument)
        if not argument or not root.is_dir():
            return ()
        patterns = ("*", *(f"{split}/*" for split in SPLIT_FOLDERS))
        links = (link for pattern in patterns for link in root.glob(pattern) if link.is_symlink())
        return (root, *(link.resolve() for link in links if link.is_dir()))

    def _folder(self, split: str) -> str:
        if split not in self._folder_of:
            hint = "; to train, put class folders into DIR/train" if split == "train" else ""
            raise InputError(f"{self.root}: {choose('split', split, self.splits)}{hint}")
        return self._folder_of[split]

    def files(self, split: str) -> tuple[tuple[str, int], ...]:
        """(path, label) of each image of a split, in the order of the indices."""
        return self._files[self._folder(split)]

    def length(self, split: str) -> int:
        """The number of images in a split."""
        return len(self.files(split))

    def check(self, split: str, index: int = 0, image_size: tuple[int, int] = (1, 1)) -> None:
        """As `Source.check`; a split may also be asked for by its folder's name."""
        folder = self._folder(split)
        super().check(next(name for name in self.splits if self._folder_of[name] == folder), index, image_size)

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """One image, as it is seen in training or in evaluation; `name` is its path."""
        self.check(split, index, image_size)
        path, label = self.files(split)[index]
        # A drawn part has at least half of the image's sides; what is measured is decoded whole.
        least = (2 * image_size[0], 2 * image_size[1]) if split == "train" else None
        image = read_image(path, max_pixels=self.max_pixels, least=least)
        if split == "train":
            view = train_view(
                image,
                image_size,
                seed=seed,
                epoch=epoch,
                index=index,
                aspect=self._stretch,
                interpolation=self.interpolation,
            )
        else:
            view = eval_view(image, image_size, interpolation=self.interpolation, crop=self.crop)
        return Example(image=view, label=label, name=path)

    def stored_size(self, split: str, index: int) -> tuple[int, int]:
        """As `Source.stored_size`, from the file's header."""
        self.check(split, index)
        path = self.files(split)[index][0]
        if path not in self._sizes:
            self._sizes[path] = read_image_size(path, max_pixels=self.max_pixels)
        return self._sizes[path]

    def keeping_aspect(self) -> Self:
        """As `Source.keeping_aspect`."""
        kept = copy.copy(self)
        kept._stretch = (1.0, 1.0)
        return kept

    def check_readable(
        self, split: str, *, max_unreadable: int = 0, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Self, tuple[Unreadable, ...]]:
        """As `Source.check_readable`: every image is decoded once."""
        files = self.files(split)
        good: list[tuple[str, int]] = []
        bad: list[Unreadable] = []
        for done, (path, label) in enumerate(files, start=1):
            try:
                height, width = read_image(path, max_pixels=self.max_pixels).shape[:2]
                self._sizes[path] = (height, width)
                good.append((path, label))
            except UnreadableDataError as error:
                bad.append(Unreadable(path, str(error).removeprefix(f"{path}: ")))
            if progress:
                progress(done, len(files))
        if len(bad) > max_unreadable:
            shown = "; ".join(f"{item.path}: {item.reason}" for item in bad[:_SHOWN])
            more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
            raise UnreadableDataError(
                f"{len(bad)} of {len(files)} images of {self.root}/{self._folder(split)} cannot be read "
                f"(allowed: {max_unreadable}): {shown}{more}"
            )
        if not good:
            raise UnreadableDataError(f"{self.root}: no image of {split} can be read")
        remaining = copy.copy(self)
        remaining._files = self._files | {self._folder(split): tuple(good)}
        remaining.skipped = tuple(dict.fromkeys((*self.skipped, *bad)))
        return remaining, tuple(bad)


def _roles(folders: tuple[str, ...]) -> dict[str, str]:
    """Name of a split -> its folder: the folders under their own names, and the held-out one as minival or test."""
    roles = {folder: folder for folder in folders}
    for held_out in ("val", "validation"):
        if held_out in folders:
            roles.setdefault("test" if "test" not in folders else "minival", held_out)
    return roles
