"""One token budget, or one point of a cascade, that was measured is one row. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sightline.results.rows import ModelRow

CASCADE = "cascade.jsonl"


@dataclass(frozen=True, kw_only=True)
class CascadeRow(ModelRow):
    """A row of `cascade.jsonl`.

    `kind` is `single` (every image with at most `budget` patches) or `cascade` (every image with `budget`, and those
    whose score is below `threshold` again with `second_budget`). `tokens` are patches an image and `milliseconds` the
    forward pass an image, in the mean, both looks together; `reading_milliseconds` is reading or drawing it. `top1`,
    its 95 % interval `low` to `high` (Wilson) and `ece` (15 bins of equal width) are fractions. `alpha` is the
    fraction that was to be seen again, found on `held_out` images of `held_out_split`; `fraction` the one that was.
    `ahead` is `top1` less that of single budgets at equal mean tokens, with the 95 % of a paired bootstrap.
    `chosen` is the point for the budget that was asked for. None where it does not apply.
    """

    images: int
    aspect: str
    kind: Literal["single", "cascade"]
    budget: int
    second_budget: int | None = None
    alpha: float | None = None
    threshold: float | None = None
    fraction: float | None = None
    tokens: float
    milliseconds: float
    reading_milliseconds: float
    top1: float
    low: float
    high: float
    ece: float
    ahead: float | None = None
    ahead_low: float | None = None
    ahead_high: float | None = None
    chosen: bool = False
    held_out_split: str
    held_out: int
    patch_size: int
    scores: Literal["sigmoid", "softmax"]
    precision: str
    threads: int
    bootstrap_seed: int
