"""`sightline export`."""

from __future__ import annotations

import dataclasses
import functools
import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.runs.options import PatchSize, RunOrModel, Threads

if TYPE_CHECKING:
    from sightline.cli.progress import Bars
    from sightline.export import CheckRow
    from sightline.export.program import ExportRecord

# With weights in 8 bits enough images for a share of equal answers.
_BATCHES = {False: (1, 3), True: (1, 31)}


def export(
    model: RunOrModel,
    *,
    to: str,
    output: Path | None = None,
    patch_size: PatchSize = None,
    check: bool = False,
    sizes: str | None = None,
    int8: bool = False,
    overwrite: bool = False,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Write a model as one ONNX or torch file for any batch size, height and width.

    Height and width must be multiples of the patch, at least two patches (docs/how-to/export.md).

    Args:
        to: onnx (for ONNX Runtime and others), or torch (for torch.export.load).
        output: The file to write. Default: MODEL's name with .onnx or .pt2, in the current folder.
        check: Run the file at sizes that were not traced and compare it with the model; the exit code is 1 if an output
            differs by more than 1e-4.
        sizes: Sizes to check instead of the three default ones: sides or height x width in pixels, for example
            96,160x288.
        int8: Store weights in 8 bits (onnx only). The resulting error is always measured.
        overwrite: Replace the file if it exists.
        json: Print one JSON object instead of text.
    """
    from sightline import export as exports
    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.errors import SightlineError
    from sightline.hub.load import load_model
    from sightline.runs import outputs
    from sightline.runs.sizes import parse_sizes

    if threads is not None:
        machine.set_threads(threads)
    exports.check_target(to, int8=int8)
    asked = None if sizes is None else parse_sizes([sizes], "--sizes", "96,160x288")
    file = output or Path(model.resolve().name.rpartition(":")[2] + exports.SUFFIXES[to])
    outputs.claim_file(file, inputs=outputs.Inputs(models=[model]), overwrite=overwrite, option="--output")
    loaded = load_model(model, patch_size=patch_size)
    exports.check_exportable(loaded, to, int8=int8)
    usual = exports.default_sizes(loaded, to) if check or int8 else []
    checked = usual if asked is None else asked
    exports.check_sizes(loaded, checked, to)
    with progress.Bars() as bars:
        record = exports.export_model(loaded, file, to=to, int8=int8, moved=functools.partial(_step, bars, to))
        moved = functools.partial(bars.move, "checking")
        rows = exports.check_export(file, loaded, checked, batches=_BATCHES[int8], moved=moved) if checked else []
    worst = max((row.difference for row in rows), default=0.0)
    if json:
        _print_json(record, rows, int8=int8)
    else:
        _print_record(record, file, int8=int8)
        _print_rows(rows, int8)
    if not (json or rows):
        given = [] if patch_size is None else ["--patch-size", patch_size]
        next_step.say_next("export", model, "--to", to, *given, "--output", file, "--overwrite", "--check")
    if not int8 and not worst <= exports.LIMIT:
        raise SightlineError(f"{file}: differs from the model by up to {worst:.1e}, more than {exports.LIMIT:.0e}")


def _step(bars: Bars, to: str, done: int, total: int) -> None:
    """A bar for each step of an export."""
    names = ("tracing", f"writing {to}", "rounding to int8")
    if done:
        bars.move(names[done - 1], 1, 1)
    if done < total:
        bars.move(names[done], 0, 1)


def _print_json(record: ExportRecord, rows: list[CheckRow], *, int8: bool) -> None:
    from sightline.export import LIMIT

    answer = {**dataclasses.asdict(record), "limit": None if int8 else LIMIT}
    print(json_module.dumps({**answer, "check": [dataclasses.asdict(row) for row in rows]}), flush=True)


def _print_record(record: ExportRecord, file: Path, *, int8: bool) -> None:
    kind = "torch.export" if record.opset is None else f"ONNX opset {record.opset}{', int8' if int8 else ''}"
    sizes = "" if record.every_size else f", {record.example_size[0]}x{record.example_size[1]} pixels alone"
    print(f"{file}: {record.encoding}, {kind}{sizes}, {record.bytes / 1e6:.1f} MB, {record.seconds:.0f} s", flush=True)


def _print_rows(rows: list[CheckRow], int8: bool) -> None:
    from sightline.export import LIMIT
    from sightline.reports.tables import print_table

    if not rows:
        return
    lines = []
    for row in rows:
        cells = ("x".join(map(str, row.size)), "x".join(map(str, row.grid)), f"{row.difference:.1e}")
        if int8:
            cells += (f"{row.mean_difference:.1e}", f"{row.spread:.2f}", f"{row.same_top1:.0%}")
        else:
            cells += (f"{LIMIT:.0e}", "yes" if row.difference <= LIMIT else "NO")
        lines.append(cells)
    measured = ("largest error", "mean error", "outputs' spread", "same top-1")
    print_table(("size", "grid", *(measured if int8 else ("largest difference", "limit", "within"))), lines)
