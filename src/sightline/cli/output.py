"""Where a command writes: nothing that exists is touched unless the user says so."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sightline.cli.guard import Inputs, guard_file, guard_folder, is_rows, is_run
from sightline.errors import InputError, StorageError
from sightline.io.atomic import storage_errors, write_out
from sightline.io.run_files import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    COMPARISON,
    INSIDE,
    LINKS,
    LOCK,
    LOGITS,
    OTHER_PAGES,
    PAGE,
    PICTURES,
    PROFILE,
    RUN_FILES,
    TABLES,
    TENSORBOARD,
    TRAINING,
    WANDB,
    is_step_folder,
)
from sightline.io.run_lock import RunLock, refuse_locked

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

# What a run leaves in its folder; anything else there is the user's.
_FILES = {*RUN_FILES, PAGE, *OTHER_PAGES, COMPARISON, *TABLES}
# Folders of files of one kind.
_KEPT = {PICTURES: ".png", LOGITS: ".npz"}
# What a writer that was killed left beside them.
_LEFT = re.compile(
    rf"\.({'|'.join(map(re.escape, sorted(_FILES.union([INSIDE], LINKS))))})\.(writing.*|tmp)|{INSIDE}\.old-\w+"
)
_LEFT_OF_CHECKPOINT = re.compile(r"\.?step-\d+\.(tmp|old)-\w+")
_LEFT_OF_PICTURE = re.compile(r"\..*\.(png|npz)\.writing-\d+(-.*)?")


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
        if out.exists() and not out.is_dir():
            raise InputError(f"--out {out}: is a file, expected a folder")
        guard_folder(out, self.inputs, "--out", deletes=self.overwrite)
        for folder in (out, *(out / name for name in self.inside)):
            refuse_locked(folder)
        self._check_content()

    def _check_content(self) -> None:
        """Refuse what is in it, unless the run goes on with it, or may delete it: runs and nothing else."""
        out, found = self.out, sorted(_content(self.out))
        if self.resume or not found:
            return
        if not self.overwrite:
            raise InputError(f"--out {out}: exists already; --resume continues it, --overwrite replaces it")
        for foreign in _foreign(out, self.inside):
            raise InputError(f"--overwrite: {foreign} was written by no run; {out} is not deleted")
        # A name alone proves nothing: other programs write a config.yaml too.
        kept = [entry for entry in found if not _LEFT.fullmatch(entry.name)]
        if kept and not any(is_run(folder) for folder in (out, *(out / name for name in self.inside))):
            raise InputError(
                f"--overwrite: {out} is the folder of no run ({kept[0].name} is all there is); not deleted"
            )

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


def _content(out: Path) -> Iterator[Path]:
    """What is in a folder, but for the lock on it."""
    if out.is_dir():
        yield from (entry for entry in out.iterdir() if entry.name != LOCK)


def _foreign(folder: Path, inside: Sequence[str]) -> Iterator[Path]:
    """What no run wrote in its folder; `inside` names the folders of runs in it."""
    for entry in sorted(folder.iterdir()):
        plain = entry.is_dir() and not entry.is_symlink()
        if entry.name in (*_FILES, LOCK) and entry.is_file():
            continue
        if entry.name in LINKS and entry.is_symlink():
            continue
        if plain and entry.name in LINKS:
            yield from _foreign_in_checkpoint(entry)
        elif plain and entry.name == CHECKPOINTS:
            yield from _foreign_in_checkpoints(entry)
        elif plain and entry.name in (PROFILE, TENSORBOARD, WANDB, INSIDE):
            continue
        elif plain and entry.name in _KEPT:
            files = (file for file in sorted(entry.iterdir()) if not _LEFT_OF_PICTURE.fullmatch(file.name))
            yield from (file for file in files if file.suffix != _KEPT[entry.name] or not file.is_file())
        elif plain and entry.name in inside:
            yield from _foreign(entry, ())
        elif not _LEFT.fullmatch(entry.name):
            yield entry


def _foreign_in_checkpoints(folder: Path) -> Iterator[Path]:
    for place in sorted(folder.iterdir()):
        if is_step_folder(place) and place.is_dir():
            yield from _foreign_in_checkpoint(place)
        elif not _LEFT_OF_CHECKPOINT.fullmatch(place.name):
            yield place


def _foreign_in_checkpoint(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if file.name not in CHECKPOINT_FILES or file.is_dir() != (file.name == TRAINING):
            yield file


def claim_checkpoint(dest: Path, *, inputs: Inputs, overwrite: bool) -> None:
    """Refuse the folder of a checkpoint to write that cannot be had; nothing is made or deleted yet.

    Raises:
        InputError: see `guard_folder`; it exists and is not to be replaced, or holds files that no command wrote.
    """
    guard_folder(dest, inputs, "DEST", deletes=True)
    if not dest.exists():
        return
    if not overwrite:
        raise InputError(f"{dest}: exists already; --overwrite replaces it")
    for foreign in _foreign_in_checkpoint(dest) if dest.is_dir() else (dest,):
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


def claim_beside(files: Sequence[Path], maps: Sequence[Path], *, overwrite: bool, inputs: Inputs, option: str) -> None:
    """`claim_file` of what is written beside a file; a folder of maps may hold those of an earlier command alone."""
    from sightline.evaluation.result_files import foreign_maps

    for file in files:
        claim_file(file, inputs=inputs, overwrite=overwrite, option=option)
    for folder in maps:
        guard_folder(folder, inputs, option, deletes=overwrite)
        if not overwrite and folder.exists():
            raise InputError(f"{option}: {folder} exists already; --overwrite replaces it")
        for foreign in foreign_maps(folder):
            raise InputError(f"--overwrite: {foreign} was written by no evaluation; {folder} is not replaced")


def claim_logits(folder: Path, *, inputs: Inputs) -> None:
    """Refuse a folder for logits that `guard_folder` refuses, or a file in its place; nothing is made yet."""
    option = "--logits"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{option} {folder}: is a file, expected a folder")
    guard_folder(folder, inputs, option, deletes=False)


def refuse_other_logits(
    folder: Path, names: Sequence[str], work: str, *, overwrite: bool, beside: Sequence[Path | None]
) -> None:
    """Refuse a folder in which a file of such a name is of another work, unless it is to be replaced: what a killed
    command wrote is its own.

    Args:
        beside: other files that the command writes, which may not be among them.
    """
    from sightline.evaluation.logits import read_logits

    others = {os.path.realpath(file) for file in beside if file is not None}
    for place in (folder / name for name in names):
        if os.path.realpath(place) in others:
            raise InputError(f"--logits: {place} is another file that is to be written; give another name")
        if place.exists() and not overwrite and read_logits(place, header=True).work != work:
            raise InputError(f"--logits: {place} exists already, of other weights or options; --overwrite replaces it")


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


def write_picture(out: Path, pixels: np.ndarray) -> None:
    """Write uint8 (height, width, 3) as a picture of the kind that the name's ending says; raises StorageError."""
    from PIL import Image

    picture = io.BytesIO()
    Image.fromarray(pixels).save(picture, format=Image.registered_extensions()[out.suffix.lower()])
    write_out(out, picture.getvalue())


def claim_rows(out: Path) -> None:
    """Refuse a file of measured rows, which is replaced without a question, where something else is in it."""
    claim_file(out, overwrite=True)
    if out.exists() and not is_rows(out):
        raise InputError(f"--out {out}: exists and holds no rows of a benchmark; it is not replaced")
