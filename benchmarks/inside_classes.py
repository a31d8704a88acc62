"""Whether LookHere's heads are more diverse, and its patches segment better by themselves, than those of others.

    sightline demo --out runs/demo
    python benchmarks/inside_classes.py runs/demo/* [--data scenes] [--images 300] [--resolutions 32 64 108] [--out OUT]

Of each trained classifier, at each size, on the first images of a test split (the same for all, knobs as they are
saved): the heads' Jensen-Shannon divergence (`head_diversity`, LookHere figures 4 and 15), the logit lens's mIoU
(`lens_miou`, figure 5), how identifiable the class is (`class_identifiability`, figure 13) and that on the object
and beside it (`class_patches`, figure 14), layer by layer. A row is of one layer; of the divergence also of the mean
over layers. Intervals are 95 % over images: of means by Student's t, of the mIoU of all images by
resampling them; another training would differ by more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Parser, counted, print_table, threads

from sightline.analysis.analyse import analysed_together
from sightline.analysis.found import Analysis
from sightline.analysis.labels import split_batches
from sightline.analysis.measures.base import measures_by_name
from sightline.analysis.rows import mean_over_images
from sightline.data.open import open_source
from sightline.distributed import machine
from sightline.errors import SightlineError
from sightline.hub.load import load_model

_MEASURES = ("head_diversity", "lens_miou", "class_identifiability", "class_patches")
# (measure, quantity) of which each image has a value at each layer.
_MEANS = (
    ("head_diversity", "jsd"),
    ("class_identifiability", "class_token"),
    ("class_identifiability", "patches"),
    ("class_patches", "on_object"),
    ("class_patches", "off_object"),
)
_ALL_LAYERS = "all"


def measured(
    run: Path, data: str, split: str, images: int, sides: Sequence[int], device: str
) -> tuple[str, list[Analysis]]:
    """A model's encoding, and what each measure finds of it."""
    model, source = load_model(run).to(device), open_source(data)
    batches = {
        (side, side): split_batches(model, source, split, range(images), (side, side), data=data) for side in sides
    }
    return model.config.encoding, analysed_together(model, measures_by_name(_MEASURES), batches)


def rows_of(found: Sequence[Analysis]) -> list[dict[str, Any]]:
    """A row for each size, quantity and layer."""
    rows: list[dict[str, Any]] = []
    by_name = {one.measure: one for one in found}
    sizes = found[0].sizes

    def add(measure: str, metric: str, side: int, layer: int | str, value: float, limits: Any, count: int) -> None:
        interval = None if limits is None or not np.isfinite(limits).all() else [round(float(one), 5) for one in limits]
        unit = by_name[measure].quantities[metric].unit
        where = {"measure": measure, "metric": metric, "resolution": side, "layer": layer}
        rows.append(where | {"value": round(float(value), 5), "interval": interval, "unit": unit, "images": count})

    for size in sizes:
        for measure, metric in _MEANS:
            values = by_name[measure].arrays[size][metric]
            for layer in range(values.shape[1]):
                add(measure, metric, size[0], layer, *over_images(values[:, layer]))
            if measure == "head_diversity":
                add(measure, metric, size[0], _ALL_LAYERS, *over_images(values))
        lens = by_name["lens_miou"].arrays[size]
        limits = zip(lens["miou"], lens["miou_low"], lens["miou_high"], strict=True)
        for layer, (value, low, high) in enumerate(limits):
            add("lens_miou", "miou", size[0], layer, value, (low, high), int((lens["pixels"] > 0).sum()))
    return rows


def over_images(values: np.ndarray) -> tuple[float, tuple[float, float] | None, int]:
    """As `mean_over_images`, of [images, ...] of which the mean of the rest is an image's own."""
    flat = np.ma.masked_invalid(values.reshape(len(values), -1))
    return mean_over_images(flat.mean(axis=1).filled(np.nan))


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Layers beside each other."""
    lines: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in rows:
        key = f"{row['measure']}.{row['metric']}", row["resolution"], row["model"]
        line = lines.setdefault(key, {"what": key[0], "px": key[1], "model": key[2]})
        low, high = row["interval"] or (np.nan, np.nan)
        line[str(row["layer"])] = f"{row['value']:.3f} [{low:.3f}, {high:.3f}]"
    layers = sorted({str(row["layer"]) for row in rows}, key=lambda one: (one == _ALL_LAYERS, one.zfill(3)))
    shown = sorted(lines, key=lambda key: (key[0], key[1]))
    # What no row has is no number.
    print_table(("what", "px", "model", *layers), [dict.fromkeys(layers, "") | lines[key] for key in shown])


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs or models; others among them are left out")
    parser.add_argument("--data", default="scenes")
    parser.add_argument("--split", default="test")
    parser.add_argument("--images", type=threads, default=300, help="the first of the split")
    parser.add_argument("--resolutions", type=threads, nargs="+", default=[32, 64, 108])
    parser.usual("inside_classes", "12 images at the first size")
    asked = parser.begin()
    images, sides = (12, asked.resolutions[:1]) if asked.quick else (asked.images, asked.resolutions)
    rows: list[dict[str, Any]] = []
    runs = [run for run in asked.runs if run.is_dir()]
    for run, said in counted(runs):
        try:
            encoding, found = measured(run, asked.data, asked.split, images, sides, asked.device)
        except SightlineError as error:
            parser.error(str(error))
        print(f"{said} {run.name}", flush=True)
        about = {"benchmark": "inside_classes", "model": run.name, "encoding": encoding, "data": asked.data}
        made = {
            "threads": torch.get_num_threads(),
            "hardware": machine.hardware_name(asked.device),
            "torch": torch.__version__,
            "commit": machine.git_commit(),
        }
        rows += [about | {"split": asked.split} | row | made for row in rows_of(found)]
    table(rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
