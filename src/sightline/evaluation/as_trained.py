"""How a packed run saw its images, so that it is tested as it was trained."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sightline.data.config import PackingConfig
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.evaluation.predict import is_rendered


def views_as_trained(
    packing: PackingConfig | dict[str, Any] | None, resolution: int, patch_size: int, source: Source, split: str
) -> tuple[View, ...]:
    """How a packed run at native aspect saw its images, the most usual view first: it is tested so, and not on squares
    alone. None for every other run.

    Images that were shown at their own size are tested so, up to the most patches of the training; those of drawn
    sizes with the patches of the training's `resolution` (the middle of the range where it lies outside), of its
    lowest and of its highest side.

    Args:
        packing: of the run; as its saved record too.
        resolution: of the run, in pixels.
    """
    if isinstance(packing, dict):
        known = {field.name for field in fields(PackingConfig)}
        packing = PackingConfig(**{name: value for name, value in packing.items() if name in known})
    if packing is None or packing.aspect != "native":
        return ()
    most = packing.most_tokens or packing.tokens
    if packing.resolutions is None:
        # What is drawn at any size has none of its own: the training scaled it to the most patches.
        return (View("tokens" if is_rendered(source, split) else "native", most),)
    low, high = packing.resolutions
    usual = resolution if low <= resolution <= high else (low + high) // 2
    counts = (max(min(round((side / patch_size) ** 2), most), 1) for side in (usual, low, high))
    return tuple(dict.fromkeys(View("tokens", count) for count in counts))
