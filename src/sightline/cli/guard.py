"""The guard between what a command reads and what it writes: nothing is replaced, or deleted, that something reads.

Files and folders are told apart by what they are (device and inode), not by how they are written: links, hard links,
`..` and the case of letters change nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.errors import InputError, SightlineError
from sightline.io.read import parse_json, read_json
from sightline.io.run_files import (
    CELLS,
    CHECKPOINTS,
    CHECKSUMS,
    CONFIG,
    LINKS,
    LOG,
    MODEL,
    PICTURES,
    QUEUE,
    RUN_FILES,
    SWEEP,
    WEIGHTS,
    checkpoints,
    last_checkpoint,
    run_of_checkpoint,
)

# By these a folder is told from any other that has a `config.yaml`.
_CONFIG_KEYS = {"data", "encoding", "batch_size", "optimizer", "loss"}
_LOG_KEYS = {"step", "images", "loss"}
_READ_OF_A_MODEL = (".json", ".safetensors", ".bin")
_HEAD = 1 << 16


@dataclass(frozen=True)
class Inputs:
    """What a command reads, as its command line names it.

    Attributes:
        models: what `load_model` takes; those that are no folder here are passed over. What they say that they were
            trained on is guarded with them.
        data: data sets, as `imagefolder:DIR`.
        files: everything else, files or folders; None among models and files is what was not given.
    """

    models: Sequence[str | Path | None] = ()
    data: Sequence[str] = ()
    files: Sequence[Path | None] = ()

    def model_folders(self) -> list[Path]:
        """The folders of the models on this machine."""
        places = [Path(str(model).removeprefix("local-dir:")) for model in self.models if model is not None]
        return [place for place in places if place.is_dir()]

    def data_folders(self) -> list[Path]:
        """The folders of the data sets, of those too that the models were trained on."""
        from sightline.data.open import parse_spec, source_class

        trained = [spec for model in self.model_folders() if (spec := trained_on(model))]
        folders = []
        for spec in dict.fromkeys((*self.data, *trained)):
            name, argument, _ = parse_spec(spec)
            # The command that opens it says what is wrong with it.
            with contextlib.suppress(SightlineError):
                folders += source_class(name).folders(argument)
        return folders


def guard_file(out: Path, inputs: Inputs, option: str) -> None:
    """Refuse a file to write that is an input, that a run or a checkpoint owns, or that lies in a data set.

    Args:
        option: what named it, for the message.

    Raises:
        InputError: names the file and what it would harm; nothing was written.
    """
    _refuse_owned(out, option)
    read = [file for file in inputs.files if file is not None]
    for folder in [*inputs.model_folders(), *(file for file in read if file.is_dir())]:
        for part in (folder, *checkpoints(folder)):
            read += sorted(entry for entry in part.glob("*") if entry.suffix in _READ_OF_A_MODEL)
    for file in read:
        if _same(out, file):
            raise InputError(f"{option} {out}: is {file}, which this command reads; give another name")
    _refuse_in_data(out, inputs.data_folders(), option)


def guard_folder(out: Path, inputs: Inputs, option: str, *, deletes: bool) -> None:
    """Refuse a folder to write that is an input, holds one, lies in a data set, or in what a checkpoint owns.

    Args:
        option: what named it, for the message.
        deletes: whether what is there is deleted first.

    Raises:
        InputError: names the folder and what it would harm; nothing was written.
    """
    _refuse_owned(out, option)
    data = inputs.data_folders()
    _refuse_in_data(out, data, option)
    # A run may be continued by its own config.yaml.
    read = [*inputs.model_folders(), *data, *(inputs.files if deletes else ())]
    for path in read:
        if path is not None and _lies_in(path, out):
            what = "is" if _same(path, out) else "holds"
            which = f"{path}, which" if str(path) != str(out) else "what"
            raise InputError(f"{option} {out}: {what} {which} this command reads; give another folder")
    if deletes and _lies_in(Path.cwd(), out):
        raise InputError(f"{option} {out}: holds the current folder {Path.cwd()}; it is not deleted")


def is_run(folder: Path) -> bool:
    """Whether a run wrote what is in a folder: a checkpoint, a log, or its whole configuration."""
    return (
        any((place / CHECKSUMS).is_file() for place in (*checkpoints(folder), last_checkpoint(folder)))
        or set(re.findall(r"^(\w+):", _head(folder / CONFIG), re.MULTILINE)) >= _CONFIG_KEYS
        or _first_line(folder / LOG) >= _LOG_KEYS
    )


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep: its file and its queue, or its runs."""
    return (folder / SWEEP).is_file() and ((folder / QUEUE).is_file() or (folder / CELLS).is_dir())


