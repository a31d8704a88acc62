"""`sightline pack stats`."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from cyclopts import App

from sightline.runs.options import Data, JsonObject, MaxPixels, PackOptions, SkipUnreadable
from sightline.runs.sizes import parse_range

pack = App(name="pack", help="Show how images of many sizes pack into sequences without padding.")


@pack.command
def stats(
    data: Data,
    *,
    options: PackOptions | None = None,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    json: JsonObject = False,
) -> None:
    """Print how a data set packs: tokens of an image, images in a sequence, unused slots. Reads only image headers.

    Args:
        data: scenes, scenes:pairs, digits, imagefolder:DIR, hf:NAME, wds:SHARDS, ... Images that are drawn at any size
            get an aspect ratio from 1/2 to 2.
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
    print_table(("", data), [(_words(name, options), _shown(name, value)) for name, value in found.figures.items()])
    print("\ntokens of an image, and how many images have so many")
    print_bars([(f"{first} to {last}", count) for first, last, count in histogram(found.lengths)])
    source, recipe = found.source, next_step.PACKED
    if data == "digits" or not supports(recipe, data):
        recipe = "navit_scenes" if supports("navit_scenes", data) else None
    if (recipe or data == "digits") and "train" in source.splits:
        name = source.root.resolve().name if isinstance(source, FileSource) else data.replace(":", "_")
        out = next_step.free(Path("runs") / f"{name}{next_step.PACKED_ENDING}")
        words = next_step.to_train(data, out, skip_unreadable, max_pixels, recipe=recipe)
        # A recipe for drawn images has a patch and a budget for them; that of a folder chooses them by its images.
        always = ("sequence_length", "patch_size") if isinstance(source, FileSource) else ()
        next_step.say_next(*words, *_to_train(options, always=always or (() if recipe else ("sequence_length",))))


_TRAIN_OPTIONS = {
    "sequence_length": "--packing.tokens", "packing": "--packing.algorithm", "most_images": "--packing.most-images",
    "measure": "--packing.measure", "distribution": "--packing.distribution", "seed": "--seed",
    "patch_size": "--model-options.patch-size",
}  # fmt: skip


def _to_train(options: PackOptions, always: tuple[str, ...]) -> list[object]:
    """What of the options `sightline train` has too, as its words: what was changed, and `always`."""
    words, usual = list[object](), PackOptions()
    for name, option in _TRAIN_OPTIONS.items():
        if name in always or getattr(options, name) != getattr(usual, name):
            words += [option, getattr(options, name)]
    if options.resolutions != usual.resolutions:
        words += ["--packing.resolutions", str(list(parse_range(options.resolutions)))]
    if options.drop is not None:
        words += ["--packing.drop", "constant", "--packing.drop-options.drop", options.drop]
    return words


def _words(name: str, options: PackOptions) -> str:
    """What a figure is called in the table."""
    if name == "sequences":
        return f"sequences of at most {options.sequence_length:,} tokens"
    if name == "padding_factor":
        return "tokens of images padded to the longest"
    if name.startswith("padding_to"):
        return f"unused if sequences are {name.replace('_', ' ')}".replace("padding to", "padded to")
    return {"unused_share": "unused without padding"}.get(name, name.replace("_", " "))


def _shown(name: str, value: float) -> str:
    if name == "unused_share" or name.startswith("padding_to"):
        return f"{100 * value:.2f} %"
    if name == "padding_factor":
        return f"{value:.2f} times"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
