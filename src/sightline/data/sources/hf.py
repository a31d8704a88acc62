"""Data sets of Hugging Face `datasets`, read by index: hf:DIR or hf:NAME."""

from __future__ import annotations

import glob
import io
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.encoded import ByteRange, EncodedImage
from sightline.data.image_file import check_image_file
from sightline.data.image_index import ImageIndex, stamp_of
from sightline.data.image_list import NO_LABEL, natural_key
from sightline.data.labelled import ClassificationFiles, class_part, understood
from sightline.data.skip_policy import Progress, Unreadable
from sightline.data.splits import SPLITS, files_by_split, split_called, splits_among, synonyms_beside
from sightline.data.stored import options_of
from sightline.errors import InputError, UnreadableDataError, unknown_name_error
from sightline.io.read import RECORD, read_text

_STREAMING = (
    "is streamed: no exact passes, no shuffle of all images, and no run that goes on where it was (expected: a data "
    "set by index, without streaming)"
)


class HuggingFace(ClassificationFiles):
    """A folder that `save_to_disk` wrote, a folder of Parquet files, or a name that `load_dataset` finds in its cache
    or on the Hub. Parquet is turned into Arrow once, in the cache of `datasets` (HF_DATASETS_CACHE).

    The image is the only column of images, the label the only one of classes (`ClassLabel`); `hf:DIR,image=a,label=b`
    names others: an image may also be a column of bytes, a label one of whole numbers, whose classes are called by
    them, of words (`understood`), or of true and false. Such a column needs no naming where it is called label.
    `config=NAME` is the part of a data set that `load_dataset` asks for. Splits are called as `imagefolder` calls them:
    `validation` alone is `test`; a data set without splits is `test`. Images are not decoded by `datasets`, but as
    files are. A row without an image or a label is one that cannot be read.
    """

    name: ClassVar[str] = "hf"
    options: ClassVar[tuple[str, ...]] = ("image", "label", "config", "streaming")

    def __init__(
        self,
        place: str,
        parts: Mapping[str, Any],
        *,
        image: str | None = None,
        label: str | None = None,
        skipped: tuple[Unreadable, ...] = (),
    ) -> None:
        """A data set of these tables.

        Args:
            place: what messages call it: its folder or name.
            parts: split -> `datasets.Dataset`.
            image, label: the columns; None where there is only one that may be it.
            skipped: what was passed over.

        Raises:
            InputError: a table is streamed or empty, or a column is missing, or one of several.
        """
        if streamed := [split for split, part in parts.items() if not hasattr(part, "data")]:
            raise InputError(f"hf:{place}: {streamed[0]} {_STREAMING}")
        self.skipped = skipped
        known = {split: parts[split] for split in SPLITS if split in parts and len(parts[split])}
        if not known:
            raise InputError(f"hf:{place}: no rows in {', '.join(parts) or 'it'}")
        first = next(iter(known.values()))
        image = _column(place, first, "image", image)
        try:
            label = _column(place, first, "label", label)
        except InputError as error:
            if label is not None:
                raise
            # A column of no name: what needs no labels takes the images.
            label, self._no_label = "", error
        self._columns = image, label
        for split, part in list(known.items()):
            # Where labels are withheld the column may be, too.
            missing = [one for one in self._columns if one and one not in part.column_names]
            if missing and (split == "train" or image in missing):
                raise unknown_name_error(f"hf:{place}: column of {split}", missing[0], part.column_names)
            # Rows in another order than they are stored in are written out once.
            known[split] = part if getattr(part, "_indices", None) is None else part.flatten_indices()
        splits = np.repeat(list(known), [len(table) for table in known.values()])
        said = [one for table in known.values() for one in _labels(table, label)]
        faults = {row: f"no label in column {label}" for row, one in enumerate(said) if one is None}
        classes, labels, unknown = understood(
            [NO_LABEL if one is None else one for one in said],
            splits,
            f"hf:{place}: column {label}",
            _class_names(place, known, label),
        )
        numbers = [number for table in known.values() for number in range(len(table))]
        rows = list(zip(splits.tolist(), labels, numbers, strict=True))
        contents = TableImages(known.values(), image)
        listing = ImageIndex(
            [f"{split}/{class_part(classes, label)}/{number}" for split, label, number in rows],
            [f"{place}:{split}/{number}" for split, _, number in rows],
            contents.stats(),
            contents,
        )
        super().__init__(Path(place), classes, listing, labels, faults | unknown)

    @property
    def _remembered_as(self) -> Path:
        # A name of no file; other columns are other images.
        return Path(os.path.abspath(self.root)) / f":hf:{':'.join(self._columns)}"

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The folder or the name that the argument begins with."""
        place, options = options_of(argument, cls.options)
        if not place:
            raise InputError("the data set hf needs a folder or a name: hf:DIR or hf:OWNER/NAME")
        if "streaming" in options:
            raise InputError(f"hf:{argument}: {_STREAMING}")
        parts, skipped = _by_split(place, _load(place, options.get("config")))
        return cls(place, parts, image=options.get("image"), label=options.get("label"), skipped=skipped)

    def _hint(self, split: str) -> str:
        return "; to train, save it as DatasetDict({'train': ...})" if split == "train" else ""


class TableImages:
    """The encoded images in a column of some tables, a row each; a process maps their files itself."""

    def __init__(self, tables: Iterable[Any], column: str) -> None:
        """Of these `datasets.Dataset`, one after the other."""
        self._tables, self._column = [one.select_columns([column]).with_format("arrow") for one in tables], column
        self._starts = np.cumsum([0, *map(len, self._tables)])

    def __call__(self, row: int, name: str) -> EncodedImage:
        return _Cell(name, *self._cell(row))

    def _cell(self, row: int) -> tuple[memoryview | None, str | None]:
        """An image's bytes, where the table has them, and the file that it names."""
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        cell = self._tables[number][row - int(self._starts[number])][self._column][0]
        path = None
        if hasattr(cell, "keys"):
            path = cell["path"].as_py() if cell.is_valid else None
            cell = cell["bytes"] if cell.is_valid else cell
        # Of a mapped file, no more than is read.
        return memoryview(cell.as_buffer()).cast("B") if hasattr(cell, "as_buffer") and cell.is_valid else None, path

    def stats(self) -> np.ndarray:
        """As `ImageIndex.stats`: of an image its own size and its table's times, or those of its file; no image is
        touched."""
        import pyarrow as pa
        from pyarrow import compute

        pc: Any = compute
        found = []
        for table in self._tables:
            column = table.data.column(self._column)
            content = pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column
            sizes = pc.fill_null(pc.binary_length(content), -1).to_numpy()
            stamps = [stamp_of(file["filename"])[1:] for file in table.cache_files]
            # In memory alone, it is new.
            times = np.max(stamps, axis=0) if stamps else (time.time_ns(), 0)
            found.append(np.column_stack([sizes, *(np.full(len(sizes), when, np.int64) for when in times)]))
        joined = np.concatenate(found)
        for row in np.flatnonzero(joined[:, 0] < 0).tolist():
            if path := self._cell(row)[1]:
                joined[row] = stamp_of(path)
        return joined


