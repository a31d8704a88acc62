"""`sightline predict`."""

from __future__ import annotations

import inspect
import json as json_module
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from sightline.cli.options import meant
from sightline.errors import InputError, NonFiniteError, UnreadableDataError
from sightline.runs.options import Device, MaxPixels, PatchSize, PredictOptions, SkipUnreadable, Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.distributed.ranks import Ranks
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
    out: Path | None = None,
    predictions: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Say what is in images, of any size and shape.

    A file is opened whatever it is called; of a folder, and the folders in it, the files with the usual endings of
    images are taken, in natural order. A quoted pattern ("photos/**/*.jpg") is matched here, - is a list of paths on
    standard input, one a line, and a data set of files, as wds:SHARDS, stands for all its images. Each image is
    answered in its place as soon as its pack is done. One that cannot be read is named with the reason, and the others
    are still answered: the exit code is then 3 (unless --skip-unreadable allows as many), or 4 where logits were not
    finite.

    Args:
        out: A new folder for what the task draws of each image (labels with a palette, an overlay), and a sheet.
        predictions: A file for the answers, a JSON object a line, instead of printing them. Stopped or killed, the same
            command goes on where it was; several processes (torchrun) share the images.
        overwrite: Replace what is in --out, or --predictions.
        json: Print a JSON object a line instead, also for an image without an answer.
    """
    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.distributed.ranks import init_ranks
    from sightline.runs import Run
    from sightline.runs.console import warn
    from sightline.runs.predict import prepare, write_answers

    _refuse_options(images)
    if threads is not None:
        machine.set_threads(threads)
    with init_ranks(device) as ranks:
        if ranks.size > 1 and predictions is None:
            raise InputError("predict: several processes answer into one file (expected --predictions FILE)")
        if predictions is not None and out is not None:
            raise InputError("--out and --predictions: expected one of them (pictures go with printed answers)")
        # Before a live bar puts another stream in its place.
        screen = sys.stdout
        # A bar for less than some seconds would only flicker.
        with progress.Bars(late=_QUIET_SECONDS) as bars:
            # What cannot be listed is said before a model is loaded.
            files = _listed(model, images, ranks, bars)
            run = Run.open(model, device=device, ranks=ranks, patch_size=patch_size, max_pixels=max_pixels)
            request = prepare(run, asked or PredictOptions())
            drawings = _claim(model, request, files, out, predictions, overwrite=overwrite)
            advance = bars.counter("predicting", len(files))
            if predictions is not None:
                codes = write_answers(request, files, predictions, ranks, advance, complain)
            else:
                codes = _say_answers(request, files, screen, drawings, advance, as_json=json)
        codes = ranks.broadcast(codes)
    if drawings is not None:
        drawings.finish()
    unread, not_finite = (codes.count(kind.exit_code) for kind in (UnreadableDataError, NonFiniteError))
    skipped = skip_unreadable == "all" or unread <= skip_unreadable
    if unread and skipped:
        warn(f"{unread} of {len(files)} images could not be read: left out, as --skip-unreadable allows")
    said = {"could not be read": 0 if skipped else unread, "gave logits that are not finite": not_finite}
    if any(said.values()) and len(files) > 1:
        complain(", ".join(f"{count} of {len(files)} images {words}" for words, count in said.items() if count))
    if predictions is not None and not json:
        print(f"predictions: {predictions}")
    if not json and len(codes) < len(files):
        # Not among the answers, which other programs may read.
        next_step.say_export(model, sys.stderr)
    return max((code for code in codes if not (skipped and code == UnreadableDataError.exit_code)), default=0)


def complain(line: str) -> None:
    """Say a fault on stderr."""
    from sightline.runs.predict import on_one_line

    print(f"sightline: error: {on_one_line(line)}", file=sys.stderr)


def _listed(model: str, words: tuple[str, ...], ranks: Ranks, bars: Any) -> Images:
    """The images that some words stand for, as the first rank lists them: standard input can be read once, and a
    folder may change meanwhile."""
    from sightline.data.clip_file import list_clips
    from sightline.data.image_list import images_of_set, list_images
    from sightline.data.skip_policy import Unreadable
    from sightline.errors import SightlineError
    from sightline.hub.load import config_from_record, read_config_record

    try:
        takes_clips = config_from_record(read_config_record(model)).takes_clips
    except SightlineError:
        # What is wrong with it is said where it is loaded.
        takes_clips = False
    passed_over: list[Unreadable] = []
    list_all = list_clips if takes_clips else list_images
    listed = list_all(words, getattr(sys.stdin, "buffer", None), passed_over) if ranks.is_main else []
    bars.say(passed_over)
    if ranks.size == 1:
        return listed
    pairs = [[one.path, one.reason] if isinstance(one, Unreadable) else [str(one), None] for one in listed]
    told = [path if reason is None else Unreadable(path, reason) for path, reason in ranks.broadcast(pairs)]
    # Those that are parts of a data set's files are that again.
    known = {str(one): one for word in words for one in images_of_set(word)}
    return listed if ranks.is_main else [known.get(one, one) if isinstance(one, str) else one for one in told]


def _claim(
    model: str, request: PredictRequest, images: Images, out: Path | None, predictions: Path | None, *, overwrite: bool
) -> Drawings | None:
    """Refuse a file of answers, or a folder of drawings, that is there, or that something reads."""
    from sightline.data.clip_file import Clip, FrameFolder
    from sightline.data.skip_policy import Unreadable
    from sightline.runs import outputs
    from sightline.runs.drawings import Drawings

    if predictions is not None:
        # One that is not there is none of them.
        there = images if predictions.exists() else ()
        names = [
            name
            for image in there
            for name in (image.files() if isinstance(image, FrameFolder) else [str(image)])
            if isinstance(image, str | Clip) and "\0" not in name
        ]
        inputs = outputs.Inputs(models=[model], files=[Path(name) for name in names])
        outputs.claim_file(predictions, inputs=inputs, overwrite=overwrite, option="--predictions")
        outputs.check_writable(predictions)
    if out is None:
        return None
    named = [str(image) for image in images if not isinstance(image, Unreadable)]
    return Drawings.into(out, request.task, model, named, overwrite=overwrite)


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
    # For people width x height; the JSON has (height, width), as everything inside.
    size, seen = (f"{cols}x{rows}" for rows, cols in (record[name] for name in ("size", "seen_size")))
    *thick, rows, cols = record["grid"]
    count = record.get("frames")
    frames = "" if count is None else f" {count} {'frame' if count == 1 else 'frames'} of it"
    grid = "x".join(map(str, (cols, rows, *thick)))
    about = f"{size} px,{frames} seen at {seen} as {grid} patches, {record['precision']}"
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
