"""Where a command writes: nothing that exists, that something reads, or that a run owns is replaced unasked.

Files and folders are compared by device and inode: links, hard links, `..` and the case of letters change nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.errors import InputError, SightlineError, StorageError
from sightline.io.atomic import storage_errors
from sightline.io.read import parse_json, read_json
from sightline.io.run_files import (
    CELLS,
    CHECKPOINT_FILES,
    CHECKPOINTS,
    CHECKSUMS,
    COMPARISON,
    CONFIG,
    INSIDE,
    LINKS,
    LOCK,
    LOG,
    LOGITS,
    MODEL,
    OTHER_PAGES,
    PAGE,
    PICTURES,
    PROFILE,
    QUEUE,
    RUN_FILES,
    SWEEP,
    TABLES,
    TENSORBOARD,
    TRAINING,
    WANDB,
    WEIGHTS,
    checkpoints,
    last_checkpoint,
    run_of_checkpoint,
)
from sightline.io.run_lock import RunLock, refuse_locked

# By these a folder is told from any other that has a `config.yaml`.
_CONFIG_KEYS = {"data", "encoding", "batch_size", "optimizer", "loss"}
_LOG_KEYS = {"step", "images", "loss"}
_READ_OF_A_MODEL = (".json", ".safetensors", ".bin")
_HEAD = 1 << 16
# What a run leaves in its folder; anything else there is the user's.
_FILES = {*RUN_FILES, PAGE, *OTHER_PAGES, COMPARISON, *TABLES, LOCK}
_FOLDERS = {CHECKPOINTS, *LINKS, PROFILE, TENSORBOARD, WANDB, INSIDE}
# Folders of files of one kind.
_KEPT = {PICTURES: ".png", LOGITS: ".npz"}
_LEFT_OF_PICTURE = re.compile(r"\..*\.(png|npz)\.writing-\d+(-.*)?")
# What a writer that was killed left beside them.
_LEFT = re.compile(
    rf"\.({'|'.join(map(re.escape, sorted(_FILES.union([INSIDE], LINKS))))})\.(writing.*|tmp)|{INSIDE}\.old-\w+"
)


@dataclass(frozen=True)
class Inputs:
    """What a command reads.

    Attributes:
        models: what `load_model` takes; the folders among them are guarded, and the data that they were trained on.
        data: data sets, as `imagefolder:DIR`.
        files: all else, files or folders. None among models and files is passed over.
    """

    models: Sequence[str | Path | None] = ()
    data: Sequence[str] = ()
    files: Sequence[Path | None] = ()

    def model_folders(self) -> list[Path]:
        """The folders of the models on this machine."""
        places = [Path(str(model).removeprefix("local-dir:")) for model in self.models if model is not None]
        return [place for place in places if place.is_dir()]

    def data_folders(self) -> list[Path]:
        """The folders of the data sets, and of those that the models were trained on."""
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
    if out.exists() and not out.is_dir():
        raise InputError(f"{option} {out}: is a file, expected a folder")
    _refuse_owned(out, option)
    data = inputs.data_folders()
    _refuse_in_data(out, data, option)
    # A run may be continued by its own config.yaml.
    for path in [*inputs.model_folders(), *data, *(inputs.files if deletes else ())]:
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


def home_of(model: Path) -> Path:
    """The folder that keeps what is measured of a model: the run whose checkpoint it is, else its own.

    Raises:
        InputError: it is no folder here, or another checkpoint than the one that the rows of its run are of.
    """
    kind, _, name = str(model).partition(":")
    if kind in ("hf-hub", "timm") and name:
        raise InputError(f"{model}: is no folder here, where rows could be kept; give --out DIR for them")
    home = Path(name) if kind == "local-dir" and name else model
    run = run_of_checkpoint(home)
    if run is None or not is_run(run):
        return home
    if not _same(home, last_checkpoint(run)):
        raise InputError(
            f"{model}: is not the checkpoint that the rows of {run} are of; give {run}, or --out DIR for its own rows"
        )
    return run


def run_of(model: str | Path) -> Path:
    """The folder of the run that a model's folder belongs to: itself unless it is a checkpoint."""
    run = run_of_checkpoint(Path(model))
    return run if run is not None and (run / CONFIG).exists() else Path(model)


