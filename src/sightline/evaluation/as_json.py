"""What metrics keep and what is drawn, as JSON has it and back, to the last bit: never pickles."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
from PIL import Image


def dumped(value: Any) -> str:
    """A tree of numbers, texts, lists, tuples, groups, arrays of numpy and pictures, on one line.

    Raises:
        TypeError: something else is in it.
    """
    return json.dumps(_plain(value))


def loaded(text: str | bytes) -> Any:
    """The inverse of `dumped`."""
    return _back(json.loads(text))


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    # Groups of one key, so that nothing in a tree is taken for them: its own groups are lists of pairs.
    if isinstance(value, tuple):
        return {"tuple": [_plain(one) for one in value]}
    if isinstance(value, dict):
        return {"group": [[_plain(key), _plain(one)] for key, one in value.items()]}
    content = io.BytesIO()
    if isinstance(value, np.ndarray | np.generic):
        try:
            np.save(content, value, allow_pickle=False)
        except ValueError:
            raise TypeError("an array of objects") from None
        return {"array": base64.b64encode(content.getvalue()).decode()}
    if isinstance(value, Image.Image):
        value.save(content, format="PNG")
        return {"picture": base64.b64encode(content.getvalue()).decode()}
    raise TypeError(type(value).__name__)


def _back(value: Any) -> Any:
    if isinstance(value, list):
        return [_back(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_back(one) for one in inner)
    if kind == "group":
        return {_back(key): _back(one) for key, one in inner}
    content = io.BytesIO(base64.b64decode(inner))
    if kind == "array":
        # A number of numpy is an array without axes.
        return np.load(content, allow_pickle=False)[()]
    picture = Image.open(content)
    picture.load()
    return picture
