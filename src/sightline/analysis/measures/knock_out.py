"""What heads are worth: a head, or all that look one way, switched off, and what that does to the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.pattern import Directed, View
from sightline.errors import InputError, choose
from sightline.layout import TokenLayout
from sightline.models import Model

Head = tuple[int, int]
"""(layer, head), both from 0."""

UNDIRECTED = "undirected"
_COMPASS = (
    "up", "up-up-right", "up-right", "right-up-right", "right", "right-down-right", "down-right", "down-down-right",
    "down", "down-down-left", "down-left", "left-down-left", "left", "left-up-left", "up-left", "up-up-left",
)  # fmt: skip
# What is switched off in this context: hooks are the model's, and another thread's pass is no business of theirs.
_OFF: ContextVar[tuple[object, ...]] = ContextVar("sightline_switched_off", default=())


@contextmanager
def switched_off(model: Model, heads: Sequence[Head]) -> Iterator[None]:
    """Inside, the outputs of some heads are zero: attention's sum of values, before its norm and projection.

    What the projection adds to all tokens (its bias) stays. Nested, what either names is off. It holds in this context
    alone (as `recording`: other threads compute the whole model), for every layout, whoever watches or records; no
    compiled program is looked into. Afterwards, after an exception too, the model is as it was.

    Args:
        heads: (layer, head), both from 0; none switches nothing off.

    Raises:
        InputError: there is no such head (names those that there are), or the layer's attention is of another kind.
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        _check_head(model, layer, head)
        by_layer.setdefault(layer, []).append(head)
    here = object()
    with ExitStack() as hooks:
        for layer, some in by_layer.items():
            attention = _attention(model, layer)

            def silence(_: nn.Module, given: tuple[Tensor], some=tuple(some), count=attention.num_heads) -> Any:
                if here not in _OFF.get():
                    return None
                by_head = given[0].unflatten(-1, (count, -1))
                off = torch.zeros(count, 1, dtype=torch.bool, device=by_head.device)
                off[list(some)] = True
                # Filled, not multiplied: a NaN times 0 is a NaN.
                return (by_head.masked_fill(off, 0).flatten(-2),)

            hooks.callback(attention.norm.register_forward_pre_hook(silence).remove)
        token = _OFF.set((*_OFF.get(), here))
        try:
            yield
        finally:
            _OFF.reset(token)


def _check_head(model: Model, layer: Any, head: Any) -> None:
    depth, count = model.config.depth, model.config.heads
    whole = type(layer) is int and type(head) is int
    if not whole or not (0 <= layer < depth and 0 <= head < count):
        raise InputError(
            f"layer {layer}, head {head}: there is none (expected a layer from 0 to {depth - 1} and a head from 0 to "
            f"{count - 1})"
        )


def _attention(model: Model, layer: int) -> Any:
    attention = getattr(model.blocks[layer], "attn", None)
    if not isinstance(getattr(attention, "norm", None), nn.Module) or not hasattr(attention, "num_heads"):
        raise InputError(
            f"architecture {model.name}: layer {layer} has no attention whose heads can be switched off (expected "
            "`attn.norm` of all heads' outputs and `attn.num_heads`)"
        )
    return attention


def directions(model: Model) -> dict[str, list[Head]]:
    """Which heads share a field of view, as the pattern of each layer says it.

    A view is named by where its middle looks (`up`, `up-right`, `right`, ...; between those `up-up-right`, ... and
    otherwise degrees clockwise from up), with its angle in degrees where one direction has several. Heads that see all
    are `undirected`: all of a model whose encoding has no fields of view.

    Returns:
        By name the heads (layer, head), clockwise from up, the undirected ones last.
    """
    looking: dict[tuple[tuple[float, float], ...], list[Head]] = {}
    config = model.config
    layout = TokenLayout.uniform(config.train_grid, 1, num_prefix_tokens=config.num_prefix_tokens)
    for layer in range(config.depth):
        pattern = model.encoding.pattern(layer, layout)
        terms = [one for one in (pattern.terms if pattern is not None else ()) if isinstance(one, Directed)]
        for head in range(config.heads):
            views = [one.views[head] for one in terms if one.views[head].planes]
            looking.setdefault(tuple(sorted({_looks(view) for view in views})), []).append((layer, head))
    widths: dict[tuple[float, ...], int] = {}
    for views in looking:
        towards = tuple(direction for direction, _ in views)
        widths[towards] = widths.get(towards, 0) + 1
    named = {}
    for views in sorted(looking, key=lambda views: (not views, views)):
        several = widths[tuple(direction for direction, _ in views)] > 1
        words = [_word(direction) + (f" {width:g}" if several else "") for direction, width in views]
        named[" and ".join(words) or UNDIRECTED] = looking[views]
    return named


def heads_of_direction(model: Model, direction: str) -> list[Head]:
    """The heads (layer, head) that look one way; see `directions`.

    Raises:
        InputError: no head of this model does; names the directions that there are.
    """
    found = directions(model)
    if direction not in found:
        raise choose("direction", direction, found)
    return found[direction]


def _looks(view: View) -> tuple[float, float]:
    """Where the middle of a field of view looks, in degrees clockwise from up, and its whole angle in degrees."""
    lengths = [math.hypot(*plane) for plane in view.planes]
    dy = sum(a / length for (a, _), length in zip(view.planes, lengths, strict=True))
    dx = sum(b / length for (_, b), length in zip(view.planes, lengths, strict=True))
    # Half of the angle between the two borders' normals, by the length of their sum.
    apart = math.degrees(2 * math.acos(min(1.0, math.hypot(dy, dx) / len(view.planes))))
    width = 180 - apart if view.join == "all" else 180 + apart
    return round(math.degrees(math.atan2(dx, -dy)) % 360, 3) % 360, round(width, 3)


def _word(degrees: float) -> str:
    place = degrees / 22.5
    return _COMPASS[int(place)] if place == int(place) else f"{degrees:g} degrees"
