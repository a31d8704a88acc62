"""What to type next: the last line of a command, ready to paste."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sightline.data.image_file import MAX_PIXELS
from sightline.errors import SightlineError
from sightline.io.run_files import PAGE, RESULTS
from sightline.runs.console import command_line
from sightline.runs.outputs import run_of

if TYPE_CHECKING:
    from sightline.training.run import OpenedRun

_ONNX = ("onnx", "onnxscript", "onnxruntime")


def say_next(*words: object, stream: TextIO | None = None) -> None:
    """Print one command of Sightline with its words quoted; None among them is left out."""
    print(f"next: {command(*words)}", file=stream)


PACKED = "navit_imagefolder"
"""The recipe for a folder's images packed, each at its own aspect."""
PACKED_ENDING = "_packed"
"""Beside a run and called so, the packed run on its data is offered to be written."""


def to_train(
    data: str,
    out: Path,
    skip_unreadable: int | str,
    max_pixels: int | None,
    *,
    recipe: str | None = None,
) -> tuple[object, ...]:
    """The words that train on a folder of images, by the folder's recipe or the one named."""
    pixels = None if max_pixels == MAX_PIXELS else max_pixels
    given = {"--skip-unreadable": skip_unreadable, "--max-pixels": pixels, "--out": out}
    words = {"--recipe": recipe, "--data": data, **given}
    return ("train", *(word for option, value in words.items() if value for word in (option, value)))


def command(*words: object) -> str:
    """As `command_line`, by the name that it was called by where `sightline` is not on the path."""
    called = Path(sys.argv[0])
    unknown = called.name == "sightline" and shutil.which(called.name) is None
    return command_line(*words, name=str(called) if unknown else "sightline")


def say_report(run: OpenedRun) -> None:
    """After what is measured of a run: its report; of a model alone its export."""
    home = run_of(run.path)
    if run.training and (home / RESULTS).exists():
        say_next("report", home, *writing("--out", home / PAGE))
    else:
        say_export(run.path)


def writing(option: str, out: Path) -> tuple[str, ...]:
    """The words for a file, or a folder of files, to write: with --overwrite where it is there."""
    return (option, str(out), *(("--overwrite",) if out.exists() else ()))


def free(out: Path) -> Path:
    """The next free name for a run to train, since what was trained is not made again in minutes."""
    names = itertools.chain([out], (out.with_name(f"{out.name}_{number}") for number in itertools.count(2)))
    return next(one for one in names if not one.exists())


def beside(run: Path, ending: str) -> Path:
    """A path beside a run's folder, called as it is and an ending."""
    named = run if run.name not in ("", "..") else run.resolve()
    return named.with_name(f"{named.name}{ending}")


def say_export(model: str | Path, stream: TextIO | None = None) -> None:
    """Export for ONNX Runtime where it can be made and checked here, else for torch; nothing of a model that is not
    exported."""
    from sightline.export import SUFFIXES
    from sightline.export.checks import never_exported
    from sightline.hub.load import config_from_record, read_config_record

    try:
        config = config_from_record(read_config_record(model))
    except SightlineError:
        # Its folder is not whole.
        return
    if config.task != "masked_patches" and not never_exported(config):
        kind = "onnx" if all(map(importlib.util.find_spec, _ONNX)) else "torch"
        out = Path(f"{run_of(model).resolve().name}{SUFFIXES[kind]}")
        say_next("export", model, "--to", kind, *writing("--output", out), "--check", stream=stream)
