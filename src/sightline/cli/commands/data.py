"""`sightline data check`."""

from __future__ import annotations

import contextlib
import json as json_module
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from sightline.runs.options import Data, JsonObject, MaxPixels, SkipUnreadable

if TYPE_CHECKING:
    import numpy as np

    from sightline.data.folder_check import FolderCheck
    from sightline.data.stored import FileSource

data = App(name="data", help="Check a data set.")

_SHOWN = 20
# Width over height: what lies between is one line.
_ASPECTS = (("taller than 3:1", 1 / 3), ("3:1 to 2:1 tall", 1 / 2), ("2:1 to 4:3 tall", 3 / 4), ("about square", 4 / 3),
            ("4:3 to 2:1 wide", 2.0), ("2:1 to 3:1 wide", 3.0), ("wider than 3:1", float("inf")))  # fmt: skip


@data.command
def check(
    data: Data,
    *,
    sheet: Path | None = None,
    overwrite: bool = False,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    json: JsonObject = False,
) -> int:
    """Read every image of a data set, with its mask or objects, and print contents and problems.

    Prints counts by split and class (of pixels or objects, if there are masks or boxes), sizes, aspect ratios, mean and
    standard deviation, unreadable files, and files with equal content. Later commands reuse the result. The exit code
    is 3 if a split has more unreadable images than --skip-unreadable allows.

    Args:
        data: A folder, whose layout is recognised, or imagefolder:DIR, hf:DIR, wds:SHARDS, csv:FILE, ade20k:DIR,
            masks:DIR, coco:DIR, coco-captions:DIR, ...
        sheet: A file for a picture of some images, for example sheet.png.
        overwrite: Replace --sheet if it exists.
    """
    from sightline.cli import next_step, progress
    from sightline.data.folder_check import check_folder
    from sightline.data.skip_policy import WAY_ON
    from sightline.errors import InputError, UnreadableDataError
    from sightline.runs import outputs
    from sightline.runs.drawings import write_picture

    if sheet is not None:
        if sheet.suffix.lower() != ".png":
            raise InputError(f"--sheet {sheet}: expected a name that ends in .png", field="sheet", value=sheet)
        outputs.claim_file(sheet, inputs=outputs.Inputs(data=[data]), overwrite=overwrite, option="--sheet")
    source = _opened(data, max_pixels)
    with progress.Bars() as bars:
        found = check_folder(source, progress=bars.move)
    following, packed, doubt = _next(data, source, found, max_pixels)
    if sheet is not None:
        write_picture(sheet, _drawn(source))
    if json:
        passed_over = list(map(asdict, source.skipped))
        record = _record(data, found, source) | {"passed_over": passed_over, "next": following, "packed": packed}
        print(json_module.dumps(record))
    else:
        _show(found, source)
        if sheet is not None:
            print(f"sheet: {sheet}")
    code = 0
    if skip_unreadable != "all" and found.to_skip > skip_unreadable:
        said = f"{_counted(found.to_skip, 'image')} of a split cannot be read (allowed: {skip_unreadable}; {WAY_ON})"
        sys.stdout.flush()
        print(f"sightline: error: {data}: {said}", file=sys.stderr, flush=True)
        code = UnreadableDataError.exit_code
    if not json:
        if doubt:
            print(doubt)
        if following:
            print(f"next: {following}")
            if _divides(source):
                out = next_step.free(Path("runs") / source.root.resolve().name)
                words = next_step.to_train(f"{data},test=0.2", out, found.to_skip, max_pixels)
                print(f"or train on a part of it: {next_step.command(*words)}")
        if packed:
            print(f"or packed, each at its own aspect: {packed}")
    return code


def _opened(data: str, max_pixels: int | None) -> FileSource:
    from sightline.cli import progress
    from sightline.data.image_file import MAX_PIXELS
    from sightline.data.open import open_source
    from sightline.data.stored import FileSource
    from sightline.errors import InputError

    with progress.Bars(late=progress.LATE) as bars:
        source = open_source(data, partial(bars.move, "listing shards")).with_view(max_pixels=max_pixels or MAX_PIXELS)
    if not isinstance(source, FileSource):
        said = f"data check {data}: comes with the package, there are no files to check (expected: imagefolder:DIR)"
        raise InputError(said, field="data", value=data)
    return source