class _Cell(EncodedImage):
    """An image in a table, or in the file that the table names."""

    def __init__(self, name: str, content: memoryview | None, path: str | None) -> None:
        super().__init__(name)
        self._content, self._path = content, path

    def open(self) -> io.BufferedReader:
        content = self._content
        if content is None and self._path:
            if reason := check_image_file(self._path):
                raise UnreadableDataError(f"{self.name}: its file {self._path}: {reason}")
            return open(self._path, "rb")
        if not content:
            raise UnreadableDataError(f"{self.name}: no image in this row")
        return ByteRange.buffered(len(content), lambda place, count: content[place : place + count])


def _load(place: str, config: str | None) -> Any:
    """What `datasets` finds there: a table, or one for each split."""
    try:
        import datasets
    except ImportError:
        raise InputError("the data set hf needs datasets: pip install '.[hf]'") from None
    # Where nobody looks, bars would be lines of a log.
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    folder, saved, files, where = Path(place), False, None, place
    if folder.is_dir():
        # An absolute one is no name on the Hub.
        where = os.path.abspath(place)
        saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
        tables = sorted((*folder.glob("*.parquet"), *folder.glob("*/*.parquet")))
        if not saved and not tables:
            raise InputError(
                f"{place}: no data set of Hugging Face in this folder (expected: what save_to_disk wrote, or .parquet "
                f"files in it or in data/; is it imagefolder:{place}?)"
            )
        # A broken link to a table would be passed over without a word.
        if odd := [file for file in tables if not file.is_file()]:
            raise InputError(f"{odd[0]}: no regular file, or a link to a missing one (expected: a table; move it away)")
        if saved and config is not None:
            raise InputError(f"hf:{place}: config={config} is for a name or Parquet files, not for what was saved")
        files = None if saved or config is not None else _parquet_by_split(where)
    elif not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", place) or place.startswith("."):
        raise InputError(f"{place}: no such folder (expected: a folder, or a name as OWNER/NAME)")
    loud = datasets.logging.get_verbosity()
    try:
        # What it logs as an error it raises as well.
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)
        return datasets.load_from_disk(where) if saved else datasets.load_dataset(where, config, data_files=files)
    # The library raises nearly anything: of a network, of a cache, of files.
    except Exception as error:
        # Of an error while it converts files it says no more than that there was one; the cause says which.
        first = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        said = " ".join(str(first or error).split()) or type(error).__name__
        # The reason may stand at its end.
        shown = said if len(said) <= 300 else f"{said[:150]} ... {said[-145:]}"
        raise InputError(f"hf:{place}: cannot be loaded by datasets ({shown})") from None
    finally:
        datasets.logging.set_verbosity(loud)


