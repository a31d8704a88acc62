"""How many frames of clips a command shows."""

from __future__ import annotations

from dataclasses import replace

from sightline.data.sizes import FrameSampling
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.models import ViTConfig


def in_frames(model: ViTConfig, source: Source, frames: tuple[int, ...]) -> list[Source]:
    """A data set once for each number of frames that `--frames` asks for; as it is shown where that asks for none.

    Raises:
        InputError: the model takes images, or the data has images alone and more frames than one are asked for.
    """
    if not frames:
        return [source]
    if not model.takes_clips:
        raise InputError(f"--frames {frames[0]}: this model's embedder {model.embedder!r} cuts images (expected none)")
    sampling = source.sampling or FrameSampling(1)
    return [source.with_view(frames=replace(sampling, count=count)) for count in frames]


def for_frames(model: ViTConfig, frames: tuple[int, ...]) -> ViTConfig:
    """A model's configuration for the longest of the clips that are asked for, by which its memory is counted."""
    return replace(model, clip_frames=max(frames)) if frames and model.takes_clips else model
