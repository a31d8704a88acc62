"""Data sets of Hugging Face `datasets`, read by index: hf:DIR or hf:NAME."""

from __future__ import annotations

import glob
import io
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.folders import SPLITS, files_by_split, split_by_name, splits_among, synonyms_beside
from sightline.data.image_file import ByteRange, EncodedImage, check_image_file
from sightline.data.image_index import ImageIndex, stamp_of
from sightline.data.image_list import NO_LABEL, natural_key
from sightline.data.labelled import ClassificationFiles, captions_in, class_part, understood
from sightline.data.skip_policy import Progress, Unreadable
from sightline.data.stored import options_of
from sightline.errors import InputError, UnreadableDataError, unknown_name_error
from sightline.io.read import RECORD, read_text

_CAPTIONS = ("caption", "captions", "text", "sentence", "sentences")


class HuggingFace(ClassificationFiles):
    """A folder that `save_to_disk` wrote, a folder of Parquet files, or a name that `load_dataset` finds in its cache
    or on the Hub. Parquet is turned into Arrow once, in the cache of `datasets` (HF_DATASETS_CACHE).

    The image is the only column of images, the label the only one of classes (`ClassLabel`); `hf:DIR,image=a,label=b`
    names others: an image may also be a column of bytes, a label one of whole numbers, whose classes are called by
    them, of words (`understood`), or of true and false. Such a column needs no naming where it is called label.
    Captions are a column of texts, or of lists of texts, that is called caption, captions, text, sentence or sentences;
    `caption=NAME` names another. `config=NAME` is the part of a data set that `load_dataset` asks for.

    Splits are called as `imagefolder` calls them: `validation` alone is `test`; a data set without splits is `test`.
    Images are not decoded by `datasets`, but as files are. A row without an image or a label cannot be read.
    """

    name: ClassVar[str] = "hf"
    options: ClassVar[tuple[str, ...]] = ("image", "label", "caption", "config")

    def __init__(
        self, place: str, tables: Any, image: str | None = None, label: str | None = None, caption: str | None = None
    ) -> None:
        """A data set of a `datasets.Dataset`, or a mapping from names of splits to such, from a folder or name; `image`
        and `label` are the columns, None where there is only one that may be it; `caption` that of texts, None for the
        one of a known name. Raises InputError where a table is streamed, none has rows, or a column is missing, or one
        of several."""
        known, self.skipped = _by_split(place, tables)
        first, features = next((split, table.features) for split, table in known.items())
        image = _column(place, features, "image", image)
        try:
            label = _column(place, features, "label", label)
        except InputError as error:
            if label is not None:
                raise
            # A column of no name: what needs no labels takes the images.
            label, self._no_label = "", error
        # A name of no file; other columns are other images.
        self.remembered_as = Path(os.path.abspath(place)) / f":hf:{image}:{label}"
        names: tuple[str, ...] = tuple(getattr(features.get(label), "names", None) or ())
        for split, table in known.items():
            if image not in table.features:
                raise unknown_name_error(f"hf:{place}: column of {split}", image, list(table.features))
            own = tuple(getattr(table.features.get(label), "names", None) or ())
            if wrong := [pair for pair in zip(own, names, strict=False) if pair[0] != pair[1]]:
                said = f"{wrong[0][0]!r} of {split} is {wrong[0][1]!r} in {first}"
                raise InputError(f"hf:{place}: column {label}: {said} (expected: the same classes in the same order)")
        said = [one for table in known.values() for one in _values(table, label)]
        texts = _caption_column(place, features, label, caption)
        captions = [captions_in(one) for table in known.values() for one in _values(table, texts)]
        rows = [(split, number) for split, table in known.items() for number in range(len(table))]
        splits, where = np.array([split for split, _ in rows]), f"hf:{place}: column {label}"
        classes, labels, faults = understood([NO_LABEL if one is None else one for one in said], splits, where, names)
        faults |= {row: f"no label in column {label}" for row, one in enumerate(said) if one is None}
        inside = [class_part(classes, one) for one in labels]
        contents = TableImages(known.values(), image)
        listing = ImageIndex(
            [f"{split}/{part}/{number}" for (split, number), part in zip(rows, inside, strict=True)],
            [f"{place}:{split}/{number}" for split, number in rows],
            contents.stats(),
            contents,
        )
        super().__init__(Path(place), classes, listing, labels, faults, captions, caption is not None)

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The folder or the name that the argument begins with."""
        place, options = options_of(argument, cls.options)
        if not place:
            raise InputError("the data set hf needs a folder or a name: hf:DIR or hf:OWNER/NAME")
        return cls(place, _load(place, options.pop("config", None)), **options)


class TableImages:
    """The encoded images in a column of some tables, a row each; a process maps their files itself."""

    def __init__(self, tables: Iterable[Any], column: str) -> None:
        """Of these `datasets.Dataset`, one after the other."""
        self._tables, self._column = [one.select_columns([column]).with_format("arrow") for one in tables], column
        self._starts = np.cumsum([0, *map(len, self._tables)])

    def __call__(self, row: int, name: str) -> EncodedImage:
        return EncodedImage(name, partial(self._open, row))

    def _open(self, row: int, name: str) -> io.BufferedReader:
        cell, path = self._cell(row)
        if not cell.is_valid and path:
            if reason := check_image_file(path):
                raise UnreadableDataError(f"{name}: its file {path}: {reason}")
            return open(path, "rb")
        # Of a mapped file, no more than is read.
        content = memoryview(cell.as_buffer() if cell.is_valid else b"").cast("B")
        if not content:
            raise UnreadableDataError(f"{name}: no image in this row")
        return io.BufferedReader(ByteRange(len(content), lambda place, count: content[place : place + count]))

    def _cell(self, row: int) -> tuple[Any, str | None]:
        """An image's bytes, in a value of pyarrow that may be null, and the file that it names."""
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        cell = self._tables[number][row - int(self._starts[number])][self._column][0]
        return (cell["bytes"], cell["path"].as_py()) if cell.is_valid and hasattr(cell, "keys") else (cell, None)

    def stats(self) -> np.ndarray:
        """As `ImageIndex.stats`: of an image its own size and its table's times, or those of its file; no image is
        touched."""
        from pyarrow import compute

        pc: Any = compute
        found = []
        for table in self._tables:
            column = table.data.column(self._column)
            content = pc.struct_field(column, "bytes") if hasattr(column.type, "fields") else column
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


