"""`sightline predict`."""

from __future__ import annotations

import inspect
import json as json_module
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from sightline.cli.options import Device, MaxPixels, SkipUnreadable
from sightline.errors import InputError, NonFiniteError, UnreadableDataError, nearest

if TYPE_CHECKING:
    from sightline.cli.drawings import Drawings
    from sightline.evaluation.predict_images import Predicted, Unpredicted
    from sightline.tasks.base import Task

_QUIET_SECONDS = 2.0


def predict(
    model: Annotated[str, Parameter(help="The folder of a run or of a model.")],
    # Else `-` would be taken for an option.
    *images: Annotated[str, Parameter(help="Files, folders, 'patterns/*.jpg', or -.", allow_leading_hyphen=True)],
    resolution: str = "native",
    topk: int = 5,
    precision: str = "auto",
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    device: Device = "auto",
    out: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Say what is in images, of any size and shape.

    A file is opened whatever it is called; of a folder, and the folders in it, the files with the usual endings of
    images are taken, in natural order. A quoted pattern ("photos/**/*.jpg") is matched here, and - is a list of paths
    on standard input, one a line. Each image is answered in its place as soon as its pack is done. One that cannot be
    read is named with the reason, and the others are still answered: the exit code is then 3 (unless
    --skip-unreadable allows as many), or 4 where logits were not finite.

    Args:
        resolution: native keeps each image's own aspect ratio and size, scaled down where it has more than 1024
            patches; max:PATCHES is native with another limit; tokens:PATCHES scales up too, to as many patches as the
            aspect allows; a side or height x width in pixels resizes and crops to it.
        topk: How many classes to name.
        precision: auto, float32 or bfloat16, of the matrix products; auto is bfloat16 where this machine is faster with
            it, as in evaluate. Each answer names it.
        out: A new folder for what the task draws of each image (labels with a palette, an overlay), and a sheet.
        overwrite: Replace what is in --out.
        json: Print a JSON object a line instead, also for an image without an answer.
    """
    from sightline import runtime
    from sightline.analysis.memory import refuse_patches_that_cannot_fit, refuse_what_cannot_fit
    from sightline.checks import require, require_whole
    from sightline.cli import next_step, progress
    from sightline.cli.drawings import Drawings
    from sightline.cli.resolutions import parse_view
    from sightline.data.image_file import MAX_PIXELS
    from sightline.data.image_list import list_images
    from sightline.data.views import View
    from sightline.evaluation.predict_images import Unpredicted, predict_images
    from sightline.load import load_model
    from sightline.patchify import check_multiples
    from sightline.tasks.base import task_of

    _refuse_options(images)
    if not images:
        raise InputError("predict: expected at least one image")
    require_whole("--topk", topk, 1)
    require("precision", precision, ("auto", "float32", "bfloat16"))
    view, max_tokens = parse_view(resolution)
    where = runtime.resolve_device(device)
    precision = runtime.chosen_precision(precision, where)
    files = list_images(images, getattr(sys.stdin, "buffer", None))
    loaded = load_model(model).to(where)
    config = loaded.config
    task = task_of(loaded)
    if loaded.num_classes == 0:
        raise InputError(f"{model}: has no head, so it names no classes")
    if config.channels != 3:
        raise InputError(f"{model}: takes images of {config.channels} channels (expected: 3, for RGB)")
    if isinstance(view, tuple) and config.fit == "exact":
        check_multiples(f"--resolution {resolution}: side {{}}", view, config.patch_size)
    drawings = (
        None
        if out is None
        else Drawings.into(out, task, model, [file for file in files if isinstance(file, str)], overwrite=overwrite)
    )
    # A size, or a number of patches, that is hopeless on this machine.
    if isinstance(view, tuple):
        refuse_what_cannot_fit(config, view, what=model, device=where, loaded=True)
    elif max_tokens is not None:
        refuse_patches_that_cannot_fit(
            config, max_tokens, asked=f"--resolution {View(view, max_tokens).name}", what=model, device=where
        )
    # Before a live bar puts another stream in its place.
    screen = sys.stdout
    missing: list[Unpredicted] = []
    # A bar for less than some seconds would only flicker.
    with progress.Bars(late=_QUIET_SECONDS) as bars:
        advance = bars.counter("predicting", len(files))
        answers = predict_images(
            loaded, task, files, view, max_tokens, precision=precision, max_pixels=max_pixels or MAX_PIXELS
        )
        for outcomes in answers:
            for outcome in outcomes:
                _say(outcome, task, screen, drawings, topk=topk, precision=precision, json=json)
            missing += [outcome for outcome in outcomes if isinstance(outcome, Unpredicted)]
            advance(len(outcomes))
    if drawings is not None:
        drawings.finish()
    codes = [one.exit_code for one in missing]
    unread, not_finite = (codes.count(kind.exit_code) for kind in (UnreadableDataError, NonFiniteError))
    if missing and len(files) > 1:
        said = {"could not be read": unread, "gave logits that are not finite": not_finite}
        _complain(", ".join(f"{count} of {len(files)} images {words}" for words, count in said.items() if count))
    if not json and len(missing) < len(files):
        # Not among the answers, which other programs may read.
        next_step.say_export(model, sys.stderr)
    skipped = skip_unreadable == "all" or unread <= skip_unreadable
    return max((code for code in codes if not (skipped and code == UnreadableDataError.exit_code)), default=0)


def _refuse_options(images: tuple[str, ...]) -> None:
    """Refuse a misspelt option, which stands among the images because `-` may."""
    from sightline.data.image_list import STDIN

    options = [
        f"--{one.name.replace('_', '-')}"
        for one in inspect.signature(predict).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    ]
    for word in images:
        if word.startswith("-") and word != STDIN and not os.path.lexists(word):
            hint = nearest(word.partition("=")[0], options)
            raise InputError(f"predict: {word}: no such option and no such file{hint} (options: {', '.join(options)})")


def _say(
    outcome: Predicted | Unpredicted,
    task: Task,
    out: TextIO | None,
    drawings: Drawings | None,
    *,
    topk: int,
    precision: str,
    json: bool,
) -> None:
    """Print what is said of an image: a line for people or a JSON object; a fault goes to stderr."""
    from sightline.evaluation.predict_images import Unpredicted

    if isinstance(outcome, Unpredicted):
        _complain(f"{outcome.image}: {outcome.reason}")
        if not json:
            return
        line = json_module.dumps({"image": outcome.image, "error": outcome.reason})
    else:
        decoded = task.decode(outcome.output, outcome.crop)
        said = task.answer(decoded, outcome.size, topk)
        if drawings is not None:
            said["pictures"] = drawings.add(outcome.image, decoded)
        sizes = {"size": outcome.size, "seen_size": outcome.seen_size, "grid": outcome.grid}
        if json:
            line = json_module.dumps({"image": outcome.image, **sizes, "precision": precision, **said})
        else:
            # A line rather than a table: paths are long, and a narrow column would cut the answers.
            # For people width x height; the JSON has (height, width), as everything inside.
            size, seen, grid = (f"{cols}x{rows}" for rows, cols in sizes.values())
            line = f"{outcome.image} ({size} px, seen at {seen} as {grid} patches, {precision}): {task.words(said)}"
    # A live bar sends what is printed to its own terminal: right for a terminal, lost for a file.
    on_screen = out is not None and out.isatty()
    # Flushed, so that a kill loses no answer that was made.
    print(_on_one_line(line), file=sys.stdout if on_screen else out, flush=True)


def _complain(line: str) -> None:
    print(f"sightline: error: {_on_one_line(line)}", file=sys.stderr)


def _on_one_line(text: str) -> str:
    """`text` with what no terminal should be handed written as an escape: line ends, control characters, bytes that
    are no UTF-8."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