def _show(found: FolderCheck, source: FileSource) -> None:
    import numpy as np

    from sightline.data.paired import SegmentationFiles
    from sightline.reports.tables import print_bars, print_table

    counted = found.said or found.counts
    classes = list(dict.fromkeys(name for counts in counted.values() for name in counts))
    rows = [(name, *(counts.get(name, 0) for counts in counted.values())) for name in classes]
    if len(rows) > _SHOWN:
        by_count = sorted(rows, key=lambda row: row[1])
        rows = [*by_count[: _SHOWN // 2], ("...", *("..." for _ in found.counts)), *by_count[-_SHOWN // 2 :]]
    if isinstance(source, SegmentationFiles) and source.legend.ignored:
        rows.append((f"ignored: {', '.join(map(str, source.legend.ignored))}", *found.ignored.values()))
    rows.append(("images" if found.said else "all", *(sum(one.values()) for one in found.counts.values())))
    print_table((f"{source.provides[0]} of class" if found.said else "class", *found.counts), rows)
    if captions := [one for some in source.captions for one in some]:
        print(f"\n{_counted(len(captions), 'caption')}, the first {captions[0]!r}")
    first, counts = next(iter(found.counts.items()))
    if len(counts) > 1:
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        extremes = f"; {most} has {counts[most]:,} images, {least} {counts[least]:,}"
        each = f" of {_counted(counts[most], 'image')} each"
        print(f"\n{first}: {len(counts)} classes{each if counts[most] == counts[least] else extremes}")
    if len(found.sizes):
        sides = np.sqrt(found.sizes.prod(axis=1))
        print("\nside in pixels (root of width x height), from {} to {}".format(*_extremes(found)))
        powers = np.floor(np.log2(sides)).astype(int)
        counted = enumerate(np.bincount(powers - powers.min()).tolist(), start=powers.min())
        print_bars([(f"{2**power} to {2 ** (power + 1) - 1}", count) for power, count in counted])
        print("\nshape (width : height)")
        names, limits = zip(*_ASPECTS, strict=True)
        shapes = np.searchsorted(limits, found.sizes[:, 1] / found.sizes[:, 0])
        print_bars(list(zip(names, np.bincount(shapes, minlength=len(names)).tolist(), strict=True)))
    seen = found.summary
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (seen.mean, seen.std))
    print(f"\nmean {mean}, deviation {std} (red, green, blue; of {seen.sampled} images, centres at 64 px)")
    unreadable = [f"{one.path}: {one.reason}" for images in found.unreadable.values() for one in images]
    print(f"\n{_counted(len(unreadable), 'image')} cannot be read")
    _print_some(unreadable)
    for path, counts in source.left_out.items():
        print(f"left out of {path}:")
        _print_some([f"{what}: {count:,}" for what, count in counts.items()])
    if passed_over := source.skipped:
        print(f"{_counted(len(passed_over), 'file')} {'is' if len(passed_over) == 1 else 'are'} passed over")
        _print_some([f"{one.path}: {one.reason}" for one in passed_over])
    # Splits that were published stay as they are.
    left_out = " (left out of the split that measures)" if source.cleaned else ""
    stand = "stands" if len(found.duplicates) == 1 else "stand"
    twice = f"{_counted(len(found.duplicates), 'content')} {stand} in several files"
    disputed = f", {len(found.disputed)} of them under several classes" if found.disputed else ""
    print(f"{twice}, {len(found.across)} of them in two splits{left_out}{disputed}")
    shown = list(dict.fromkeys([*found.across, *found.disputed, *found.duplicates]))
    _print_some([" = ".join(group[:4]) + (" = ..." if len(group) > 4 else "") for group in shown])


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _print_some(lines: list[str]) -> None:
    for line in lines[:_SHOWN]:
        print(f"  {line}")
    if len(lines) > _SHOWN:
        print(f"  and {len(lines) - _SHOWN} more (--json names all)")


def _extremes(found: FolderCheck) -> tuple[str | None, str | None]:
    """The size of the smallest and of the largest image, as width x height; None where no image can be read."""
    if not len(found.sizes):
        return None, None
    areas = found.sizes.prod(axis=1)
    (low_height, low_width), (high_height, high_width) = found.sizes[[areas.argmin(), areas.argmax()]]
    return f"{low_width}x{low_height}", f"{high_width}x{high_height}"


def _record(data: str, found: FolderCheck, source: FileSource) -> dict[str, Any]:
    from sightline.data.paired import SegmentationFiles

    smallest, largest = _extremes(found)
    said: dict[str, Any] = {source.provides[0]: found.said} if found.said else {}
    if isinstance(source, SegmentationFiles):
        said["ignored"] = {"values": source.legend.ignored, "pixels": found.ignored}
    return {
        "data": data,
        "counts": found.counts,
        **said,
        "captions": sum(map(len, source.captions)),
        "left_out": source.left_out,
        "unreadable": {split: list(map(asdict, images)) for split, images in found.unreadable.items()},
        "duplicates": found.duplicates,
        "across_splits": found.across,
        "under_several_classes": found.disputed,
        "smallest": smallest,
        "largest": largest,
        "median_side": found.summary.side,
        "mean": found.summary.mean,
        "std": found.summary.std,
        "skip_unreadable": found.to_skip,
    }


def _next(
    data: str, source: FileSource, found: FolderCheck, max_pixels: int | None
) -> tuple[str | None, str | None, str | None]:
    """The command that follows; the packed training, where one may follow; why nothing can be learned of the data as it
    is read, where that is so."""
    from sightline.cli.next_step import PACKED, PACKED_ENDING, beside, command, free, to_train
    from sightline.data.paired import SegmentationFiles

    unlabelled = source.unlabelled.issuperset(found.counts)
    if unlabelled or "train" not in source.splits:
        skip = ("--skip-unreadable", found.to_skip) if found.to_skip else ()
        pixels = ("--max-pixels", max_pixels) if max_pixels else ()
        asked = ("predict", "RUN") if unlabelled else ("evaluate", "RUN", "--data")
        return command(*asked, data, *skip, *pixels), None, None
    out = free(Path("runs") / source.root.resolve().name)
    if source.classes == ():
        short, way = None, data
        if isinstance(source, SegmentationFiles) and (doubt := source.doubt()) is not None:
            short, way = doubt.said, doubt.way
        words = to_train(way or data, out, found.to_skip, max_pixels)
        # Of images of which nothing is said the recipe knows the task.
        task = ("--task", source.task) if source.provides else ()
        return way and command(*words[:3], *task, *words[3:]), None, short
    rest = found.to_skip, max_pixels
    fixed, packed = to_train(data, out, *rest), to_train(data, free(beside(out, PACKED_ENDING)), *rest, recipe=PACKED)
    return command(*fixed), None if source.is_video else command(*packed), None


def _divides(source: FileSource) -> bool:
    """Whether a part of data that is a test alone can be trained on: it has two classes, or none, and enough images."""
    from sightline.errors import InputError

    if source.splits != ("test",) or source.unlabelled or len(source.classes) == 1:
        return False
    with contextlib.suppress(InputError):
        return "train" in source.hold_out(0.2, "test").splits
    return False


def _drawn(source: FileSource) -> np.ndarray:
    """A sheet of some images, spread over the split that measures."""
    from sightline.data.contact_sheet import contact_sheet

    split = "test" if "test" in source.splits else source.splits[0]
    source, _ = source.check_readable(split, skip_unreadable="all")
    lost = {one.path for one in source.skipped}
    there = [index for index in range(source.length(split)) if source.example_name(split, index) not in lost]
    chosen = [there[number * len(there) // 48] for number in range(48)] if len(there) > 48 else there
    return contact_sheet(source, split, [(96, 96)], columns=12, rows=4, indices=chosen)
