"""`sightline pack stats`."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from cyclopts import App

from sightline.runs.options import Data, JsonObject, MaxPixels, PackOptions, SkipUnreadable

pack = App(name="pack", help="Images of every size in sequences without padding.")


@pack.command
def stats(
    data: Data,
    *,
    options: PackOptions | None = None,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    json: JsonObject = False,
) -> None:
    """Show how a data set packs: lengths, images a sequence, and the room that is left. No pixel is read.

    Args:
        data: scenes, scenes:pairs, digits, imagefolder:DIR, hf:NAME, wds:SHARDS. What is drawn at any size gets
            an aspect from 1/2 to 2.
    """
    from sightline.cli import next_step, progress
    from sightline.data.pack_plan import histogram
    from sightline.data.stored import FileSource
    from sightline.recipes import supports
    from sightline.reports.tables import print_bars, print_table
    from sightline.runs.packing import pack as pack_data

    options = options or PackOptions()
    with progress.Bars() as bars:
        found = pack_data(data, options, skip_unreadable=skip_unreadable, max_pixels=max_pixels, progress=bars)
    if json:
        said = {"data": data, "split": options.split, "sequence_length": options.sequence_length}
        print(json_module.dumps({**said, **found.figures}))
        return
    print_table(("", data), [(name.replace("_", " "), _shown(name, value)) for name, value in found.figures.items()])
    print("\ntokens of an image, and how many images have so many")
    print_bars([(f"{first} to {last}", count) for first, last, count in histogram(found.lengths)])
    source = found.source
    if isinstance(source, FileSource) and supports(next_step.PACKED, data) and "train" in source.splits:
        out = next_step.free(Path("runs") / f"{source.root.resolve().name}{next_step.PACKED_ENDING}")
        next_step.say_next(*next_step.to_train(data, out, skip_unreadable, max_pixels, recipe=next_step.PACKED))
    elif data.startswith("scenes"):
        next_step.say_next("train", "--recipe", "navit_scenes", "--data", data)
    elif data == "digits":
        next_step.say_next("train", "--data", data, "--packing.tokens", options.sequence_length)


def _shown(name: str, value: float) -> str:
    if name == "unused" or name.startswith("padding_at"):
        return f"{100 * value:.2f} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
