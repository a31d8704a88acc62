"""What was found inside models, in sentences: no encoding is called higher where intervals over images overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sightline.reports import words
from sightline.results.rows import Z95

DIVERSITY = "head diversity", "figures 4 and 15"
"""What is compared, and where LookHere's paper shows that its own are higher: for `lookhere_sentence`."""
LENS_MIOU = "logit-lens mIoU", "figure 5"
_FAMILY = "lookhere"


@dataclass(frozen=True)
class ReachedExtreme:
    """What one model has of something, and where that lies with 95 % over images.

    Attributes:
        encoding: of its positions, as `lookhere_90` or `rope_axial+learned_1d`.
        value: of all images.
        interval: (low, high), in the unit of `value`; None where it is not known.
        model: what the model is called; its encoding where empty.
    """

    encoding: str
    value: float
    interval: tuple[float, float] | None
    model: str = ""

    @property
    def called(self) -> str:
        return self.model or self.encoding

    @property
    def known(self) -> bool:
        """Whether there is a number, and an interval of it."""
        return self.interval is not None and all(map(math.isfinite, (self.value, *self.interval)))


def over_images(values: np.ndarray) -> tuple[float, tuple[float, float] | None, int]:
    """The mean of what each image has, its 95 % interval (of the normal distribution), and of how many images it is.

    Args:
        values: [images, ...]; the mean of the rest is an image's own (the layers, the heads); nan where there is
            nothing, and an image of which that is all counts nowhere.

    Returns:
        nan of no image; no interval of one.
    """
    values = np.asarray(values, np.float64)
    values = values.reshape(len(values), int(np.prod(values.shape[1:])))
    values = values[np.isfinite(values).any(axis=1)]
    images = len(values)
    if not images:
        return math.nan, None, 0
    each = np.nanmean(values, axis=1)
    mean = float(each.mean())
    if images == 1:
        return mean, None, 1
    reach = Z95 * float(each.std(ddof=1)) / math.sqrt(images)
    return mean, (mean - reach, mean + reach), images


def is_lookhere(encoding: str) -> bool:
    """Whether an encoding, or one of two together, is LookHere's."""
    return any(part.startswith(_FAMILY) for part in encoding.split("+"))


def lookhere_sentence(
    found: Sequence[ReachedExtreme],
    what: str,
    figure: str = "",
    *,
    unit: str = "",
    at: str = "",
    paper_higher: bool = True,
) -> str:
    """Whether LookHere's are higher than all others, as its paper found; no verdict where intervals overlap.

    Args:
        found: what each model has of one thing at one size, measured on the same images: `Reached(encoding, value,
            interval)`, the interval by `over_images`, or `miou_low` and `miou_high` of the measure `lens_miou`.
        what, figure: what is compared, and where the paper shows it: `*DIVERSITY`, `*LENS_MIOU`, or other words.
        unit: of the values: "fraction" is shown in percent, "" as a plain number.
        at: the size, as "64 px"; "" where it is not to be said.
        paper_higher: whether the paper found LookHere's higher; else lower.

    Returns:
        One or more whole sentences in plain text.
    """
    place = f"At {at}, " if at else ""
    shown = ", ".join(_with_interval(one, unit) for one in found)
    ours = [one for one in found if is_lookhere(one.encoding)]
    others = [one for one in found if not is_lookhere(one.encoding)]
    if not ours or not others:
        missing = "a model with LookHere" if not ours else "one with another encoding"
        return words.capital(f"{place}no verdict on {what}: {missing} is missing ({shown or 'nothing was measured'}).")
    if unknown := [one.called for one in found if not one.known]:
        return words.capital(
            f"{place}no verdict on {what}: no interval over images of {words.listed(unknown)} ({shown})."
        )
    above = [one for one in others if all(_low(mine) > _high(one) for mine in ours)]
    below = [one for one in others if all(_high(mine) < _low(one) for mine in ours)]
    unsure = [one.called for one in others if one not in above and one not in below]
    seen = f" ({figure})" if figure else ""
    if len(above) == len(others) or len(below) == len(others):
        higher = len(above) == len(others)
        agrees = "as" if higher == paper_higher else "other than"
        verdict = f"LookHere's {what} is {'higher' if higher else 'lower'}, {agrees} its paper found{seen}"
        return f"{place}{verdict}: {shown}. {_NOTE}"
    parts = [
        f"LookHere's is {word} than that of {words.listed([one.called for one in some])}"
        for word, some in (("higher", above), ("lower", below))
        if some
    ]
    parts += [f"its interval and that of {words.listed(unsure)} overlap"] if unsure else []
    return words.capital(f"{place}no verdict on {what} as a whole{seen}: {'; '.join(parts)}: {shown}. {_NOTE}")


_NOTE = "Brackets are 95 % over images, of one training each: what another training would give, they do not say."


def _with_interval(one: ReachedExtreme, unit: str) -> str:
    value = words.quantity(one.value, unit) if math.isfinite(one.value) else "unknown"
    if not one.known or one.interval is None:
        return f"{one.called} {value}"
    return f"{one.called} {value} {words.interval([words.number(limit, unit) for limit in one.interval])}"


def _low(one: ReachedExtreme) -> float:
    assert one.interval is not None
    return one.interval[0]


def _high(one: ReachedExtreme) -> float:
    assert one.interval is not None
    return one.interval[1]
