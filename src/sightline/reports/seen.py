"""Which sizes a run saw in training, and what its loss is of: read from its configuration, and from nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sightline.reports.content import RunSummary, SeenSizes
from sightline.results.rows import ResultRow


def training_sizes(config: Mapping[str, Any], patch_size: int, nominal: int = 0) -> SeenSizes:
    """The sizes of training that a resolved configuration (plain values, as it is saved) names.

    Args:
        patch_size: of the model, in pixels.
        nominal: the side of its images that the model names, for one without a configuration of a training.
    """
    if nominal and not config:
        return SeenSizes.unknown(nominal)
    least, parts = config.get("parts"), ""
    if least == "simple":
        parts = "a random crop as wide or as high as itself"
    elif least == "bit":
        parts = "a random crop of six sevenths of its height and width"
    elif isinstance(least, int | float) and not isinstance(least, bool) and least < 1:
        parts = f"a random part ({100 * least:g}\u00a0% of its area or more)"
    packing = config.get("packing")
    sizes = _packed(packing, patch_size) if isinstance(packing, Mapping) else _unpacked(config.get("resolution"))
    return dataclasses.replace(sizes, parts=parts, fine_tuned_from=str(config.get("init_from") or ""))


def _unpacked(resolution: object) -> SeenSizes:
    height, width = resolution if isinstance(resolution, Sequence) and len(resolution) == 2 else [resolution] * 2
    if not isinstance(height, int) or not isinstance(width, int):
        return SeenSizes(None, None, "sizes that its configuration does not name")
    if height == width:
        return SeenSizes.of_one(height)
    side = math.sqrt(height * width)
    return SeenSizes(side, side, f"{height} by {width} px")


def _packed(packing: Mapping[str, Any], patch_size: int) -> SeenSizes:
    aspect = "cut to squares" if packing.get("aspect") == "square" else "each with its own aspect"
    most = packing.get("most_tokens") or packing.get("tokens")
    largest = math.sqrt(most) * patch_size if isinstance(most, int) else None
    drop = _drop(packing.get("drop"), packing.get("drop_options") or {})
    sides = packing.get("resolutions")
    if not isinstance(sides, Sequence) or len(sides) != 2:
        limit = f", of at most {most:,} patches" if isinstance(most, int) else ""
        return SeenSizes(None, largest, f"their own sizes{limit}, {aspect}", drop)
    low, high = (min(float(side), largest or math.inf) for side in sides)
    said = f"{low:.0f} to {high:.0f}" if low != high else f"about {low:.0f}"
    return SeenSizes(low, high, f"{said}\u00a0px, {aspect}", drop)


def _drop(kind: str | None, options: Mapping[str, Any]) -> str:
    """Which tokens were left out, in words; "" where none were."""
    if kind == "constant" and isinstance(options.get("drop"), int | float):
        return f"{100 * options['drop']:g}\u00a0%"
    given = ", ".join(f"{name} {value}" for name, value in options.items())
    return "" if not kind else f"{kind} ({given})" if given else str(kind)


def loss_kind(config: Mapping[str, Any], classes: int) -> str:
    """What the loss of a run is of; equal only where two losses can be compared."""
    if config.get("task", "classification") != "classification":
        return f"loss of task {config['task']}"
    names = {
        "ce": f"cross entropy over {classes} classes",
        "bce": f"binary cross entropy, summed over {classes} classes",
        "bce_mean": f"binary cross entropy, mean over {classes} classes",
    }
    loss, smoothing = str(config.get("loss") or "loss"), config.get("label_smoothing")
    kind = names.get(loss, loss) + (f", labels smoothed by {smoothing:g}" if smoothing else "")
    return kind + (", images mixed" if config.get("mixing") else "")


def by_run(runs: Iterable[RunSummary], rows: Iterable[ResultRow] = ()) -> dict[str, SeenSizes]:
    """Run -> its sizes of training: what its summary says, else the one size that its rows name, which is a nominal one
    where there is no summary."""
    known = {run.name: run.seen for run in runs}
    found = {row.run: row.train_resolution for row in rows}
    made = {name: (SeenSizes.of_one if name in known else SeenSizes.unknown)(side) for name, side in found.items()}
    return {**made, **{name: sizes for name, sizes in known.items() if sizes is not None}}
