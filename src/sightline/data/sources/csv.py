"""A table of images and their captions: csv:FILE."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import ClassVar

from sightline.data.folders import split_by_name, split_in
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import NO_LABEL
from sightline.data.labelled import ClassificationFiles, captions_in
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError
from sightline.io.read import ROWS, read_text

_COLUMNS = {"path": ("path", "file", "image", "filepath"), "caption": ("caption", "title", "text")}


class CsvCaptions(ClassificationFiles):
    """Images and their captions in a table with a line of column names, divided by commas, or tabs where that line has
    one.

    Columns, in any case: `path`, `file`, `image` or `filepath`, relative to the table's folder; `caption`, `title` or
    `text`; and, if there is one, `split`, as `imagefolder` calls splits. Without it all images are the split that a
    word of the table's name means (`train.csv`), else `train`. Several rows of one image are several captions. An
    image that is not there, or without a caption, is one that cannot be read.
    """

    name: ClassVar[str] = "csv"
    provides = ("captions",)

    def __init__(self, file: str | Path) -> None:
        """Read FILE; raises InputError where a column is missing, a row has no path, or there is none."""
        file = Path(file)
        text = read_text(file, ROWS, "a table of paths and captions")
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in text.partition("\n")[0] else ",")
        # Split and path -> captions.
        found, unknown = dict[tuple[str, str], list[str]](), dict[str, None]()
        try:
            names = rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
            called = {kind: next((one for one in known if one in names), "") for kind, known in _COLUMNS.items()}
            if missing := [kind for kind, name in called.items() if not name]:
                expected = f"columns: {', '.join(names) or 'none'}; expected: {', '.join(_COLUMNS[missing[0]])}"
                raise InputError(f"{file}: has no column of {missing[0]}s ({expected})")
            for row in rows:
                own, where = (row.get("split") or "").strip(), (row[called["path"]] or "").strip()
                if not where:
                    raise InputError(f"{file}: line {rows.line_num}: has no path (expected: the file of an image)")
                split = split_by_name(own) if "split" in names else split_in(file.name) or "train"
                if split is None:
                    unknown[own] = None
                else:
                    found.setdefault((split, where), []).append(row[called["caption"]])
        except csv.Error as error:
            raise InputError(f"{file}: line {rows.line_num}: {error} (expected: rows of a table)") from None
        if not found:
            raise InputError(f"{file}: has no rows of a split (expected: a path and a caption in each)")
        self.skipped = tuple(Unreadable(f"{file}: {own!r}", "not a split") for own in unknown)
        self._places = {split: file for split, _ in found}
        paths = [file.parent / where for _, where in found]
        listing = ImageIndex.of_files([f"{split}/{where}" for split, where in found], paths)
        # A name of no file, one a table.
        self.remembered_as = file.parent / f":csv:{file.name}"
        captions = list(map(captions_in, found.values()))
        super().__init__(file.parent, (), listing, [NO_LABEL] * len(found), captions=captions, needs_captions=True)
