"""What a model says of images: one after the other, or put into one file by any number of ranks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sightline import __version__
from sightline.analysis.memory import side_of, warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.data.clip_file import Clip, FrameFolder, list_clips
from sightline.data.image_file import EncodedImage
from sightline.data.image_list import clip_stamp, images_of_word, list_images
from sightline.data.preprocessing import Resolution
from sightline.data.sizes import MOST_FRAMES
from sightline.data.skip_policy import Unreadable
from sightline.distributed import machine, signals
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, SightlineError, require_known
from sightline.evaluation.parts import work_folder
from sightline.evaluation.predict_images import Predicted, Unpredicted, predict_images
from sightline.hub.load import config_from_record, read_config_record
from sightline.io.atomic import make_parent, write_file
from sightline.io.config import Count, check_value, whole
from sightline.models import Model
from sightline.models.head import CLASSIFIERS
from sightline.models.zero_shot import split_labels, zero_shot_model
from sightline.runs import outputs
from sightline.runs.console import warn
from sightline.runs.drawings import Drawings
from sightline.runs.options import PredictOptions
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_view
from sightline.tasks.base import Task, task_of
from sightline.tokens.patchify import check_channels, check_multiples

if TYPE_CHECKING:
    from sightline.runs.run import Run

# Of a part: what a kill costs of each rank, and, where images are few, a small share of all; but as many as fill a
# pass, where four ranks still have a part each.
_MOST_IMAGES, _FEW_IMAGES = 256, 32
_PARTS, _FEW_PARTS = 64, 4
Advance = Callable[[int], None]
Images = Sequence[str | EncodedImage | Unreadable]


@dataclass(frozen=True)
class PredictRequest:
    """What is asked of each image: as `predict_images`; `topk` as `Task.to_json`."""

    model: Model
    task: Task
    resolution: Resolution
    max_tokens: int | None
    precision: str
    max_pixels: int
    topk: int
    frames: int | None = None

    def outcomes(self, images: Images) -> Iterator[list[Predicted | Unpredicted]]:
        """As `predict_images`."""
        return predict_images(
            self.model, self.task, images, self.resolution, self.max_tokens, precision=self.precision,
            max_pixels=self.max_pixels, frames=self.frames,
        )  # fmt: skip

    def record(self, outcome: Predicted | Unpredicted, drawings: Drawings | None = None) -> dict[str, Any]:
        """What is said of an image, or why nothing is, as JSON has it."""
        if isinstance(outcome, Unpredicted):
            return {"image": outcome.image, "error": outcome.reason}
        decoded = self.task.decode(outcome.output, outcome.crop)
        said = self.task.to_json(decoded, outcome.size, self.topk)
        if drawings is not None:
            said["pictures"] = drawings.add(outcome.image, decoded)
        shown = {} if outcome.frames is None else {"frames": outcome.frames}
        sizes = {"size": outcome.size, **shown, "seen_size": outcome.seen_size, "grid": outcome.grid}
        return {"image": outcome.image, **sizes, "precision": self.precision, **said}


def prepare(run: Run, asked: PredictOptions) -> PredictRequest:
    """What is asked of each image, checked.

    Raises:
        InputError: the model names nothing, or an option does not fit it.
    """
    check_value("--topk", asked.topk, Count)
    if asked.frames is not None:
        check_value("--frames", asked.frames, whole(1, MOST_FRAMES))
    require_known("precision", asked.precision, ("auto", "float32", "bfloat16"))
    view, max_tokens = parse_view(asked.resolution)
    config, device = run.model.config, run.model.anchor.device
    if asked.frames is not None and not config.takes_clips:
        raise InputError(f"--frames {asked.frames}: {run.path} takes images (expected none)")
    labels = split_labels(asked.labels)
    model = zero_shot_model(run.model, labels, ("{}",)) if labels else run.model
    task = task_of(model)
    if model.num_classes == 0 and config.head in CLASSIFIERS:
        raise InputError(f"{run.path}: has no head, so it names no classes")
    check_channels(config.channels, str(run.path))
    if isinstance(view, tuple) and config.fit == "exact":
        check_multiples(f"--resolution {asked.resolution}: side {{}}", view, config.patch_size)
    side = view if isinstance(view, tuple) else side_of(max_tokens, config.patch_size) if max_tokens else None
    if side is not None:
        warn_of_memory(config, side, warn, what=str(run.path), device=device)
    precision, pixels = chosen_precision(asked.precision, device), run.max_pixels
    return PredictRequest(model, task, view, max_tokens, precision, pixels, asked.topk, asked.frames)


def list_inputs(
    model: str | Path, words: Iterable[str | Path], progress: Progress, ranks: Ranks, stdin: BinaryIO | None = None
) -> Images:
    """The images, or the clips, that words stand for, as the first rank lists them: standard input can be read once,
    and a folder may change meanwhile.

    Raises:
        InputError: as `list_images`.
    """
    try:
        takes_clips = config_from_record(read_config_record(model)).takes_clips
    except SightlineError:
        # What is wrong with it is said where it is loaded.
        takes_clips = False
    names, passed_over = list(map(str, words)), list[Unreadable]()
    list_all = list_clips if takes_clips else list_images
    listed = list_all(names, stdin, passed_over) if ranks.is_main else []
    progress.say(passed_over)
    if ranks.size == 1:
        return listed
    pairs = [[one.path, one.reason] if isinstance(one, Unreadable) else [str(one), None] for one in listed]
    told = [path if reason is None else Unreadable(path, reason) for path, reason in ranks.broadcast(pairs)]
    # Those that are parts of a data set's files are that again.
    known = {str(one): one for word in names for one in images_of_word(word)}
    return listed if ranks.is_main else [known.get(one, one) if isinstance(one, str) else one for one in told]


def claim_outputs(run: Run, task: Task, images: Images, asked: PredictOptions) -> Drawings | None:
    """Refuse a file of answers, or a folder of drawings, that is there, or that something reads; what draws, if asked.

    Raises:
        InputError: see `outputs.claim_file` and `Drawings.into`; nothing was written.
    """
    out, file, overwrite = asked.out, asked.predictions, asked.overwrite
    if file is not None and out is not None:
        raise InputError("--out and --predictions: expected one of them (pictures go with printed answers)")
    if file is not None:
        # One that is not there is none of them.
        there = images if file.exists() else ()
        names = [
            name
            for image in there
            for name in (image.files() if isinstance(image, FrameFolder) else [str(image)])
            if isinstance(image, str | Clip) and "\0" not in name
        ]
        inputs = outputs.Inputs(models=[run.path], files=[Path(name) for name in names])
        outputs.claim_file(file, inputs=inputs, overwrite=overwrite, option="--predictions")
        outputs.check_writable(file)
    if out is None:
        return None
    named = [str(image) for image in images if not isinstance(image, Unreadable)]
    return Drawings.into(out, task, str(run.path), named, overwrite=overwrite)


def answers(
    run: Run, images: Iterable[str | Path] | str | Path, asked: PredictOptions, progress: Progress
) -> Iterator[dict[str, Any]]:
    """What is said of each image, in order: a line of `sightline predict --json` each; see `Run.predict`."""
    words = [images] if isinstance(images, str | Path) else images
    listed = list_inputs(run.path, words, progress, run.ranks)
    request = prepare(run, asked)
    drawings = claim_outputs(run, request.task, listed, asked)
    if asked.predictions is not None:
        write_answers(request, listed, asked.predictions, run.ranks, progress.counter("predicting", len(listed)))
        # The first rank writes it.
        run.ranks.barrier()
        return map(json.loads, asked.predictions.read_text("utf-8").splitlines())
    return _records(request, listed, drawings)


def _records(request: PredictRequest, images: Images, drawings: Drawings | None) -> Iterator[dict[str, Any]]:
    for outcomes in request.outcomes(images):
        yield from (request.record(outcome, drawings) for outcome in outcomes)
    if drawings is not None:
        drawings.finish()


def write_answers(
    asked: PredictRequest,
    images: Images,
    out: Path,
    ranks: Ranks,
    advance: Advance,
    complain: Callable[[str], None] = warn,
) -> list[int]:
    """Put what is said of each image into a file, a JSON object a line, in their order; the exit codes of those without
    an answer, on the first rank. Each rank must call it.

    Images are dealt in parts that are packed by themselves: the file is the same for any number of ranks, and where a
    command was stopped, the next one goes on with the images that are not answered.

    Args:
        complain: told of each image without an answer, in a line.

    Raises:
        InputError: another process does the same.
        StorageError: it cannot be written.
        StoppedError: one of several ranks heard a signal.
    """
    size = _images_a_part(len(images))
    starts = range(0, len(images), size)

    def about() -> dict[str, Any]:
        # The weights of a flexible model do not say it.
        patches = asked.model.config.patch_size
        options = [asked.resolution, asked.max_tokens, asked.precision, asked.max_pixels, asked.topk, patches]
        options.append(list(asked.model.config.class_names or ()))
        return {
            "command": f"predict {__version__} {machine.git_commit()}",
            "options": [*options, *([] if asked.frames is None else [asked.frames]), asked.model.anchor.device.type],
            "images": _digest(images),
        }

    def answers(number: int) -> list[tuple[str, int]]:
        part = images[starts[number] : starts[number] + size]
        # No output is kept: those of dense tasks are large.
        return [
            (json.dumps(asked.record(outcome)), outcome.exit_code if isinstance(outcome, Unpredicted) else 0)
            for outcomes in asked.outcomes(part)
            for outcome in outcomes
        ]

    codes: list[int] = []
    keys, sizes = [f"answers {start}" for start in starts], [min(size, len(images) - start) for start in starts]
    with work_folder(out, asked.model, about, ranks) as parts, signals.resume_hint("the same command"):
        todo = ranks.broadcast([number for number, key in enumerate(keys) if key not in parts])
        advance(sum(sizes) - sum(sizes[number] for number in todo))
        for first in range(0, len(todo), ranks.size):
            together = todo[first : first + ranks.size]
            for number in together[ranks.rank : ranks.rank + 1]:
                parts.save(keys[number], answers(number))
            advance(sum(sizes[number] for number in together))
        # Every part is written now, so that the first finds all of them.
        ranks.barrier()

        def lines() -> Iterable[bytes]:
            for key in keys:
                for line, code in parts.load(key):
                    if code:
                        codes.append(code)
                        record = json.loads(line)
                        complain(f"{record['image']}: {record['error']}")
                    yield f"{on_one_line(line)}\n".encode()

        if ranks.is_main:
            make_parent(out)
            write_file(out, lines())
            parts.discard()
    return codes


def _images_a_part(images: int) -> int:
    return min(_MOST_IMAGES, max(1, images // _PARTS, min(_FEW_IMAGES, images // _FEW_PARTS)))


def _digest(images: Images) -> str:
    """Tells images from others: names, sizes, and when they last changed."""
    seen = hashlib.sha256()
    for image in images:
        name = image.path if isinstance(image, Unreadable) else str(image)
        stamp = image.stamp if isinstance(image, EncodedImage) else (0, 0)
        # What cannot be read is answered with the reason; what is no file of its own has none to ask.
        with contextlib.suppress(OSError, ValueError):
            if isinstance(image, Clip):
                # A folder's own times say nothing of the files in it.
                stamp = clip_stamp(name)
            else:
                status = os.stat(name)
                stamp = status.st_size, status.st_mtime_ns
        seen.update(f"{name}\0{stamp}\n".encode("utf-8", "surrogatepass"))
    return seen.hexdigest()


def on_one_line(text: str) -> str:
    """`text` with what no terminal should be handed written as an escape: line ends, control characters, bytes that
    are no UTF-8."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
