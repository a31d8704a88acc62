"""The folder of an analysis: written as a whole, in the place of one that is there alone where that is asked for."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sightline.analysis.found import Analysis
from sightline.analysis.rows import other_of
from sightline.errors import InputError
from sightline.io.atomic import fsync, remove_temporaries, replace_folder, storage_errors
from sightline.reports import analysis_page
from sightline.reports.content import Sample
from sightline.results.analysis import ANALYSIS, ANALYSIS_PAGE, AnalysisRow
from sightline.results.rows import dump_rows
from sightline.runs.outputs import Inputs, check_writable, guard_folder

FIGURES = "figures"
"""The folder of its figures, each a file."""
# Bytes of two models' names in that of a file: file systems take 255 for all of it.
_LONGEST = 200


def claim_analysis(out: Path, inputs: Inputs, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be had; nothing is made yet.

    Raises:
        InputError: it is an input or holds one, it exists and is not to be replaced, or holds what no analysis wrote.
        StorageError: it cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file, expected a folder")
    guard_folder(out, inputs, "--out", deletes=True)
    there = sorted(out.iterdir()) if out.is_dir() else []
    if there and not overwrite:
        raise InputError(f"--out {out}: exists already; --overwrite replaces it")
    for entry in there:
        if not _is_own(entry):
            raise InputError(f"--overwrite: {entry} was written by no analysis; {out} is not replaced")
    if there and not is_analysis(out):
        raise InputError(f"--overwrite: {out} holds no analysis ({there[0].name} is all there is); not replaced")
    check_writable(out, out.parent / out.name)


def is_analysis(folder: Path) -> bool:
    """Whether an analysis that is whole stands in a folder: rows and page."""
    return (folder / ANALYSIS).is_file() and (folder / ANALYSIS_PAGE).is_file()


def _is_own(entry: Path) -> bool:
    if entry.name == FIGURES and entry.is_dir() and not entry.is_symlink():
        return all(file.suffix == ".svg" and file.is_file() for file in entry.iterdir())
    return entry.is_file() and (entry.name in (ANALYSIS, ANALYSIS_PAGE) or entry.suffix == ".npz")


def write_analysis(
    out: Path,
    rows: Sequence[AnalysisRow],
    found: Sequence[Analysis],
    command: str,
    advance: Callable[[int], None] | None = None,
    shown: Sequence[Sample] = (),
) -> None:
    """Write arrays, rows, figures and page as a folder. One that is there is renamed to `NAME.old-XXXX` and deleted
    when the new one stands.

    Args:
        command: the line that makes it again.
        advance: called as each of `analysis_page.count_figures` is drawn.
        shown: the first images.

    Raises:
        StorageError: something could not be written; what was there is as it was.
    """
    # A lone surrogate (a folder's name that is not UTF-8) must not cost the page.
    drawn: dict[str, str] = {}
    page = analysis_page.render(rows, found, command, figures=drawn, advance=advance, shown=shown)
    texts = {
        **{f"{FIGURES}/{name}": svg for name, svg in drawn.items()},
        ANALYSIS: dump_rows(rows),
        ANALYSIS_PAGE: page,
    }
    place = Path(os.path.realpath(out))
    temporary = place.with_name(f".{place.name}.writing-{os.getpid()}")
    with storage_errors(f"{out}: cannot be written"):
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(place)
        (temporary / FIGURES).mkdir(parents=True)
        try:
            for name, one in zip(array_names(found), found, strict=True):
                _put(temporary / name, _packed(one))
            for name, text in texts.items():
                _put(temporary / name, text.encode("utf-8", "replace"))
            fsync(temporary)
            replace_folder(temporary, place)
        finally:
            # Once it was moved it is there no more.
            shutil.rmtree(temporary, ignore_errors=True)


def array_names(found: Sequence[Analysis]) -> list[str]:
    """A file's name for the arrays of each: the model and the measure, of two models MODEL+OTHER; of names that are
    equal in files, numbered."""
    models = list(dict.fromkeys(model for one in found for model in _models_of(one)))
    plain = {model: re.sub(r"[^\w.-]+", "_", model).strip("._")[:80] or "model" for model in models}
    names = {
        model: name if list(plain.values()).count(name) == 1 else f"{name}-{models.index(model)}"
        for model, name in plain.items()
    }
    return [f"{_joined([names[model] for model in _models_of(one)], models, one)}.{one.measure}.npz" for one in found]


def _models_of(found: Analysis) -> list[str]:
    return [one for one in (found.model, other_of(found)) if one]


def _joined(names: Sequence[str], models: Sequence[str], found: Analysis) -> str:
    """No name of one model holds a plus. Of two that are too long for a file's name, which ones they are."""
    joined = "+".join(names)
    if len(names) > 1 and len(os.fsencode(joined)) > _LONGEST:
        return "+".join(f"model-{models.index(model)}" for model in _models_of(found))
    return joined


def _packed(found: Analysis) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **found.flat())  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def _put(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    fsync(file)
