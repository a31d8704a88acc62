"""What `predict` says of images: printed as soon as it is known, or put into one file by any number of ranks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sightline import __version__
from sightline.cli.drawings import Drawings
from sightline.data.clip_file import Clip, clip_stamp
from sightline.data.encoded import EncodedImage
from sightline.data.preprocessing import Resolution
from sightline.data.skip_policy import Unreadable
from sightline.distributed import machine, signals
from sightline.distributed.ranks import Ranks
from sightline.evaluation.parts import kept_beside
from sightline.evaluation.predict_images import Predicted, Unpredicted, predict_images
from sightline.io.atomic import make_parent, write_file
from sightline.models import Model
from sightline.tasks.base import Task

# Of a part: what a kill costs of each rank, and, where images are few, a small share of all; but as many as fill a
# pass, where four ranks still have a part each.
_MOST_IMAGES, _FEW_IMAGES = 256, 32
_PARTS, _FEW_PARTS = 64, 4
_OF_THE_IMAGE = ("image", "size", "frames", "seen_size", "grid", "precision")
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


def say_answers(
    asked: PredictRequest,
    images: Images,
    screen: TextIO | None,
    drawings: Drawings | None,
    advance: Advance,
    *,
    as_json: bool,
) -> list[int]:
    """Print what is said of each image as soon as its pack is done, in order; the exit codes of those without an
    answer."""
    codes = []
    for outcomes in asked.outcomes(images):
        for outcome in outcomes:
            record = asked.record(outcome, drawings)
            if isinstance(outcome, Unpredicted):
                complain(f"{outcome.image}: {outcome.reason}")
                codes.append(outcome.exit_code)
            if as_json or isinstance(outcome, Predicted):
                line = json.dumps(record) if as_json else _in_words(record, asked.task)
                # A live bar sends what is printed to its own terminal: right for a terminal, lost for a file.
                on_screen = screen is not None and screen.isatty()
                # Flushed, so that a kill loses no answer that was made.
                print(_on_one_line(line), file=sys.stdout if on_screen else screen, flush=True)
        advance(len(outcomes))
    return codes


def write_answers(asked: PredictRequest, images: Images, out: Path, ranks: Ranks, advance: Advance) -> list[int]:
    """Put what is said of each image into a file, a JSON object a line, in their order; the exit codes of those without
    an answer, on the first rank. Each rank must call it.

    Images are dealt in parts that are packed by themselves: the file is the same for any number of ranks, and where a
    command was stopped, the next one goes on with the images that are not answered.

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
    with kept_beside(out, asked.model, about, ranks) as parts, signals.resume_hint("the same command"):
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
                    yield f"{_on_one_line(line)}\n".encode()

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


def _in_words(record: dict[str, Any], task: Task) -> str:
    """An answer in a line for people."""
    # A line rather than a table: paths are long, and a narrow column would cut the answers.
    # For people width x height; the JSON has (height, width), as everything inside.
    size, seen = (f"{cols}x{rows}" for rows, cols in (record[name] for name in ("size", "seen_size")))
    *thick, rows, cols = record["grid"]
    count = record.get("frames")
    frames = "" if count is None else f" {count} {'frame' if count == 1 else 'frames'} of it"
    grid = "x".join(map(str, (cols, rows, *thick)))
    about = f"{size} px,{frames} seen at {seen} as {grid} patches, {record['precision']}"
    said = {name: value for name, value in record.items() if name not in _OF_THE_IMAGE}
    return f"{record['image']} ({about}): {task.describe(said)}"


def complain(line: str) -> None:
    """Say a fault on stderr."""
    print(f"sightline: error: {_on_one_line(line)}", file=sys.stderr)


def _on_one_line(text: str) -> str:
    """`text` with what no terminal should be handed written as an escape: line ends, control characters, bytes that
    are no UTF-8."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
