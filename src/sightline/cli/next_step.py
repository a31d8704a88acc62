"""What to type next: the last line of a command, ready to paste."""

from __future__ import annotations

import importlib.util
import itertools
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sightline import plugins
from sightline.data.image_file import MAX_PIXELS
from sightline.data.sizes import View
from sightline.errors import InputError, SightlineError
from sightline.io.run_files import CONFIG, PAGE, PREDICTIONS, RESULTS, run_of_checkpoint
from sightline.results.cascade import CASCADE
from sightline.results.predictions import read_predictions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sightline.training.config import TrainConfig
    from sightline.training.run import Run

# Operations: 10 minutes of one core at 6e10 a second, half of what one of an AMD EPYC does (AVX512-BF16).
_FIRST_LOOK = 3.6e13
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
    images: int | None = None,
    *,
    recipe: str | None = None,
) -> tuple[object, ...]:
    """The words that train on a folder of images, by the folder's recipe or the one named."""
    pixels = None if max_pixels == MAX_PIXELS else max_pixels
    given = {"--skip-unreadable": skip_unreadable, "--max-pixels": pixels, "--images": images, "--out": out}
    words = {"--recipe": recipe, "--data": data, **given}
    return ("train", *(word for option, value in words.items() if value for word in (option, value)))


def first_look(config: TrainConfig, count: int) -> int | None:
    """Images of a first training on a processor, where the recipe for a folder of `count` images would take hours."""
    import torch

    from sightline.models import model_config
    from sightline.models.flops import training_flops

    assert config.model is not None
    assert config.resolution is not None
    assert config.epochs is not None
    own = {name: value for name, value in config.model_options.items() if name.startswith("embedder")}
    model = model_config(config.model, **own)
    images = round(_FIRST_LOOK / training_flops(model, [model.grid_of(config.resolution, config.frames).cells]), -2)
    return None if torch.cuda.is_available() or images >= config.epochs * count else int(images)


def again(*words: object, name: str = "sightline") -> str:
    """A command of Sightline with its words quoted, and the plug-ins of this one; None among them is left out."""
    found = [word for folder in plugins.given for word in ("--plugins", folder)]
    return shlex.join([name, *found, *(str(word) for word in words if word is not None)])


def warn(line: str) -> None:
    """On stderr what may be other than is thought, and ends nothing."""
    print(f"sightline: warning: {line}", file=sys.stderr)


def command(*words: object) -> str:
    """As `again`, by the name that it was called by where `sightline` is not on the path."""
    called = Path(sys.argv[0])
    unknown = called.name == "sightline" and shutil.which(called.name) is None
    return again(*words, name=str(called) if unknown else "sightline")


def say_after_evaluation(run: Run, data: str | None, shown: Sequence[object], *, again: bool) -> None:
    """After an evaluation: another way to measure on a folder; the cascade, or the report behind it.

    Args:
        data: as it was given; shown: at which sizes and views.
        again: some were asked for, which adds to what is known of a run.
    """
    from sightline.recipes import supports
    from sightline.tasks.base import Task, task_class

    if supports(PACKED, run.data) and not any(isinstance(one, View) and one.kind == "native" for one in shown):
        given = ("--data", data) if data else ()
        print(f"or each at its own size: {command('evaluate', run.path, *given, '--resolutions', 'native')}")
    cascade = beside(run_of(run.path), "_cascade")
    if task_class(run.model.config.task).confidence is Task.confidence:
        # A cascade asks how sure a model is of its one answer.
        say_report(run)
    elif again and (cascade / CASCADE).exists():
        say_report(run)
    else:
        say_next("cascade", run.path, data, *writing("--out", cascade))


def say_report(run: Run) -> None:
    """After what is measured of a run: its report; of a model alone what comes after that."""
    home = run_of(run.path)
    if run.training and (home / RESULTS).exists():
        say_next("report", *to_compare(home), *writing("--out", home / PAGE))
    else:
        say_predict_or_export(run.path)


def writing(option: str, out: Path) -> tuple[str, ...]:
    """The words for a file, or a folder of files, to write: with --overwrite where it is there."""
    return (option, str(out), *(("--overwrite",) if out.exists() else ()))


def free(out: Path) -> Path:
    """The next free name for a run to train, since what was trained is not made again in minutes."""
    names = itertools.chain([out], (out.with_name(f"{out.name}_{number}") for number in itertools.count(2)))
    return next(one for one in names if not one.exists())


def run_of(model: str | Path) -> Path:
    """The folder of the run that a model's folder belongs to: itself unless it is a checkpoint."""
    run = run_of_checkpoint(Path(model))
    return run if run is not None and (run / CONFIG).exists() else Path(model)


def to_compare(run: Path) -> tuple[Path, ...]:
    """The run, or the two where it was trained packed and not, as offered, and both were measured: the fixed one
    first."""
    fixed = run.with_name(run.name.removesuffix(PACKED_ENDING))
    pair = (fixed, beside(fixed, PACKED_ENDING))
    return pair if all((one / RESULTS).exists() and _data(one) == _data(run) for one in pair) else (run,)


def _data(run: Path) -> str | None:
    """The data set that a run was trained on; None where that is not known, or its checkpoint is not whole."""
    return _record(run).get("training", {}).get("config", {}).get("data")


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

    data = _data(Path(model))
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
