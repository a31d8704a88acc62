"""What the measures of a classifier's scores cost: beside a plain pass for its accuracy, and from stored logits alone.

    python benchmarks/measures.py [--quick] [--threads N] [--out OUT]

`pass` shows a ViT-S/16 with random weights and 1,000 classes digits at 224 px (float32), and takes every measure of
the scores, those at a temperature too, and stores the logits, beside the same pass with accuracy alone: the ratio is
the plain pass's time over that, at least .952 (1.05 times its time) is expected.

`rescore` measures 50,000 stored images of 1,000 classes again, from files on the disk to rows: every measure, a
temperature that is fitted on a fifth as many (`temperature_seconds` of it), and what each class comes to
(`classes_seconds`); expected under 20 s.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Parser, Work, clock, counted, interleave, print_table, row

from sightline import create_model
from sightline.data.open import open_source
from sightline.distributed import machine
from sightline.evaluation.class_tables import class_rows, stored_tables
from sightline.evaluation.logits import (
    StoredLogits,
    find_logits,
    read_logits,
    rescore,
    task_record,
    write_logits,
)
from sightline.evaluation.predict import predict_split
from sightline.evaluation.temperature import temperatures_from_logits
from sightline.metrics.accuracy import Accuracy
from sightline.metrics.base import Metric, metrics_of
from sightline.metrics.tempered import Temperature, with_temperature
from sightline.tasks.base import task_of

_CLASSES, _SIDE, _LEAST = 1000, 224, 1 / 1.05
_MOST_SECONDS = 20.0
_COLUMNS = ("part", "images", "classes", "ratio", "interval", "seconds", "wanted", "megabytes")


def about(split: str = "test") -> dict[str, Any]:
    """What rows of stored logits say that were drawn, not measured."""
    return {
        "run": "random", "encoding": "none", "task": "random", "data": "random", "split": split, "seed": 0,
        "train_resolution": _SIDE, "commit": machine.git_commit(), "hardware": machine.hardware_name(),
        "resolution": _SIDE,
        "grid": (14, 14), "knob": None, "tuned": False, "seconds": 0.0, "view": "square", "patches": 196.0,
        "shrunk": None, "ranks": 1,
    }  # fmt: skip


def compare_passes(images: int, rounds: int) -> dict[str, Any]:
    """Every measure and the stored logits beside accuracy alone, each with a forward pass of its own."""
    torch.manual_seed(0)
    model = create_model("vit_small_patch16", num_classes=_CLASSES, image_size=_SIDE).eval()
    source = open_source("digits")
    task = with_temperature(task_of(model).bind(source, "digits"), Temperature("minival", images, 1.5, 1.5))
    record = task_record(task)

    def shown(kinds: list[type[Metric]], keep: Path | None) -> None:
        metrics, kept = [kind(task) for kind in kinds], []
        for one in predict_split(model, task, source, "test", range(images), _SIDE):
            for metric in metrics:
                metric.update(one.outputs, one.batch)
            if keep is not None:
                batch = one.batch
                kept.append({
                    "logits": one.outputs.numpy(), "labels": batch.targets["labels"].numpy(),
                    "indices": batch.indices.numpy(), "names": batch.names, "slices": batch.slices,
                })  # fmt: skip
        for metric in metrics:
            metric.rows()
        if keep is not None:
            write_logits(keep, "kept.npz", StoredLogits.of(kept, record, about()))

    every = [type(one) for one in metrics_of(task)]
    with tempfile.TemporaryDirectory() as place:
        works: dict[str, Work] = {
            "measures": partial(shown, every, Path(place)), "accuracy": partial(shown, [Accuracy], None),
        }  # fmt: skip
        times = interleave(works, rounds, by=clock())
    what = {"part": "pass", "images": images, "classes": _CLASSES, "model": "vit_small_patch16"}
    return row("measures", "measures", "accuracy", times, {}, **what, wanted=round(_LEAST, 3))


def drawn(images: int, split: str) -> StoredLogits:
    """Logits that are right half of the time, as sure as that."""
    generator = np.random.default_rng(len(split))
    logits = generator.standard_normal((images, _CLASSES), np.float32)
    labels = generator.integers(0, _CLASSES, images)
    logits[np.arange(images), labels] += 4
    model = create_model("vit_micro_patch4", num_classes=_CLASSES)
    names = [f"{number:08d}.JPEG" for number in range(images)]
    record = task_record(task_of(model))
    return StoredLogits(logits, labels, np.arange(images), names, [{}] * images, record, about(split))


def measure_again(images: int) -> dict[str, Any]:
    """From files to rows, once: the time is of seconds, and caches play no part."""
    with tempfile.TemporaryDirectory() as place:
        write_logits(Path(place), "minival.npz", drawn(images // 5, "minival"))
        write_logits(Path(place), "test.npz", drawn(images, "test"))
        minival, file = find_logits(Path(place))
        size, times = file.stat().st_size, [time.perf_counter()]
        temperature = temperatures_from_logits([minival]).of(read_logits(file, header=True))
        times.append(time.perf_counter())
        rows = rescore(read_logits(file), temperature=temperature)
        times.append(time.perf_counter())
        (table,) = stored_tables([file])
        rows += class_rows(table)
        times.append(time.perf_counter())
    return {
        "benchmark": "measures", "part": "rescore", "images": images, "classes": _CLASSES,
        "seconds": round(times[3] - times[0], 2), "temperature_seconds": round(times[1] - times[0], 2),
        "classes_seconds": round(times[3] - times[2], 2), "wanted": _MOST_SECONDS, "megabytes": round(size / 2**20, 1),
        "rows": len(rows), "threads": torch.get_num_threads(), "hardware": machine.hardware_name(),
        "commit": machine.git_commit(),
    }  # fmt: skip


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("measures", "fewer images and rounds, in seconds")
    asked = parser.begin()
    images, rounds, stored = (8, 2, 500) if asked.quick else (16, 31, 50_000)
    parts = [partial(compare_passes, images, rounds), partial(measure_again, stored)]
    rows = []
    for part, said in counted(parts):
        rows.append(part())
        print(f"{said} {rows[-1]['part']}", flush=True)
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
