"""`sightline predict`."""

from __future__ import annotations

import inspect
import json as json_module
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from sightline.cli.options import meant
from sightline.errors import InputError, NonFiniteError, UnreadableDataError
from sightline.runs.options import Device, MaxPixels, PatchSize, PredictOptions, SkipUnreadable, Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.runs.drawings import Drawings
    from sightline.runs.predict import Images, PredictRequest
    from sightline.tasks.base import Task

_QUIET_SECONDS = 2.0
_OF_THE_IMAGE = ("image", "size", "frames", "seen_size", "grid", "precision")


def predict(
    model: Annotated[str, Parameter(help="The folder of a run or of a model.")],
    # Else `-` would be taken for an option.
    *images: Annotated[
        str, Parameter(help="Files, folders, 'patterns/*.jpg', wds:SHARDS, or -.", allow_leading_hyphen=True)
    ],
    asked: PredictOptions | None = None,
    patch_size: PatchSize = None,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    device: Device = "auto",
    threads: Threads = None,
    json: bool = False,
) -> int:
    """Predict classes, masks or boxes for images of any size and aspect ratio.

    A file is opened whatever its name; a folder stands for all images below it, in natural order. A quoted pattern
    ("photos/**/*.jpg") is expanded here; - reads paths from standard input, one per line; a data set of files, such as
    wds:SHARDS, stands for all its images. An unreadable image is named with the reason. The exit code is then 3 (unless
    --skip-unreadable allows it), or 4 if logits are not finite.

    Args:
        json: Print JSON instead of text, one object per line, also for an image without a prediction.
    """
    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.distributed.ranks import init_ranks
    from sightline.runs import Run
    from sightline.runs.predict import claim_outputs, list_inputs, prepare, write_answers

    asked = asked or PredictOptions()
    _refuse_options(images)
    if threads is not None:
        machine.set_threads(threads)
    with init_ranks(device) as ranks:
        if ranks.size > 1 and asked.predictions is None:
            raise InputError("predict: several processes answer into one file (expected --predictions FILE)")
        # Before a live bar puts another stream in its place.
        screen = sys.stdout
        # A bar for less than some seconds would only flicker.
        with progress.Bars(late=_QUIET_SECONDS) as bars:
            # What cannot be listed is said before a model is loaded.
            files = list_inputs(model, images, bars, ranks, getattr(sys.stdin, "buffer", None))
            run = Run.open(model, device=device, ranks=ranks, patch_size=patch_size, max_pixels=max_pixels)
            request = prepare(run, asked)
            drawings = claim_outputs(run, request.task, files, asked)
            advance = bars.counter("predicting", len(files))
            if asked.predictions is not None:
                codes = write_answers(request, files, asked.predictions, ranks, advance, complain)
            else:
                codes = _say_answers(request, files, screen, drawings, advance, as_json=json)
        codes = ranks.broadcast(codes)
    if drawings is not None:
        drawings.finish()
    if asked.predictions is not None and not json:
        print(f"predictions: {asked.predictions}")
    if not json and len(codes) < len(files):
        # Not among the answers, which other programs may read.
        next_step.say_export(model, sys.stderr)
    return _exit_code(codes, len(files), skip_unreadable)


def _exit_code(codes: list[int], count: int, skip_unreadable: int | str) -> int:
    """Say how many of the images have no answer; the exit code of the command."""
    from sightline.runs.console import warn

    unread, not_finite = (codes.count(kind.exit_code) for kind in (UnreadableDataError, NonFiniteError))
    skipped = skip_unreadable == "all" or unread <= int(skip_unreadable)
    if unread and skipped:
        warn(f"{unread} of {count} images could not be read: left out, as --skip-unreadable allows")
    said = {"could not be read": 0 if skipped else unread, "gave logits that are not finite": not_finite}
    if any(said.values()) and count > 1:
        complain(", ".join(f"{some} of {count} images {words}" for words, some in said.items() if some))
    return max((code for code in codes if not (skipped and code == UnreadableDataError.exit_code)), default=0)


def complain(line: str) -> None:
    """Say a fault on stderr."""
    from sightline.runs.predict import on_one_line

    print(f"sightline: error: {on_one_line(line)}", file=sys.stderr)


def _say_answers(
    request: PredictRequest,
    images: Images,
    screen: TextIO | None,
    drawings: Drawings | None,
    advance: Callable[[int], None],
    *,
    as_json: bool,
) -> list[int]:
    """Print what is said of each image as soon as its pack is done, in order; the exit codes of those without an
    answer."""
    from sightline.evaluation.predict_images import Predicted, Unpredicted
    from sightline.runs.predict import on_one_line

    codes = []
    for outcomes in request.outcomes(images):
        for outcome in outcomes:
            record = request.record(outcome, drawings)
            if isinstance(outcome, Unpredicted):
                complain(f"{outcome.image}: {outcome.reason}")
                codes.append(outcome.exit_code)
            if as_json or isinstance(outcome, Predicted):
                line = json_module.dumps(record) if as_json else _in_words(record, request.task)
                # A live bar sends what is printed to its own terminal: right for a terminal, lost for a file.
                on_screen = screen is not None and screen.isatty()
                # Flushed, so that a kill loses no answer that was made.
                print(on_one_line(line), file=sys.stdout if on_screen else screen, flush=True)
        advance(len(outcomes))
    return codes


def _in_words(record: dict[str, Any], task: Task) -> str:
    """An answer in a line for people: a table's narrow columns would cut paths and answers."""
    # Of files width x height; the JSON has (height, width), as everything inside.
    size, seen = (f"{cols} x {rows}" for rows, cols in (record[name] for name in ("size", "seen_size")))
    *thick, rows, cols = record["grid"]
    count = record.get("frames")
    frames = "" if count is None else f" {count} {'frame' if count == 1 else 'frames'} of it"
    grid = "".join(f"{depth} in time x " for depth in thick) + f"{rows} rows x {cols} columns of patches"
    about = f"{size} px (width x height),{frames} seen at {seen} as {grid}, {record['precision']}"
    said = {name: value for name, value in record.items() if name not in _OF_THE_IMAGE}
    return f"{record['image']} ({about}): {task.describe(said)}"


def _refuse_options(images: tuple[str, ...]) -> None:
    """Refuse a misspelt option, which stands among the images because `-` may."""
    from dataclasses import fields

    from sightline.data.image_list import STDIN

    keywords = [one.name for one in inspect.signature(predict).parameters.values() if one.kind is one.KEYWORD_ONLY]
    names = [one.name for one in fields(PredictOptions)] + [name for name in keywords if name != "asked"]
    options = [f"--{name.replace('_', '-')}" for name in names]
    for word in images:
        if word.startswith("-") and word != STDIN and not os.path.lexists(word):
            hint = f"; did you mean {near!r}?" if (near := meant(word, (*options, "--model"))) else ""
            raise InputError(f"predict: {word}: no such option and no such file{hint} (options: {', '.join(options)})")
    if not images:
        raise InputError("predict: expected at least one image")