def trained_on(model: Path) -> str | None:
    """The data set that a model or a run says it was trained on; whether that is intact, its reader will say."""
    for folder in (model, last_checkpoint(model)):
        with contextlib.suppress(InputError, KeyError, TypeError):
            spec = read_json(folder / MODEL, "")["training"]["config"]["data"]
            return spec if isinstance(spec, str) else None
    return None


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run that is to be written.

    Attributes:
        inputs: all that the command reads.
        resume: continue in it; overwrite: delete it first. Not both.
        inside: names of folders of runs that it may hold.
    """

    out: Path
    inputs: Inputs
    resume: bool
    overwrite: bool
    inside: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse the folder that is there where the run cannot have it; nothing is made or deleted yet.

        Raises:
            InputError: see `guard_folder` and `refuse_locked`; it exists and neither was given, or holds files that no
                run wrote.
        """
        out = self.out
        if self.resume and self.overwrite:
            raise InputError("--resume and --overwrite: expected one of them, not both")
        guard_folder(out, self.inputs, "--out", deletes=self.overwrite)
        runs = (out, *(out / name for name in self.inside))
        for folder in runs:
            refuse_locked(folder)
        found = sorted(_content(out))
        if self.resume or not found:
            return
        if not self.overwrite:
            raise InputError(f"--out {out}: exists already; --resume continues it, --overwrite replaces it")
        for foreign in _foreign(out, self.inside):
            raise InputError(f"--overwrite: {foreign} was written by no run; {out} is not deleted")
        # A name alone proves nothing: other programs write a config.yaml too.
        if any(not _LEFT.fullmatch(entry.name) for entry in found) and not any(map(is_run, runs)):
            raise InputError(f"--overwrite: {out} is the folder of no run; not deleted")

    @contextlib.contextmanager
    def claimed(self, warn: Callable[[str], None]) -> Iterator[RunLock]:
        """Make and hold it, after `check`; what is to be replaced is deleted.

        Args:
            warn: as `RunLock` has it.

        Raises:
            InputError: see `check`.
            StorageError: it cannot be made or deleted.
        """
        self.check()
        with RunLock(self.out, warn) as lock:
            with storage_errors(f"{self.out}: cannot be deleted"):
                for entry in _content(self.out) if self.overwrite else ():
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            yield lock


def claim_checkpoint(dest: Path, *, inputs: Inputs, overwrite: bool) -> None:
    """Refuse the folder of a checkpoint to write that cannot be had; nothing is made or deleted yet.

    Raises:
        InputError: see `guard_folder`; it exists and is not to be replaced, or holds files that no command wrote.
    """
    if dest.exists() and not dest.is_dir():
        raise InputError(f"--overwrite: {dest} belongs to no checkpoint; it is not replaced")
    guard_folder(dest, inputs, "DEST", deletes=True)
    if not dest.exists():
        return
    if not overwrite:
        raise InputError(f"{dest}: exists already; --overwrite replaces it")
    for foreign in _foreign_in_checkpoint(dest):
        raise InputError(f"--overwrite: {foreign} belongs to no checkpoint; {dest} is not replaced")


def claim_file(out: Path, *, overwrite: bool, inputs: Inputs | None = None, option: str = "--out") -> None:
    """Refuse a file that exists, unless it is to be replaced, and one that `guard_file` refuses; nothing is made yet.

    Args:
        inputs: all that the command reads.
        option: what named the file.
    """
    if out.is_dir():
        raise InputError(f"{option} {out}: is a folder, expected a file")
    if os.path.lexists(out) and not out.is_file():
        raise InputError(f"{option} {out}: is no regular file")
    guard_file(out, inputs or Inputs(), option)
    if out.exists() and not overwrite:
        raise InputError(f"{option} {out}: exists already; --overwrite replaces it")


