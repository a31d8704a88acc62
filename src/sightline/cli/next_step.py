"""What to type next: the last line of a command, ready to paste."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sightline.data.image_file import MAX_PIXELS
from sightline.errors import InputError, SightlineError
from sightline.io.run_files import PAGE, PREDICTIONS, RESULTS
from sightline.results.predictions import read_predictions
from sightline.runs.console import command_line
from sightline.runs.outputs import run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def say_after_evaluation(run: OpenedRun, data: str | None, views: Sequence[str]) -> None:
    """After an evaluation: images of a folder at their own sizes, unless `views` has that; and the cascade of a
    classifier, else the report."""
    from sightline.recipes import supports
    from sightline.tasks.base import Task, task_class

    if supports(PACKED, run.data) and not any(view.startswith(("native", "max:")) for view in views):
        given = ("--data", data) if data else ()
        print(f"or each at its own size: {command('evaluate', run.path, *given, '--resolutions', 'native')}")
    # A cascade asks how sure a model is of its one answer.
    if task_class(run.model.config.task).confidence is Task.confidence:
        say_report(run)
    else:
        say_next("cascade", run.path, data, *writing("--out", beside(run_of(run.path), "_cascade")))


def say_report(run: OpenedRun) -> None:
    """After what is measured of a run: its report; of a model alone what comes after that."""
    home = run_of(run.path)
    if run.training and (home / RESULTS).exists():
        say_next("report", home, *writing("--out", home / PAGE))
    else:
        say_predict_or_export(run.path)


def writing(option: str, out: Path) -> tuple[str, ...]:
    """The words for a file, or a folder of files, to write: with --overwrite where it is there."""
    return (option, str(out), *(("--overwrite",) if out.exists() else ()))


def free(out: Path) -> Path:
    """The next free name for a run to train, since what was trained is not made again in minutes."""
    names = itertools.chain([out], (out.with_name(f"{out.name}_{number}") for number in itertools.count(2)))
    return next(one for one in names if not one.exists())


def _record(model: str | Path) -> dict[str, Any]:
    """What is known of a model; nothing where its folder is not whole."""
    from sightline.hub.load import read_config_record

    try:
        return read_config_record(model)
    except SightlineError:
        return {}


def _labelled(model: str | Path) -> str | None:
    """The data of a run where it says what is in its images, else what names a folder that does."""
    from sightline.data.open import parse_spec, source_class

    data = _record(model).get("training", {}).get("config", {}).get("data")
    try:
        unlabelled = data is not None and "label" not in source_class(parse_spec(data)[0]).provides
    except SightlineError:
        return data
    return "imagefolder:DIR" if unlabelled else data


def beside(run: Path, ending: str) -> Path:
    """A path beside a run's folder, called as it is and an ending."""
    named = run if run.name not in ("", "..") else run.resolve()
    return named.with_name(f"{named.name}{ending}")


def say_predict_or_export(model: str | Path) -> None:
    """After a report: try it on an image that it was tested on, or where there is no such file, export it."""
    try:
        tested = read_predictions(run_of(model) / PREDICTIONS)
    except InputError:
        tested = []
    # Its data may be drawn, or gone.
    if tested and Path(tested[0].name).is_file():
        say_next("predict", model, tested[0].name)
    else:
        say_export(model)


def say_export(model: str | Path, stream: TextIO | None = None) -> None:
    """Export for ONNX Runtime where it can be made and checked here, else for torch; fine-tune what was trained for
    that, on labels; nothing of a model that is not exported."""
    from sightline.export import SUFFIXES
    from sightline.export.checks import never_exported
    from sightline.hub.load import config_from_record

    record = _record(model)
    if record.get("architecture", {}).get("task") == "masked_patches":
        tuned = beside(run_of(model), "_tuned")
        say_next("train", "--data", _labelled(model), "--init-from", model, "--out", free(tuned), stream=stream)
        return
    if record and never_exported(config_from_record(record)):
        return
    kind = "onnx" if all(map(importlib.util.find_spec, _ONNX)) else "torch"
    out = Path(f"{run_of(model).resolve().name}{SUFFIXES[kind]}")
    say_next("export", model, "--to", kind, *writing("--output", out), "--check", stream=stream)