def _by_split(place: str, loaded: Any) -> tuple[dict[str, Any], tuple[Unreadable, ...]]:
    if not isinstance(loaded, Mapping):
        return {split_called(str(getattr(loaded, "split", None))) or "test": loaded}, ()
    beside = synonyms_beside(loaded)
    named = splits_among((name for name in map(str, loaded) if name not in beside), f"hf:{place}")
    if not named:
        raise InputError(f"hf:{place}: splits {', '.join(loaded)} (expected: one of {', '.join(SPLITS)})")
    others = tuple(Unreadable(f"{place}:{name}", "not a split") for name in loaded if name not in named.values())
    return {split: loaded[name] for split, name in named.items()}, others


def _parquet_by_split(folder: str) -> dict[str, list[str]] | None:
    """Split -> the Parquet files in a folder and those in it; None where its README.md says which they are.

    `datasets` would take one file's word for all, and leave the others out.
    """
    card = Path(folder) / "README.md"
    if card.is_file() and re.search(r"^(configs|data_files):", read_text(card, RECORD, "a data card"), re.MULTILINE):
        return None
    files = [file for part in ("*", "*/*") for file in glob.glob(f"{glob.escape(folder)}/{part}.parquet")]
    return files_by_split(sorted(files, key=natural_key), "train")


def _column(place: str, table: Any, kind: str, asked: str | None) -> str:
    """The column of images, or of labels."""
    features = table.features
    dtype = {name: str(getattr(feature, "dtype", "")) for name, feature in features.items()}
    meant = {"image": "Image", "label": "ClassLabel"}[kind]
    own = [name for name, feature in features.items() if getattr(feature, "_type", "") == meant]
    if kind == "image":
        # What images are stored as, where a file does not say that they are.
        stored = [name for name, one in features.items() if isinstance(one, Mapping) and set(one) == {"bytes", "path"}]
        others = [name for name in features if name in stored or dtype[name] in ("binary", "large_binary")]
        expected = "a column of Image, or of bytes"
    else:
        kinds = r"u?int\d+|(large_)?string|string_view|bool"
        others = [name for name in features if re.fullmatch(kinds, dtype[name]) and name not in own]
        # One that says what it is needs not be named.
        called = [name for name in others if name.lower() == "label"]
        own = own or (called if len(called) == 1 else [])
        expected = "a column of ClassLabel, of whole numbers, of words or of true and false"
    if asked is None:
        if len(own) == 1:
            return own[0]
        named = ", ".join(own or others) or f"none; columns: {', '.join(features)}"
        found = f"{len(own)} columns of {meant}"
        raise InputError(f"hf:{place}: {found}, give one: hf:{place},{kind}=NAME (candidates: {named})")
    if asked not in features:
        raise unknown_name_error(f"hf:{place}: column", asked, list(features))
    if asked not in (*own, *others):
        raise InputError(f"hf:{place}: column {asked} is {features[asked]} (expected: {expected})")
    return asked


def _class_names(place: str, tables: Mapping[str, Any], label: str) -> tuple[str, ...]:
    """What the first table calls the classes of its labels; none where they have no names.

    Raises:
        InputError: another table calls one of them otherwise.
    """
    (first, names), *others = [
        (split, getattr(one.features[label], "names", None)) for split, one in tables.items() if label in one.features
    ] or [("", None)]
    for split, called in others:
        for number, (one, other) in enumerate(zip(names or (), called or (), strict=False)):
            if one != other:
                raise InputError(
                    f"hf:{place}: column {label} of {split}: class {number} is {other!r}, and {one!r} in {first} "
                    f"(expected: the same classes in the same order)"
                )
    return tuple(names or ())


def _labels(table: Any, column: str) -> list[int | str | None]:
    """What a column says of each row: a number, or a word; None where it says nothing."""
    import pyarrow as pa

    if column not in table.column_names:
        return [None] * len(table)
    values = table.data.column(column)
    values = values.cast(pa.string()) if pa.types.is_boolean(values.type) else values
    return [one.strip() if isinstance(one, str) else one for one in values.to_pylist()]
