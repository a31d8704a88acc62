"""`sightline pack stats`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Literal

from cyclopts import App

from sightline.runs.options import Data, JsonObject, MaxPixels, SkipUnreadable

pack = App(name="pack", help="Images of every size in sequences without padding.")

# How many fixed lengths a compiler might be given.
_FIXED = (1, 2, 4)


@pack.command
def stats(
    data: Data,
    *,
    split: str = "train",
    patch_size: int = 16,
    sequence_length: int = 1024,
    packing: Literal["first_fit", "best_fit"] = "first_fit",
    most_images: int | None = None,
    resolutions: str = "native",
    measure: Literal["side", "area"] = "side",
    distribution: Literal["uniform", "normal", "low", "high"] = "uniform",
    drop: float | None = None,
    images: int | None = None,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: MaxPixels = None,
    seed: int = 0,
    json: JsonObject = False,
) -> None:
    """Show how a data set packs: lengths, images a sequence, and the room that is left. No pixel is read.

    Args:
        data: scenes, scenes:pairs, digits, imagefolder:DIR, hf:NAME, wds:SHARDS. What is drawn at any size gets
            an aspect from 1/2 to 2.
        split: Of the data set.
        patch_size: Side of a patch in pixels.
        sequence_length: Tokens of a sequence, or the budget of a batch.
        packing: first_fit, as the paper, or best_fit, which puts images of one length together.
        most_images: In a sequence (the paper's E_max).
        resolutions: native, or sides in pixels as 64..384 of which one is drawn for each image.
        measure: What the distribution is of: the side, or the area.
        distribution: uniform, normal, or biased to low or high sides.
        drop: Rate of the tokens that are left out, from 0 to 1.
        images: How many of the split; all, or 10,000 of an endless one.
        seed: Of the draws.
    """
    import statistics

    from sightline.cli import next_step, progress
    from sightline.data.image_file import MAX_PIXELS
    from sightline.data.open import open_source
    from sightline.data.pack_plan import histogram, pack_statistics
    from sightline.data.packing import bucket_lengths, padding_share
    from sightline.data.sizes import ConstantDrop, ResolutionSampling, SizeSampler
    from sightline.data.stored import FileSource
    from sightline.io.config import Count, check_value
    from sightline.recipes import supports
    from sightline.reports.tables import print_bars, print_table
    from sightline.runs.sizes import parse_range

    check_value("--patch-size", patch_size, Count)
    check_value("--images", 1 if images is None else images, Count)
    native = resolutions == "native"
    sampling = None if native else ResolutionSampling(*parse_range(resolutions), measure, distribution)
    sampler = SizeSampler(patch_size, sampling, None if drop is None else ConstantDrop(drop), sequence_length)
    with progress.Bars() as bars:
        opened = open_source(data).with_view(max_pixels=max_pixels or MAX_PIXELS)
        source = bars.read_headers(opened, (split,), skip_unreadable)
        found = pack_statistics(
            source,
            split,
            sampler,
            capacity=sequence_length,
            how=packing,
            most_images=most_images,
            images=images,
            seed=seed,
            advance=lambda done, total: bars.move("packing", done, total),
        )
    lengths = sorted(found.lengths)
    figures: dict[str, float] = {
        "images": found.images,
        "sequences": len(found.sequences),
        "tokens": found.tokens,
        "dropped_tokens": found.patches - found.tokens,
        "tokens_an_image": found.tokens / found.images,
        "median_tokens": statistics.median(lengths),
        "longest": lengths[-1],
        "images_a_sequence": found.images_a_sequence,
        "most_images_a_sequence": max(images for _, images in found.sequences),
        "unused": found.unused,
        "padding_factor": found.padding_factor,
    }
    slots = [tokens for tokens, _ in found.sequences]
    for count in _FIXED:
        name = f"padding_at_{count}_length{'s' if count > 1 else ''}"
        figures[name] = padding_share(slots, bucket_lengths(slots, count))
    if json:
        print(json_module.dumps({"data": data, "split": split, "sequence_length": sequence_length, **figures}))
        return
    print_table(("", data), [(name.replace("_", " "), _shown(name, value)) for name, value in figures.items()])
    print("\ntokens of an image, and how many images have so many")
    print_bars([(f"{first} to {last}", count) for first, last, count in histogram(lengths)])
    if isinstance(source, FileSource) and supports(next_step.PACKED, data) and "train" in source.splits:
        out = next_step.free(Path("runs") / f"{source.root.resolve().name}{next_step.PACKED_ENDING}")
        next_step.say_next(*next_step.to_train(data, out, skip_unreadable, max_pixels, recipe=next_step.PACKED))
    elif data.startswith("scenes"):
        next_step.say_next("train", "--recipe", "navit_scenes", "--data", data)
    elif data == "digits":
        next_step.say_next("train", "--data", data, "--packing.tokens", sequence_length)


def _shown(name: str, value: float) -> str:
    if name == "unused" or name.startswith("padding_at"):
        return f"{100 * value:.2f} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
