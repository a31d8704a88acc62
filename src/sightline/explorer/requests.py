"""What the page asks for: a view in JSON, and the words of a query."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sightline.analysis.images import NATIVE, Size
from sightline.errors import InputError, require_known
from sightline.io.config import Index, Number, build_config, check_value, config_dataclass, whole

_PREFIX = "prefix:"


def _both_sides(value: Any) -> Any:
    return NATIVE if value == "native" else (value, value) if isinstance(value, int) else value


def _each_once(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(set(pairs)))


Name = Annotated[str, Field(min_length=1, max_length=64)]
Side = Annotated[int, Field(ge=1, le=1 << 20)]
ViewSize = Literal["native"] | Side | tuple[Side, Side]
Heads = Annotated[tuple[tuple[Index, Index], ...], AfterValidator(_each_once)]


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


@config_dataclass
class ViewRequest:
    """A view that is wanted, for which pane of which page; fields as `ViewSpec`, and `size` as a side, [height, width]
    or "native"."""

    client: Name
    pane: Literal["left", "right"]
    model: Index
    image: Name
    size: ViewSize
    knob: Number | None = None
    off: Heads = ()

    @property
    def wanted(self) -> ViewSpec:
        """The view, by which it is found again."""
        return ViewSpec(self.model, self.image, _both_sides(self.size), self.knob, self.off)


def read_request(content: bytes) -> ViewRequest:
    """The body of a request for a view; what hangs on the model is checked where that is known.

    Raises:
        InputError: it is not one; names the key, and what was expected.
    """
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InputError("view: expected a JSON object")
    return build_config(ViewRequest, given, "view")


def read_query(given: Mapping[str, str], allowed: Collection[str]) -> dict[str, str | None]:
    """The words after the question mark, None for those that are not there.

    Raises:
        InputError: there is one that is not known.
    """
    for key in given:
        require_known("query", key, allowed)
    return {key: given.get(key) for key in allowed}


def slot_of(text: str | None, cells: int, prefix: int) -> int:
    """The slot of the token that is asked about, prefix tokens first: `I` is a patch in row-major order, `prefix:K` a
    prefix token.

    Raises:
        InputError: there is no such token.
    """
    number, of_prefix = (text or "").removeprefix(_PREFIX), (text or "").startswith(_PREFIX)
    found = number_of(number, "query", prefix if of_prefix else cells)
    return found if of_prefix else prefix + found


def number_of(text: str, name: str, below: int) -> int:
    """A whole number from 0 to below `below`, written in digits.

    Raises:
        InputError: it is none.
    """
    if below < 1:
        raise InputError(f"{name} {text}: there is no such token", field=name, value=text)
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
    return check_value(name, number, whole(0, below - 1))
