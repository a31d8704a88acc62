"""Fields of view by their angles, as half-planes of whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

from sightline.attention.pattern import View

# a * dy + b * dx with |a|, |b| <= 2**18 stays within int32 on grids of up to 4096 cells a side.
_LARGEST_NORMAL = 2**18
# Two borders that are closer than this may get the same normal, and then they would bound a line, not a cone.
NARROWEST = 0.001


def look(direction: float, field_of_view: float) -> View:
    """The field of view around a direction, borders included.

    Args:
        direction: degrees clockwise from up, any finite number: 90 is right, 180 down, 270 and -90 left.
        field_of_view: the whole angle in degrees, 0.001 to 360 (`LookHereConfig` refuses others): up to 180 two
            half-planes intersect, beyond they are joined by any, and 360 is everything.

    Returns:
        A view whose normals are the nearest ones of integers up to 2**18: on grids of up to 4096 a side no cell is on
        the wrong side, and one within 2e-6 radians of a border may count as on it. Multiples of 45 degrees are exact.
    """
    if field_of_view == 360:
        return View()
    towards, half = direction % 360, field_of_view / 2
    normals = _normal(towards - half + 90), _normal(towards + half - 90)
    return View(tuple(dict.fromkeys(normals)), "all" if field_of_view <= 180 else "any")


def _normal(degrees: float) -> tuple[int, int]:
    """Integers (a, b) along (dy, dx) of a direction clockwise from up."""
    dy, dx = -math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    steep = abs(dy) > abs(dx)
    longer, shorter = (dy, dx) if steep else (dx, dy)
    ratio = Fraction(shorter / abs(longer)).limit_denominator(_LARGEST_NORMAL)
    whole = ratio.denominator if longer > 0 else -ratio.denominator
    return (whole, ratio.numerator) if steep else (ratio.numerator, whole)
