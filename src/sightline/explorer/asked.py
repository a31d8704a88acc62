"""What the page asks for, read strictly: JSON of known keys, whole numbers in their range, nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sightline.analysis.images import NATIVE, Size
from sightline.errors import did_you_mean
from sightline.explorer.faults import HttpError

PANES = ("left", "right")
_KEYS = ("client", "pane", "model", "image", "size", "knob", "off")
_LONGEST_ID = 64
_LARGEST_SIDE = 1 << 20
_PREFIX = "prefix:"


@dataclass(frozen=True)
class ViewSpec:
    """A view: what of which image a model is shown, and what is changed in the model meanwhile.

    Attributes:
        size: (height, width) in pixels, or `NATIVE`.
        knob: of the encoding; None is as it was loaded.
        off: (layer, head) of the heads that are switched off, in order, each once.
    """

    model: int
    image: str
    size: Size
    knob: float | None
    off: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Question:
    """A view that is wanted, for which pane of which page."""

    client: str
    pane: str
    wanted: ViewSpec


def read_question(content: bytes) -> Question:
    """The body of a request for a view; what hangs on the model is checked where that is known.

    Raises:
        Refused: 400, it is not one; says the key and what was expected.
    """
    given = _object(content)
    for key in given:
        if key not in _KEYS:
            raise _wrong(f"key {_short(key)} is not known{did_you_mean(key, _KEYS)}")
    missing = [key for key in ("client", "pane", "model", "image", "size") if key not in given]
    if missing:
        raise _wrong(f"{missing[0]} is missing")
    if given["pane"] not in PANES:
        raise _wrong(f"pane {_short(given['pane'])}: expected {' or '.join(PANES)}")
    knob = given.get("knob")
    if knob is not None and (isinstance(knob, bool) or not isinstance(knob, int | float)):
        raise _wrong(f"knob {_short(knob)}: expected a number or null")
    try:
        knob = None if knob is None else float(knob)
    except OverflowError:
        knob = math.inf
    if knob is not None and not math.isfinite(knob):
        raise _wrong("knob: expected a finite number")
    wanted = ViewSpec(
        _whole(given["model"], "model", 1 << 10), _id(given["image"], "image"), _size(given["size"]), knob,
        _off(given.get("off", [])),
    )  # fmt: skip
    return Question(_id(given["client"], "client"), given["pane"], wanted)


def _object(content: bytes) -> dict[str, Any]:
    try:
        given = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise _wrong("the question is not JSON (expected: an object, each key once, finite numbers)") from None
    if not isinstance(given, dict):
        raise _wrong("the question is no JSON object")
    return given


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _id(value: Any, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID or not value.isprintable():
        raise _wrong(f"{what} {_short(value)}: expected a text of 1 to {_LONGEST_ID} letters")
    return value


def _whole(value: Any, what: str, below: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < below:
        raise _wrong(f"{what} {_short(value)}: expected a whole number from {least} to {below - 1}")
    return value


def _size(value: Any) -> Size:
    if value == "native":
        return NATIVE
    sides = value if isinstance(value, list) else [value, value]
    if isinstance(value, str) or len(sides) != 2:
        raise _wrong(f"size {_short(value)}: expected a side, [height, width] in pixels, or native")
    height, width = (_whole(side, "size", _LARGEST_SIDE + 1, 1) for side in sides)
    return height, width


def _off(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or len(value) > 1 << 12:
        raise _wrong(f"off {_short(value)}: expected a list of [layer, head]")
    pairs = set()
    for one in value:
        if not isinstance(one, list) or len(one) != 2:
            raise _wrong(f"off: {_short(one)} is no [layer, head]")
        pairs.add((_whole(one[0], "layer", 1 << 10), _whole(one[1], "head", 1 << 13)))
    return tuple(sorted(pairs))


def read_query(given: Sequence[tuple[str, str]], allowed: Collection[str]) -> dict[str, str | None]:
    """The words after the question mark, None for those that are not there.

    Raises:
        Refused: 400, there is one that is not known, or one twice.
    """
    found: dict[str, str | None] = dict.fromkeys(allowed)
    for key, value in given:
        if key not in found:
            raise _wrong(f"{_short(key)} is not known{did_you_mean(key, allowed)}")
        if found[key] is not None:
            raise _wrong(f"{key}: expected once")
        found[key] = value
    return found


def slot_of(text: str | None, cells: int, prefix: int) -> int:
    """The slot of the token that is asked about, prefix tokens first: `I` is a patch in row-major order, `prefix:K` a
    prefix token.

    Raises:
        Refused: 400, there is no such token.
    """
    text = "" if text is None else text
    of_prefix = text.startswith(_PREFIX)
    count = prefix if of_prefix else cells
    number = number_of(text.removeprefix(_PREFIX), "query", count)
    return number if of_prefix else prefix + number


def number_of(text: str | None, what: str, below: int) -> int:
    """A whole number from 0, written in digits.

    Raises:
        Refused: 400, it is none, or not below `below`.
    """
    text = "" if text is None else text
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) >= below:
        expected = f"0 to {below - 1}" if below else "none, for there is no such token"
        raise _wrong(f"{what} {_short(text)}: expected {expected}")
    return int(text)


def one_of(text: str | None, what: str, allowed: Collection[str]) -> str:
    """A word that is among those that are allowed.

    Raises:
        Refused: 400, it is not; names the nearest.
    """
    if text is None or text not in allowed:
        raise _wrong(f"{what} {_short(text)}: expected one of {', '.join(allowed)}{did_you_mean(text, allowed)}")
    return text


def _short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value) if isinstance(value, str) else str(value)[:60]
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong(said: str) -> HttpError:
    return HttpError(400, said)
