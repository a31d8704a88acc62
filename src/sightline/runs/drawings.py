"""The folder of what a task draws of images: a file each, and a sheet of all with what its colours mean."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.data.image_file import read_image
from sightline.errors import InputError
from sightline.io.atomic import write_out
from sightline.runs import outputs
from sightline.tasks.base import Task
from sightline.tasks.drawing import as_png, sheet

SHEET = "sheet.png"
_MOST = 24
_LONGEST = 180
_SIDE = 192


class Drawings:
    """What was drawn so far; the sheet shows the first ones, small."""

    def __init__(self, folder: Path, task: Task) -> None:
        self._folder, self._task = folder, task
        self._names: set[str] = set()
        self._small: list[tuple[str, Image.Image]] = []

    @classmethod
    def into(cls, folder: Path, task: Task, model: str, images: Sequence[str], *, overwrite: bool) -> Drawings:
        """Into a folder that is new or empty, or whose files of the same names may be replaced.

        Raises:
            InputError: it is none of these, belongs to something else or holds one of `images`; or the task draws
                nothing.
        """
        if type(task).pictures is Task.pictures:
            raise InputError(f"--out {folder}: task {task.name} draws nothing (expected no --out)")
        outputs.guard_folder(folder, outputs.Inputs(models=[model]), "--out", deletes=False)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {folder}: is a file (expected a folder)")
        place = os.path.realpath(folder)
        # Two images of one folder lie in one, which is asked once.
        for parent, image in {os.path.dirname(image): image for image in images if "\0" not in image}.items():
            if os.path.commonpath((place, os.path.realpath(parent))) == place:
                raise InputError(f"--out {folder}: holds {image}, which this command reads; give another folder")
        if not overwrite and folder.exists() and any(folder.iterdir()):
            raise InputError(f"--out {folder}: is not empty (expected a new folder, or --overwrite)")
        return cls(folder, task)

    def add(self, image: str, decoded: Any) -> dict[str, str]:
        """Draw what is said of an image file: by what it shows the path of each picture.

        Raises:
            StorageError: it cannot be written.
        """
        stem = self._name(Path(image).stem)
        places, last = {}, None
        for what, picture in self._task.pictures(decoded, read_image(image, max_pixels=2**63 - 1)).items():
            place = self._folder / f"{stem}.{what}.png"
            write_out(place, as_png(picture))
            places[what], last = str(place), picture
        if last is not None and len(self._small) < _MOST:
            small = last.convert("RGB")
            small.thumbnail((_SIDE, _SIDE))
            self._small.append((stem, small))
        return places

    def _name(self, stem: str) -> str:
        """A name that no other image has, short enough for every file system."""
        # Bytes, of which 255 are allowed, with an ending and what a file that is being written is called.
        stem = os.fsdecode(os.fsencode(stem)[:_LONGEST]) or "image"
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem}-{number}"
        self._names.add(name)
        return name

    def finish(self) -> None:
        """Write the sheet, where anything was drawn."""
        if self._small:
            write_out(self._folder / SHEET, as_png(sheet(self._small, self._task.color_key())))


def write_picture(out: Path, pixels: np.ndarray) -> None:
    """Write uint8 (height, width, 3) as a picture of the kind that the name's ending says; raises StorageError."""
    picture = io.BytesIO()
    Image.fromarray(pixels).save(picture, format=Image.registered_extensions()[out.suffix.lower()])
    write_out(out, picture.getvalue())
