"""How many frames of a clip a run shows."""

from __future__ import annotations

from sightline.data.sizes import FrameSampling
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.models import ViTConfig

DEFAULT_FRAMES = 8


def clip_view(
    model: ViTConfig, source: Source, data: str, *, frames: int | None, stride: int | None = None, packed: bool = False
) -> Source:
    """A data set as a model is shown it: of each clip as many frames as in its training, else 8, of an image one; for a
    model of images as it is.

    Args:
        data: what the data set was opened by.
        frames, stride: as `FrameSampling`; None takes what is said above.
        packed: a clip of fewer frames shows those that it has.

    Raises:
        InputError: clips for a model of images, or frames of images.
    """
    if not model.takes_clips:
        if source.is_video:
            raise InputError(
                f"data {data}: is of clips, and this model's embedder {model.embedder!r} cuts images (expected a model "
                "of clips: embedder 'tubelets')"
            )
        return source
    usual = model.clip_frames or DEFAULT_FRAMES if source.is_video else 1
    return source.with_view(frames=FrameSampling(frames or usual, stride, exact=not packed))
