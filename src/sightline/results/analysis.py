"""What was measured of a model's inside, as rows. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.errors import InputError
from sightline.io.config import Count
from sightline.results.rows import Z95, MetricValue, ModelRow, check_fields

ANALYSIS, ANALYSIS_PAGE = "analysis.jsonl", "analysis.html"
LAYERS = "layers"
"""The `figure` of what is drawn as curves by layer."""
Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class AnalysisRow(ModelRow, MetricValue):
    """A row of `analysis.jsonl`: a number for each layer and size.

    `run` is what the model is called, `metric` names a quantity of `measure`; `value` is its mean over images (and over
    heads) in `unit`, `interval` the 95 % of that over other images (Student's t, cut at 0 and 1 of fractions that all
    lie between; None of one image, and of what is of no image). `slices` says which {"layer": l}, from 0, or -1 of what
    enters the first; none of what has no layers.
    `size` is (height, width) in pixels, None where each image had its own. `depth`, `heads` and `patch_size` are the
    model's, `words` and `figure` the quantity's. Of what has images and layers there is also the mean over layers,
    without a slice and `of_all_layers`.
    """

    measure: str
    size: tuple[Count, Count] | None
    depth: int
    heads: int
    patch_size: int
    of_all_layers: bool = False
    words: str = ""
    figure: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.slices.get("layer", 0), int):
            raise InputError(f"slices {self.slices!r}: expected a whole number for layer")

    @property
    def layer(self) -> int | None:
        """Which layer, None of what has none."""
        layer = self.slices.get("layer")
        return None if layer is None else int(layer)

    def limits(self, deviations: float = Z95) -> tuple[float, float] | None:
        """As of any number, but of a share only where it has its own interval: it is no share of `count` things."""
        return None if self.interval is None else super().limits(deviations)

    @property
    def shown(self) -> str:
        """How images were shown, in words: "64 px", "32 x 64 px", or "own size"."""
        return size_words(self.size)


def size_words(size: Size | None) -> str:
    """ "64 px", "32 x 64 px" (height first), or "own size"; (0, 0) is none, too."""
    if not size or size == (0, 0):
        return "own size"
    height, width = size
    return f"{height} px" if height == width else f"{height} \N{MULTIPLICATION SIGN} {width} px"
