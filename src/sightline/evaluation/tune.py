"""The search for an encoding's own extrapolation parameter at a resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sightline.data.source import Source
from sightline.data.views import View
from sightline.evaluation.predict import predict_split
from sightline.models import VisionTransformer
from sightline.tasks.classification import accuracies


def tune_knob(
    model: VisionTransformer,
    source: Source,
    resolution: int | View,
    indices: Sequence[int],
    *,
    split: str = "minival",
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
) -> float:
    """The candidate with the best top-1 on `split`; of equals, the one nearest to the default.

    LookHere (section 4) tunes its global slope so, on held-out training images. The model's knob is left as it was.

    Raises:
        InputError: the encoding has no knob.
    """
    knob = model.knob
    if knob is None:
        model.set_knob(0.0)  # raises, and says which encoding
        raise AssertionError("unreachable")
    try:
        scored = []
        for candidate in dict.fromkeys((knob.default, *knob.candidates)):
            model.set_knob(candidate)
            said = predict_split(model, source, split, resolution, indices, precision=precision, advance=advance)
            top1 = accuracies(said, {})["top1"][0]
            scored.append((-top1, abs(candidate - knob.default), candidate))
    finally:
        model.set_knob(knob.value)
    return min(scored)[2]
