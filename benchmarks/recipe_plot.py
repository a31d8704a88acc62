"""Recipes side by side, over seeds: accuracy by test resolution, and what each saw for the same compute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.reports import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# 97.5 % points of Student's t by degrees of freedom; beyond ten, 2.2 falls slowly to 1.96.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class RecipeCurve:
    """One recipe.

    Attributes:
        top1: test resolution in pixels -> fraction right of each seed, the same number everywhere.
        images: how many each seed was shown in training.
    """

    top1: Mapping[int, Sequence[float]]
    images: Sequence[int]

    def means(self) -> list[float]:
        """Of each seed, the mean over the resolutions."""
        return [fmean(seed) for seed in zip(*self.top1.values(), strict=True)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval by Student's t; a half width of nan for one value.

    Raises:
        InputError: there is no value.
    """
    if not values:
        raise InputError("no value to average")
    if len(values) == 1:
        return values[0], math.nan
    factor = _STUDENT[len(values) - 2] if len(values) <= len(_STUDENT) + 1 else 2.2
    return fmean(values), factor * stdev(values) / math.sqrt(len(values))


def recipe_plot(curves: Mapping[str, RecipeCurve], *, train_resolution: int) -> str:
    """Top-1 (percent) by test resolution, a line a recipe: the mean of its seeds with a mark for each; SVG text.

    Raises:
        InputError: there is no curve, or one without a point.
    """
    if not curves or not all(curve.top1 for curve in curves.values()):
        raise InputError("there is no curve to draw")
    names = list(curves)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for name, curve in curves.items():
            colour, sides = style.colour(name, names), sorted(curve.top1)
            seeds = len(curve.images)
            for side in sides:
                points = [100 * value for value in curve.top1[side]]
                axes.plot(
                    [side] * len(points), points, style.marker(name, names), color=colour, markersize=4, alpha=0.5
                )
            label = f"{style.short(name)}: {fmean(curve.images):,.0f} images, {seeds} seed{'s' if seeds > 1 else ''}"
            means = [100 * fmean(curve.top1[side]) for side in sides]
            axes.plot(sides, means, color=colour, linewidth=2, label=label)
        axes.axvline(train_resolution, color=style.INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        every = sorted({side for curve in curves.values() for side in curve.top1})
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [str(side) for side in every])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 100)
        axes.set_xlabel(f"test resolution (side of the image, px); dotted: {train_resolution} px")
        axes.set_ylabel("top-1 accuracy (%)")
        axes.set_title("lines: mean of the seeds; marks: each of them")
        axes.legend(loc="lower right", frameon=False)

    return style.draw(8.4, 4.4, paint)
