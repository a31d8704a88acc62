"""How a data set packs: lengths, images a sequence, and the room that is left."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from sightline.data.config import SkipUnreadable
from sightline.data.image_file import MAX_PIXELS
from sightline.data.open import open_source
from sightline.data.pack_plan import pack_statistics
from sightline.data.packing import bucket_lengths, padding_share
from sightline.data.sizes import ConstantDrop, ResolutionSampling, SizeSampler
from sightline.data.source import Source
from sightline.io.config import Count, check_value
from sightline.runs.options import PackOptions, changed
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_range

# How many fixed lengths a compiler might be given.
_FIXED = (1, 2, 4)


@dataclass(frozen=True)
class Packed:
    """What was counted.

    Attributes:
        figures: by name, those of `sightline pack stats --json`.
        lengths: tokens of each image, rising.
        source: the data set, without what could not be read.
    """

    figures: dict[str, float]
    lengths: list[int]
    source: Source


def pack(
    data: str,
    options: PackOptions | None = None,
    *,
    skip_unreadable: SkipUnreadable = 0,
    max_pixels: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Packed:
    """Pack one pass over a split of a data set without reading a pixel, as `sightline pack stats` does.

    Args:
        data: as `scenes` or `imagefolder:DIR`; what is drawn at any size gets an aspect from 1/2 to 2.
        options: changed by keywords: `sequence_length=512`, ...

    Raises:
        InputError: the data or an option is refused.
        UnreadableDataError: more images cannot be read than may be left out.
    """
    asked, progress = changed(options or PackOptions(), changes), progress or Progress()
    check_value("--patch-size", asked.patch_size, Count)
    check_value("--images", 1 if asked.images is None else asked.images, Count)
    sampling = None
    if asked.resolutions != "native":
        sampling = ResolutionSampling(*parse_range(asked.resolutions), asked.measure, asked.distribution)
    drop = None if asked.drop is None else ConstantDrop(asked.drop)
    source = open_source(data).with_view(max_pixels=max_pixels or MAX_PIXELS)
    source = progress.read_headers(source, (asked.split,), skip_unreadable)
    found = pack_statistics(
        source,
        asked.split,
        SizeSampler(asked.patch_size, sampling, drop, asked.sequence_length),
        capacity=asked.sequence_length,
        how=asked.packing,
        most_images=asked.most_images,
        images=asked.images,
        seed=asked.seed,
        advance=lambda done, total: progress.move("packing", done, total),
    )
    lengths = sorted(found.lengths)
    figures: dict[str, float] = {
        "images": found.images,
        "sequences": len(found.sequences),
        "tokens": found.tokens,
        "dropped_tokens": found.patches - found.tokens,
        "mean_tokens_per_image": found.tokens / found.images,
        "median_tokens_per_image": statistics.median(lengths),
        "max_tokens_per_image": lengths[-1],
        "mean_images_per_sequence": found.images_per_sequence,
        "max_images_per_sequence": max(images for _, images in found.sequences),
        "unused_share": found.unused,
        "padding_factor": found.padding_factor,
    }
    slots = [tokens for tokens, _ in found.sequences]
    for count in _FIXED:
        name = f"padding_to_{count}_length{'s' if count > 1 else ''}"
        figures[name] = padding_share(slots, bucket_lengths(slots, count))
    return Packed(figures, lengths, source)