def is_rows(file: Path) -> bool:
    """Whether a file holds rows of a benchmark, or nothing yet."""
    return not file.stat().st_size or "benchmark" in _first_line(file)


def _first_line(file: Path) -> set[str]:
    """The keys of the object in the first line of a file of JSON lines; none where there is none."""
    try:
        line = parse_json(_head(file).partition("\n")[0])
    except ValueError:
        return set()
    return set(line) if isinstance(line, dict) else set()


def home_of(model: Path) -> Path:
    """The folder that keeps what is measured of a model: the run whose checkpoint it is, else its own.

    Raises:
        InputError: it is no folder here, or is kept beside the checkpoint that the rows of its run are of.
    """
    kind, _, name = str(model).partition(":")
    if kind == "hf-hub" and name:
        raise InputError(f"{model}: is no folder here, where rows could be kept; give --out FILE for them")
    home = Path(name) if kind == "local-dir" and name else model
    run = run_of_checkpoint(home)
    if run is None or not is_run(run):
        return home
    if not _same(home, last_checkpoint(run)):
        raise InputError(
            f"{model}: is not the checkpoint that the rows of {run} are of; give {run}, or --out FILE for its own rows"
        )
    return run


def _refuse_owned(out: Path, option: str) -> None:
    """Refuse what a run or a sweep keeps for itself, and anything in a checkpoint, which is replaced as a whole."""
    place = Path(os.path.realpath(out))
    for node in (place, *place.parents):
        # By these files a folder is known that `save_model` wrote.
        whole = (node / CHECKSUMS).is_file() and any((node / name).is_file() for name in (MODEL, WEIGHTS))
        if whole and node != place:
            raise InputError(
                f"{option} {out}: lies in the checkpoint {node}, which holds its own files alone; give another folder"
            )
        # By a model's own files the folder would be taken for a model, not for the run.
        for name in (*RUN_FILES, PICTURES, CHECKPOINTS, *LINKS, MODEL, WEIGHTS, CHECKSUMS):
            if _same(node, node.parent / name) and is_run(node.parent):
                raise InputError(f"{option} {out}: {name} belongs to the run {node.parent}; give another name")
        for name in (SWEEP, QUEUE):
            if _same(node, node.parent / name) and is_sweep(node.parent):
                raise InputError(f"{option} {out}: {name} belongs to the sweep {node.parent}; give another name")


def _refuse_in_data(out: Path, folders: Sequence[Path], option: str) -> None:
    for folder in folders:
        if _lies_in(out, folder):
            where = "is" if _same(out, folder) else "lies in"
            which = f"{where} {folder}, a folder of the data, where it would count as data"
            raise InputError(f"{option} {out}: {which}; give another folder")


def _same(first: Path, second: Path) -> bool:
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return os.path.realpath(first) == os.path.realpath(second)


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or is below it; neither needs to exist."""
    place = Path(os.path.realpath(path))
    return any(_same(node, folder) for node in (place, *place.parents))


def trained_on(model: Path) -> str | None:
    """The data set that a model or a run says it was trained on; whether that is intact, its reader will say."""
    for folder in (model, last_checkpoint(model)):
        with contextlib.suppress(InputError, KeyError, TypeError):
            spec = read_json(folder / MODEL, "")["training"]["config"]["data"]
            return spec if isinstance(spec, str) else None
    return None


def _head(file: Path) -> str:
    """The beginning of a regular file as text, "" where there is none."""
    with contextlib.suppress(OSError):
        if file.is_file():
            with file.open("rb") as stream:
                return stream.read(_HEAD).decode("utf-8", "replace")
    return ""
