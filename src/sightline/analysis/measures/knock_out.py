"""What heads are worth: a head, or all that look one way, switched off, and what that does to the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sightline.analysis.analyse import inputs_of
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.attention.pattern import DirectedBias, FieldOfView
from sightline.data.batch import Batch
from sightline.errors import InputError, unknown_name_error
from sightline.io.config import Entries, check_value
from sightline.models import Model
from sightline.tokens.layout import TokenLayout

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
    depth, count = model.config.depth, model.config.heads
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        whole = type(layer) is int and type(head) is int
        if not whole or not (0 <= layer < depth and 0 <= head < count):
            expected = f"a layer from 0 to {depth - 1} and a head from 0 to {count - 1}"
            raise InputError(f"layer {layer}, head {head}: there is none (expected {expected})")
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
    layout = TokenLayout.uniform(config.train_grid.planar("directions"), 1, num_prefix_tokens=config.num_prefix_tokens)
    for layer in range(config.depth):
        pattern = model.encoding.hooks.pattern(layer, layout)
        terms = [one for one in (pattern.terms if pattern is not None else ()) if isinstance(one, DirectedBias)]
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
        words = []
        for degrees, width in views:
            word = _COMPASS[int(degrees / 22.5)] if degrees % 22.5 == 0 else f"{degrees:g} degrees"
            words.append(word + (f" {width:g}" if several else ""))
        named[" and ".join(words) or UNDIRECTED] = looking[views]
    return named


def _looks(view: FieldOfView) -> tuple[float, float]:
    """Where the middle of a field of view looks, in degrees clockwise from up, and its whole angle in degrees."""
    lengths = [math.hypot(*plane) for plane in view.planes]
    dy = sum(a / length for (a, _), length in zip(view.planes, lengths, strict=True))
    dx = sum(b / length for (_, b), length in zip(view.planes, lengths, strict=True))
    # Half of the angle between the two borders' normals, by the length of their sum.
    apart = math.degrees(2 * math.acos(min(1.0, math.hypot(dy, dx) / len(view.planes))))
    width = 180 - apart if view.join == "all" else 180 + apart
    return round(math.degrees(math.atan2(dx, -dy)) % 360, 3) % 360, round(width, 3)


_HEADS, _DIRECTIONS = ("image", "layer", "head"), ("image", "direction")
_WORDS = {
    "loss": ("nats", "how much the softmax cross entropy of the image's label grows; below 0, it hurt"),
    "top1": ("", "1 where only then the answer is right, -1 where only then it is wrong, else 0"),
    "divergence": ("nats", "of the answer from the whole model's: the sum over classes of p log(p / q)"),
    "changed": ("fraction", "1 where the answer is another class than the whole model's, else 0"),
}
_OF_LABELS = ("loss", "top1", "whole_")
_SWITCHED = {"": (_HEADS, "a head is switched off"), "_of_direction": (_DIRECTIONS, "all heads of a view are")}


class KnockOut(Measure):
    """What a head is worth: its output, at patches and prefix tokens alike, is zero, and the answer is another.

    Of heads that a mask keeps from most of an image too: they are switched off as a whole. For every head the layers
    from its own on are run again, heads x (depth + 1) / 2 passes beside three whole ones, and a pass for each
    direction; of a layer only its input is kept.

    Attributes:
        of: `heads` one by one, and `directions`: all heads of all layers that share a field of view (`directions`).
    """

    name: ClassVar[str] = "knock_out"
    by_default: ClassVar[bool] = False
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        **{
            name + suffix: MeasuredQuantity(axes, unit, f"{what}, when {which}", "layers" if axes is _HEADS else "")
            for suffix, (axes, which) in _SWITCHED.items()
            for name, (unit, what) in _WORDS.items()
        },
        "directions": MeasuredQuantity(("direction",), "", "what the directions are called, clockwise from up"),
        "whole_loss": MeasuredQuantity(
            ("image",), "nats", "the softmax cross entropy of the image's label, of the whole model"
        ),
        "whole_top1": MeasuredQuantity(("image",), "", "1 where the whole model's answer is right, else 0"),
    }

    def __init__(self, model: Model, *, of: Sequence[str] = ("heads", "directions")) -> None:
        super().__init__(model)
        self.check(model)
        check_value("knock_out: of", of, Entries)
        for one in of:
            if one not in ("heads", "directions"):
                raise unknown_name_error("knock_out: of", one, ("heads", "directions"))
        self.of = tuple(of)
        self.directions = directions(model)
        shapes: dict[str, tuple[int, ...]] = {"whole_loss": (), "whole_top1": ()}
        if "heads" in of:
            shapes |= dict.fromkeys(_WORDS, (model.config.depth, model.config.heads))
        if "directions" in of:
            shapes |= {f"{name}_of_direction": (len(self.directions),) for name in _WORDS}
        self.seen = {name: [np.zeros((0, *shape))] for name, shape in shapes.items()}

    @classmethod
    def check(cls, model: Model) -> None:
        config = model.config
        if not config.has_classifier or not model.num_classes:
            head = f"head {config.head}" if not config.has_classifier else "no classes"
            raise InputError(f"knock_out: the model is no classifier: {head} (expected head linear or mlp, of classes)")
        for layer in range(config.depth):
            _attention(model, layer)

    def begin(self, batch: Batch) -> None:
        model, depth, heads = self.model, self.model.config.depth, self.model.config.heads
        rows, layout = model.in_attention_order(inputs_of(model, batch), batch.layout)
        first = tokens = model.embed(rows, layout)
        whole = _Whole(self._answers(first, 0, layout), batch.targets.get("labels", batch.targets.get("label")))
        self._add("whole_loss", whole.loss.unsqueeze(0))
        self._add("whole_top1", whole.top1.unsqueeze(0))
        if "directions" in self.of:
            found = []
            for some in self.directions.values():
                with switched_off(model, some):
                    found.append(whole.against(self._answers(first, 0, layout)))
            for name in _WORDS:
                self._add(f"{name}_of_direction", torch.stack([one[name] for one in found]))
        if "heads" in self.of:
            found = []
            for layer in range(depth):
                for head in range(heads):
                    with switched_off(model, [(layer, head)]):
                        found.append(whole.against(self._answers(tokens, layer, layout)))
                tokens = model.blocks.layer(layer, tokens, layout, model.encoding.hooks)
            for name in _WORDS:
                self._add(name, torch.stack([one[name] for one in found]))

    def _add(self, name: str, values: Tensor) -> None:
        """Keep values [what was switched off, images]."""
        each = self.seen[name]
        each.append(values.T.double().cpu().numpy().reshape(-1, *each[0].shape[1:]))

    def _answers(self, tokens: Tensor, first: int, layout: TokenLayout) -> Tensor:
        """The logarithm of the softmax over classes, float64 [images, classes], of what enters the layer `first`."""
        model = self.model
        for layer in range(first, model.config.depth):
            tokens = model.blocks.layer(layer, tokens, layout, model.encoding.hooks)
        return model.head(model.pool(model.norm(tokens), model.encoded_layout(layout))).double().log_softmax(-1)

    def arrays(self) -> dict[str, np.ndarray]:
        found = {name: np.concatenate(parts) for name, parts in self.seen.items()}
        if "directions" in self.of:
            found["directions"] = np.array(list(self.directions))
        # Of images of which no label was said there is neither loss nor top-1.
        unknown = {name for name in found if name.startswith(_OF_LABELS) and np.isnan(found[name]).all()}
        return {name: array for name, array in found.items() if name not in unknown}


class _Whole:
    """What the whole model answers, and what is said of another answer to the same images."""

    def __init__(self, answers: Tensor, labels: Tensor | None) -> None:
        self.answers, self.labels = answers, labels
        self.loss, self.top1 = self._judged(answers)

    def _judged(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        if self.labels is None:
            unknown = answers.new_full((len(answers),), torch.nan)
            return unknown, unknown
        loss = -answers.gather(1, self.labels.unsqueeze(1)).squeeze(1)
        return loss, (answers.argmax(-1) == self.labels).double()

    def against(self, answers: Tensor) -> dict[str, Tensor]:
        """The values [images] of `_WORDS`, of answers [images, classes]."""
        loss, top1 = self._judged(answers)
        return {
            "loss": loss - self.loss,
            "top1": top1 - self.top1,
            "divergence": (self.answers.exp() * (self.answers - answers)).sum(-1),
            "changed": (self.answers.argmax(-1) != answers.argmax(-1)).double(),
        }