def _load(place: str, config: str | None) -> Any:
    """What `datasets` finds there: a table, or one for each split."""
    try:
        import datasets
    except ImportError:
        raise InputError("the data set hf needs datasets: pip install '.[hf]'") from None
    # Where nobody looks, bars would be lines of a log.
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    where, saved, files = place, False, None
    if os.path.isdir(place):
        # An absolute one is no name on the Hub.
        where = os.path.abspath(place)
        saved = any(os.path.isfile(f"{where}/{name}") for name in ("dataset_dict.json", "state.json"))
        tables = [file for part in ("*", "*/*") for file in glob.glob(f"{glob.escape(where)}/{part}.parquet")]
        if not (saved or tables) or (saved and config is not None):
            expected = "what save_to_disk wrote, or .parquet files in it or in data/, which alone take a config"
            raise InputError(f"{place}: no data set of Hugging Face in this folder (expected: {expected})")
        card = Path(where) / "README.md"
        named = card.is_file() and re.search(r"(?m)^(configs|data_files):", read_text(card, RECORD, "a data card"))
        if not (saved or config or named):
            # `datasets` would take one file's word for all, and leave the others out.
            files = files_by_split(sorted(tables, key=natural_key), "train")
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


def _by_split(place: str, tables: Any) -> tuple[dict[str, Any], tuple[Unreadable, ...]]:
    """Split -> its table, rows in the order in which they are stored; and what is no split."""
    if not isinstance(tables, Mapping):
        tables = {split_by_name(str(getattr(tables, "split", None))) or "test": tables}
    beside = synonyms_beside(tables)
    named = splits_among((name for name in map(str, tables) if name not in beside), f"hf:{place}")
    if any(not hasattr(table, "data") for table in tables.values()):
        raise InputError(f"hf:{place}: is streamed (expected: a data set by index, without streaming)")
    found = {split: tables[name] for split, name in named.items() if len(tables[name])}
    if not found:
        raise InputError(f"hf:{place}: splits {', '.join(tables)} (expected: one of {', '.join(SPLITS)}, with rows)")
    # Rows in another order than they are stored in are written out once.
    found = {split: one if one._indices is None else one.flatten_indices() for split, one in found.items()}
    others = (Unreadable(f"{place}:{name}", "not a split") for name in tables if name not in named.values())
    return found, tuple(others)


def _column(place: str, features: Mapping[str, Any], kind: str, asked: str | None) -> str:
    """The column of images, or of labels."""
    # What images are stored as, where a file does not say that they are, is a mapping.
    meant, fitting = {
        "image": ("Image", r"(large_)?binary|\{.*'bytes'.*'path'.*\}|\{.*'path'.*'bytes'.*\}"),
        "label": ("ClassLabel", r"u?int\d+|(large_)?string|string_view|bool"),
    }[kind]
    own = [name for name, feature in features.items() if getattr(feature, "_type", "") == meant]
    kinds = {name: str(getattr(feature, "dtype", feature)) for name, feature in features.items()}
    others = [name for name, kind_of in kinds.items() if name not in own and re.fullmatch(fitting, kind_of)]
    if asked is not None:
        if asked not in (*own, *others):
            raise unknown_name_error(f"hf:{place}: column of {kind}s", asked, [*own, *others])
        return asked
    # One that says what it is needs not be named.
    own = own or [name for name in others if name.lower() == kind == "label"]
    if len(own) != 1:
        named = ", ".join(own or others) or f"none; columns: {', '.join(features)}"
        said = f"{len(own)} columns of {meant}, give one"
        raise InputError(f"hf:{place}: {said}: hf:{place},{kind}=NAME (candidates: {named})")
    return own[0]


def _caption_column(place: str, features: Mapping[str, Any], label: str, asked: str | None) -> str:
    """The column of captions; none where no column of texts is called so."""
    # A list of texts is written in several ways.
    inner = {name: one[0] if isinstance(one, list) else getattr(one, "feature", one) for name, one in features.items()}
    found = [name for name, one in inner.items() if str(getattr(one, "dtype", "")).endswith(("string", "string_view"))]
    if asked is not None and asked not in found:
        raise unknown_name_error(f"hf:{place}: column of captions", asked, found)
    named = (name for known in _CAPTIONS for name in found if name.lower() == known and name != label)
    return asked or next(named, "")


def _values(table: Any, column: str) -> list[Any]:
    """What a column says of each row: a number, a word, or a list; None where it says nothing."""
    if column not in table.column_names:
        return [None] * len(table)
    values = table.data.column(column)
    values = values.cast("string") if str(values.type) == "bool" else values
    return [one.strip() if isinstance(one, str) else one for one in values.to_pylist()]
