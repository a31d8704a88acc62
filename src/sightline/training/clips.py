"""How many frames of a clip a run shows, and what cannot be trained on clips."""

from __future__ import annotations

from sightline.data.sizes import FrameSampling
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.models import ViTConfig
from sightline.tasks.base import task_class
from sightline.training.config import TrainConfig

DEFAULT_FRAMES = 8


def check_clips(model: ViTConfig, source: Source, data: str) -> None:
    """Refuse clips for a model of images.

    Args:
        data: what the data set was opened by.

    Raises:
        InputError: as said.
    """
    if source.is_video and not model.takes_clips:
        raise InputError(
            f"data {data}: is of clips, and this model's embedder {model.embedder!r} cuts images (expected a model of "
            "clips: embedder 'tubelets')"
        )


def decided_frames(config: TrainConfig, model: ViTConfig, source: Source) -> int | None:
    """How many frames of a clip are shown: those asked for, else as `clip_frames`; None for a model of images.

    Raises:
        InputError: clips for a model of images, frames of images, or a task that says more of a picture than its class.
    """
    check_clips(model, source, config.data)
    if not model.takes_clips:
        for name in ("frames", "frame_stride"):
            if (value := getattr(config, name)) is not None:
                raise InputError(
                    f"{name} {value}: embedder {model.embedder!r} cuts images (expected none, or "
                    "model_options.embedder tubelets)"
                )
        return None
    needs = task_class(config.task).needs
    if any(one != "label" for one in needs):
        raise InputError(
            f"task {config.task}: says {' and '.join(needs)} of an image, and embedder {model.embedder!r} cuts clips "
            "(expected task classification, or an embedder of images)"
        )
    frames = config.frames or clip_frames(model, source)
    showing_frames(source, frames, config.frame_stride, packed=False)
    return frames


def clip_frames(model: ViTConfig, source: Source, trained: int | None = None) -> int | None:
    """How many frames of each clip of a data set a model is shown unless others are asked for: those of its training,
    else 8; of images one. None for a model of images.

    Args:
        trained: of its last training, where that says it.
    """
    if not model.takes_clips:
        return None
    return (trained or model.clip_frames or DEFAULT_FRAMES) if source.is_video else 1


def showing_frames(source: Source, frames: int | None, stride: int | None, *, packed: bool) -> Source:
    """A data set as a model of clips is shown it; None for a model of images.

    Args:
        packed: a clip of fewer frames shows those that it has, an image one.
    """
    return source if frames is None else source.with_view(frames=FrameSampling(frames, stride, exact=not packed))