def claim_rows(out: Path) -> None:
    """Refuse a file of a benchmark's rows, which is replaced without a question, where something else is in it."""
    claim_file(out, overwrite=True)
    if out.exists() and out.stat().st_size and "benchmark" not in _first_line(out):
        raise InputError(f"--out {out}: exists and holds no rows of a benchmark; it is not replaced")


def check_writable(*places: Path) -> None:
    """Refuse files and folders that cannot be written, before hours of work; nothing is made. A disk may fill up later.

    Raises:
        StorageError: names the first.
    """
    for place in places:
        # What replaces a file is made beside it.
        there = place if place.is_dir() else place.parent
        while not there.exists() and there != there.parent:
            there = there.parent
        if not os.access(there, os.W_OK | os.X_OK):
            raise StorageError(f"{place}: cannot be written (no permission, or a disk that is read-only)")


def _content(out: Path) -> Iterator[Path]:
    """What is in a folder, but for the lock on it."""
    if out.is_dir():
        yield from (entry for entry in out.iterdir() if entry.name != LOCK)


def _foreign(folder: Path, inside: Sequence[str] = ()) -> Iterator[Path]:
    """What no run wrote in its folder; `inside` names the folders of runs in it."""
    for entry in sorted(folder.iterdir()):
        plain = entry.is_dir() and not entry.is_symlink()
        if plain and entry.name in inside:
            yield from _foreign(entry)
        elif plain and (entry.name in LINKS or entry.parent.name == CHECKPOINTS):
            yield from _foreign_in_checkpoint(entry)
        elif plain and entry.name == CHECKPOINTS:
            for place in sorted(entry.iterdir()):
                yield from _foreign_in_checkpoint(place) if place.is_dir() else [place]
        elif plain and entry.name in _KEPT:
            files = (file for file in sorted(entry.iterdir()) if not _LEFT_OF_PICTURE.fullmatch(file.name))
            yield from (file for file in files if file.suffix != _KEPT[entry.name] or not file.is_file())
        elif not (
            (entry.name in _FOLDERS if plain else entry.name in {*_FILES, *LINKS}) or _LEFT.fullmatch(entry.name)
        ):
            yield entry


def _foreign_in_checkpoint(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if file.name not in CHECKPOINT_FILES or file.is_dir() != (file.name == TRAINING):
            yield file


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
        home = node.parent
        # By a model's own files the folder would be taken for a model, not for the run.
        own = (*RUN_FILES, PICTURES, CHECKPOINTS, *LINKS, MODEL, WEIGHTS, CHECKSUMS)
        if any(_same(node, home / name) for name in own) and is_run(home):
            raise InputError(f"{option} {out}: {node.name} belongs to the run {home}; give another name")
        sweep = (home / SWEEP).is_file() and ((home / QUEUE).is_file() or (home / CELLS).is_dir())
        if sweep and any(_same(node, home / name) for name in (SWEEP, QUEUE)):
            raise InputError(f"{option} {out}: {node.name} belongs to the sweep {home}; give another name")


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


def _first_line(file: Path) -> set[str]:
    """The keys of the object in the first line of a file of JSON lines; none where there is none."""
    try:
        line = parse_json(_head(file).partition("\n")[0])
    except ValueError:
        return set()
    return set(line) if isinstance(line, dict) else set()


def _head(file: Path) -> str:
    """The beginning of a regular file as text, "" where there is none."""
    with contextlib.suppress(OSError):
        if file.is_file():
            with file.open("rb") as stream:
                return stream.read(_HEAD).decode("utf-8", "replace")
    return ""
