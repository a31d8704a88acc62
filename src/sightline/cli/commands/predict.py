"""`sightline predict`."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sightline.cli.options import Device, MaxPixels, PatchSize, SkipUnreadable, Threads, meant
from sightline.errors import InputError, NonFiniteError, UnreadableDataError

if TYPE_CHECKING:
    from sightline.cli.answers import Images, PredictRequest
    from sightline.data.image_file import EncodedImage
    from sightline.data.skip_policy import Unreadable
    from sightline.distributed.ranks import Ranks

_QUIET_SECONDS = 2.0


def predict(
    model: Annotated[str, Parameter(help="The folder of a run or of a model.")],
    # Else `-` would be taken for an option.
    *images: Annotated[
        str, Parameter(help="Files, folders, 'patterns/*.jpg', wds:SHARDS, or -.", allow_leading_hyphen=True)
    ],
    resolution: str = "native",
    patch_size: PatchSize = None,
    topk: int = 5,
    frames: int | None = None,
    precision: str = "auto",
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
        resolution: native keeps each image's own aspect ratio and size, scaled down where it has more than 1024
            patches; max:PATCHES is native with another limit; tokens:PATCHES scales up too, to as many patches as the
            aspect allows; a side or height x width in pixels resizes and crops to it (answers say width x height).
        topk: How many classes to name.
        frames: Frames of a clip that a model of clips sees at most, spread over it; as in its training unless given. It
            takes GIF and WebP files and folders of frames; a still is a clip of one frame.
        precision: auto, float32 or bfloat16, of the matrix products; auto is bfloat16 where this machine is faster with
            it, as in evaluate. Each answer names it.
        out: A new folder for what the task draws of each image (labels with a palette, an overlay), and a sheet.
        predictions: A file for the answers, a JSON object a line, instead of printing them. Stopped or killed, the same
            command goes on where it was; several processes (torchrun) share the images.
        overwrite: Replace what is in --out, or --predictions.
        json: Print a JSON object a line instead, also for an image without an answer.
    """
    from sightline.cli import next_step, progress
    from sightline.cli.answers import complain, say_answers, write_answers
    from sightline.cli.drawings import Drawings
    from sightline.data.clip_file import list_clips
    from sightline.data.image_list import list_images
    from sightline.data.skip_policy import Unreadable
    from sightline.distributed import machine
    from sightline.distributed.ranks import init_ranks

    _refuse_options(images)
    if not images:
        raise InputError("predict: expected at least one image")
    if threads is not None:
        machine.set_threads(threads)
    with init_ranks(device) as ranks:
        if ranks.size > 1 and predictions is None:
            raise InputError("predict: several processes answer into one file (expected --predictions FILE)")
        if predictions is not None and out is not None:
            raise InputError("--out and --predictions: expected one of them (pictures go with printed answers)")
        list_all = list_clips if _takes_clips(model) else list_images
        passed_over: list[Unreadable] = []
        listed = list_all(images, getattr(sys.stdin, "buffer", None), passed_over) if ranks.is_main else []
        told = _told(listed, ranks)
        files = listed if ranks.is_main else _opened(told, images)
        asked = _prepared(
            model, ranks, patch_size=patch_size, resolution=resolution, topk=topk, precision=precision,
            max_pixels=max_pixels, device=device, frames=frames,
        )  # fmt: skip
        drawings = None
        if out is not None:
            named = [str(file) for file in files if not isinstance(file, Unreadable)]
            drawings = Drawings.into(out, asked.task, model, named, overwrite=overwrite)
        if predictions is not None:
            _claim(predictions, model, files, overwrite=overwrite)
        # Before a live bar puts another stream in its place.
        screen = sys.stdout
        # A bar for less than some seconds would only flicker.
        with progress.Bars(late=_QUIET_SECONDS) as bars:
            bars.say(passed_over)
            advance = bars.counter("predicting", len(files))
            if predictions is not None:
                codes = write_answers(asked, files, predictions, ranks, advance)
            else:
                codes = say_answers(asked, files, screen, drawings, advance, as_json=json)
        codes = ranks.broadcast(codes)
    if drawings is not None:
        drawings.finish()
    unread, not_finite = (codes.count(kind.exit_code) for kind in (UnreadableDataError, NonFiniteError))
    skipped = skip_unreadable == "all" or unread <= skip_unreadable
    if unread and skipped:
        next_step.warn(f"{unread} of {len(files)} images could not be read: left out, as --skip-unreadable allows")
    said = {"could not be read": 0 if skipped else unread, "gave logits that are not finite": not_finite}
    if any(said.values()) and len(files) > 1:
        complain(", ".join(f"{count} of {len(files)} images {words}" for words, count in said.items() if count))
    if predictions is not None and not json:
        print(f"predictions: {predictions}")
    if not json and len(codes) < len(files):
        # Not among the answers, which other programs may read.
        next_step.say_export(model, sys.stderr)
    return max((code for code in codes if not (skipped and code == UnreadableDataError.exit_code)), default=0)


