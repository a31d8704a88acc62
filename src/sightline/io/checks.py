"""What a configuration may hold: each refusal is one line that names the key, its value and what was expected."""

from __future__ import annotations

import sys
from collections.abc import Collection

from sightline.errors import InputError, unknown_name_error

STRICT = {"extra": "forbid"}
"""The `__pydantic_config__` of a configuration: a plain dataclass would drop a key that it does not know in silence."""


def require(name: str, value: object, allowed: Collection[str]) -> None:
    """Refuse a value that is not one of `allowed`, naming the nearest."""
    if value not in allowed:
        raise unknown_name_error(name, value, allowed)


def require_bool(name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} {value!r}: expected true or false")


def require_list(name: str, value: object, of: str = "") -> None:
    """Refuse what is no list, as a single number or a text; an empty one too, where it is said `of` what."""
    if not isinstance(value, list | tuple) or (of and not value):
        raise InputError(f"{name} {value!r}: expected a list{f' of {of}' if of else ''}")


def require_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse what is not a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} {value!r}: expected a whole number")
    if value < low:
        raise InputError(f"{name} {value}: must be at least {low}")
    _require_at_most(name, value, high)


def require_number(
    name: str, value: object, *, low: float = 0.0, above: bool = False, high: float | None = None
) -> None:
    """Refuse what is not a number of float32, of at least `low` (more than `low` where `above`), at most `high`."""
    if not is_finite_number(value):
        raise InputError(f"{name} {value!r}: expected a finite number")
    assert isinstance(value, int | float)
    if abs(value) > _LARGEST:
        raise InputError(f"{name} {value:g}: expected a number that float32 holds, at most {_LARGEST:.2g}")
    if value < low or (above and value == low):
        raise InputError(f"{name} {value}: expected {'more than' if above else 'at least'} {low:.7g}")
    _require_at_most(name, value, high)


def _require_at_most(name: str, value: float, high: float | None) -> None:
    if high is not None and value > high:
        shown = str(value) if len(str(value)) <= 20 else f"{str(value)[:20]}..."
        raise InputError(f"{name} {shown}: expected at most {high:,}")


# Of float32, in which models compute.
_LARGEST = (2 - 2**-23) * 2.0**127


def is_finite_number(value: object) -> bool:
    """A whole number beyond the floating point numbers is not one either."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