def _prepared(
    model: str,
    ranks: Ranks,
    *,
    patch_size: int | None,
    resolution: str,
    topk: int,
    precision: str,
    max_pixels: int | None,
    device: str,
    frames: int | None,
) -> PredictRequest:
    """The model, and what it is asked; raises InputError for what stands against it."""
    from sightline.analysis.memory import side_of, warn_of_memory
    from sightline.attention.cpu import chosen_precision
    from sightline.cli.answers import PredictRequest
    from sightline.cli.next_step import warn
    from sightline.cli.resolutions import parse_view
    from sightline.data.image_file import MAX_PIXELS
    from sightline.data.sizes import MOST_FRAMES
    from sightline.distributed import machine
    from sightline.errors import require_known
    from sightline.hub.load import load_model
    from sightline.io.config import Count, check_value, whole
    from sightline.tasks.base import task_of
    from sightline.tokens.patchify import check_channels, check_multiples

    check_value("--topk", topk, Count)
    if frames is not None:
        check_value("--frames", frames, whole(1, MOST_FRAMES))
    require_known("precision", precision, ("auto", "float32", "bfloat16"))
    view, max_tokens = parse_view(resolution)
    where = machine.resolve_device(device if ranks.size == 1 else str(ranks.device))
    precision = chosen_precision(precision, where)
    loaded = load_model(model, patch_size=patch_size).to(where)
    config = loaded.config
    if frames is not None and not config.takes_clips:
        raise InputError(f"--frames {frames}: {model} takes images (expected none)")
    task = task_of(loaded)
    if loaded.num_classes == 0 and config.has_classifier:
        raise InputError(f"{model}: has no head, so it names no classes")
    check_channels(config.channels, model)
    if isinstance(view, tuple) and config.fit == "exact":
        check_multiples(f"--resolution {resolution}: side {{}}", view, config.patch_size)
    side = view if isinstance(view, tuple) else side_of(max_tokens, config.patch_size) if max_tokens else None
    if side is not None:
        warn_of_memory(config, side, warn, what=model, device=where)
    return PredictRequest(loaded, task, view, max_tokens, precision, max_pixels or MAX_PIXELS, topk, frames)


def _takes_clips(model: str) -> bool:
    """Whether a folder's model takes clips; what is wrong with it is said where it is loaded."""
    from sightline.errors import SightlineError
    from sightline.hub.load import config_from_record, read_config_record

    try:
        return config_from_record(read_config_record(model)).takes_clips
    except SightlineError:
        return False


def _told(images: Images, ranks: Ranks) -> Images:
    """What the first rank listed: standard input can be read once, and a folder may change meanwhile."""
    from sightline.data.skip_policy import Unreadable

    if ranks.size == 1:
        return images
    pairs = [[one.path, one.reason] if isinstance(one, Unreadable) else [str(one), None] for one in images]
    return [path if reason is None else Unreadable(path, reason) for path, reason in ranks.broadcast(pairs)]


def _opened(images: Images, words: tuple[str, ...]) -> Images:
    """The same where those that are parts of a data set's files are that again."""
    from sightline.data.image_list import images_of_set

    known = {str(one): one for word in words for one in images_of_set(word)}
    return [known.get(one, one) if isinstance(one, str) else one for one in images]


def _claim(out: Path, model: str, images: Images, *, overwrite: bool) -> None:
    """Refuse a file of answers that is there, that something reads, or that cannot be written."""
    from sightline.cli import guard, output

    # One that is not there is none of them.
    names = [name for image in images for name in _files_of(image) if "\0" not in name] if out.exists() else []
    read = [Path(name) for name in names]
    inputs = guard.Inputs(models=[model], files=read)
    output.claim_file(out, inputs=inputs, overwrite=overwrite, option="--predictions")
    output.check_writable(out)


def _files_of(image: str | EncodedImage | Unreadable) -> list[str]:
    """The files that an image, or a clip, is read from, where it is of its own."""
    from sightline.data.clip_file import Clip, FrameFolder

    if isinstance(image, FrameFolder):
        return image.files()
    return [str(image)] if isinstance(image, str | Clip) else []


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
            hint = f"; did you mean {near!r}?" if (near := meant(word, (*options, "--model"))) else ""
            raise InputError(f"predict: {word}: no such option and no such file{hint} (options: {', '.join(options)})")
