"""A model as the explorer holds it: what it is, and what a pass of one image through it gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.analyse import run_pass
from sightline.analysis.images import NATIVE, Size
from sightline.analysis.measures.base import Measure
from sightline.analysis.measures.knock_out import directions, switched_off
from sightline.attention.dispatch import AttentionRecord, record_attention
from sightline.data.batch import Batch, collate_uniform
from sightline.data.crops import apply_crop
from sightline.data.preprocessing import preprocessing
from sightline.encodings import Knob
from sightline.errors import InputError
from sightline.explorer.errors import HttpError
from sightline.explorer.limits import MAX_TOKENS, NATIVE_TOKENS, SHORTEST_SIDES
from sightline.explorer.requests import ViewSpec
from sightline.models import Model
from sightline.tasks.classification import scores_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import check_channels, nearest_multiples, to_channels

TOP = 5
# Of the side that a model was trained at.
_SIDES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
Check = Callable[[], None]
Classes = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class PassResult:
    """What is kept of a pass, all float32 and where the model is, with patches in row-major order.

    Attributes:
        picture: uint8 [height, width, 3], what the model was shown.
        calls: of each layer its queries and keys [1, heads, slots, head_dim] and the pattern, without values.
        tokens: of each layer its output before the final norm: [slots, dim].
        classes: the most probable ones.
        whole: the same with nothing switched off, where something is.
        seconds: of the pass.
    """

    grid: Grid
    picture: np.ndarray
    calls: list[AttentionRecord]
    tokens: list[Tensor]
    classes: Classes
    whole: Classes | None
    seconds: float

    @property
    def nbytes(self) -> int:
        """What it takes."""
        tensors = [*self.tokens, *(one for call in self.calls for one in (call.q, call.k))]
        return self.picture.nbytes + sum(one.nbytes for one in tensors)


class ExplorerModel:
    """A model to look into; one pass at a time.

    Attributes:
        prefix: what its prefix tokens are called.
    """

    def __init__(self, model: Model, name: str, most_bytes: int) -> None:
        """Args:
        most_bytes: that views may take, of which one must fit.

        Raises:
            InputError: it is of a kind that cannot be shown.
        """
        config = model.config
        check_channels(config.channels, name)
        if len(config.train_grid) != 2:
            raise InputError(f"{name}: has grids of {len(config.train_grid)} axes (expected 2: rows and columns)")
        self.model, self.name, self.lock = model, name, threading.Lock()
        width = config.head_dim * config.heads if config.head_dim else config.dim
        pixels = 3 * config.patch_size**2
        self._slot_bytes = 4 * config.depth * (2 * width + config.dim) + pixels
        self.max_tokens = min(MAX_TOKENS, most_bytes // self._slot_bytes - model.num_prefix_tokens)
        if self.max_tokens < config.train_grid.cells:
            needed = -(-(config.train_grid.cells + model.num_prefix_tokens) * self._slot_bytes // 2**20)
            raise InputError(
                f"--max-mib {most_bytes >> 20}: a view of {name} takes {needed} MiB at the size of its training"
            )
        classes = ["class"] if config.has_class_token else []
        others = range(1, model.num_prefix_tokens - len(classes) + 1)
        self.prefix = [*classes, *(f"register {number}" for number in others)]

    def said(self, number: int, overlays: Sequence[str]) -> dict[str, Any]:
        """What the page is told of it."""
        config, knob = self.model.config, self.model.knob
        return {
            "id": number,
            "name": self.name,
            "encoding": config.encoding,
            "depth": config.depth,
            "heads": config.heads,
            "patch_size": config.patch_size,
            "image_size": list(Grid.checked(config.image_size)),
            "prefix": self.prefix,
            "knob": None if knob is None else _slider(knob),
            "directions": {name: [list(head) for head in heads] for name, heads in directions(self.model).items()},
            "classes": self.model.num_classes if config.has_classifier else 0,
            "overlays": list(overlays),
            "sizes": self._sizes(),
        }

    def _sizes(self) -> list[int]:
        """Sides in pixels that are worth a look."""
        patch, trained = self.model.config.patch_size, max(Grid.checked(self.model.config.image_size))
        cells = {max(round(trained * times / patch), SHORTEST_SIDES) for times in _SIDES}
        return sorted(side * patch for side in cells if side * side <= self.max_tokens)

    def check(self, wanted: ViewSpec) -> None:
        """What can be refused before anything is computed.

        Raises:
            InputError: says what is right.
        """
        config, knob = self.model.config, self.model.knob
        if wanted.knob is not None and (knob is None or not knob.low <= wanted.knob <= knob.high):
            expected = f"{knob.low:g} to {knob.high:g}" if knob else "null, for its encoding has none"
            raise InputError(f"knob {wanted.knob:g}: expected {expected}")
        for layer, head in wanted.off:
            if layer >= config.depth or head >= config.heads:
                raise InputError(f"layer {layer}, head {head}: {self.name} has {config.depth} x {config.heads}")
        if wanted.size == NATIVE:
            return
        patch = config.patch_size
        right = [nearest_multiples(side, patch) for side in wanted.size]
        if config.fit == "exact" and any(side % patch for side in wanted.size):
            near = " or ".join(map(str, right[0])) if wanted.size[0] == wanted.size[1] else _near(right)
            raise InputError(f"size {_sides(wanted.size)}: the patch of {patch} does not divide it (nearest: {near})")
        self._check_tokens(Grid(*(-(-side // patch) for side in wanted.size)), _sides(wanted.size))

    def _check_tokens(self, grid: Grid, asked: str) -> None:
        patch = self.model.config.patch_size
        if grid.cells > self.max_tokens:
            part = (self.max_tokens / grid.cells) ** 0.5
            fits = [max(int(side * part), 1) * patch for side in grid]
            raise InputError(
                f"size {asked}: {grid.cells} patches are more than {self.max_tokens} "
                f"(largest of this shape: {fits[0]}x{fits[1]})",
            )

    def seen(self, pixels: np.ndarray, wanted: ViewSpec, check: Check, whole: Classes | None = None) -> PassResult:
        """One image through the model, of a view that `check` lets through.

        Args:
            pixels: uint8 [height, width, 3].
            check: called between layers; raises where the view is wanted no more.
            whole: the classes with nothing switched off, where they are known; else they take a pass of their own.

        Raises:
            HttpError: 500, its numbers are not finite; what `check` raises.
        """
        prepare, size = preprocessing(self.model), (pixels.shape[0], pixels.shape[1])
        if wanted.size == NATIVE:
            crop = prepare.crop_of(size, "native", min(self.max_tokens, NATIVE_TOKENS))
        else:
            crop = prepare.crop_of(size, wanted.size)
        picture = apply_crop(pixels, crop, prepare.interpolation)
        rows, grid = self.model.image_rows(picture)
        shown = self.model.image_rows.patchifier.valid_size(*picture.shape[:2])
        arranged = collate_uniform([rows], [grid], [None], self.model.num_prefix_tokens, [shown])
        batch = Batch(*arranged, {}, torch.zeros(1, dtype=torch.int64), ["image"], [{}])
        with self.lock, self._knob(wanted.knob):
            check()
            started = time.perf_counter()
            kept = _Kept(self.model, check)
            with switched_off(self.model, wanted.off), record_attention(kept.called):
                classes = self._classes(run_pass(self.model, batch, [kept]), batch.layout)
            seconds = time.perf_counter() - started
            if wanted.off and whole is None:
                whole = self._classes(run_pass(self.model, batch, [_Checked(self.model, check)]), batch.layout)
        # Three equal channels of a grey one.
        picture = np.broadcast_to(to_channels(picture, self.model.config.channels), picture.shape)
        return PassResult(grid, picture, kept.calls, kept.outputs, classes, whole if wanted.off else None, seconds)

    @contextmanager
    def _knob(self, value: float | None) -> Iterator[None]:
        """The encoding's knob at another value, and afterwards as it was."""
        knob = self.model.knob
        if value is None or knob is None:
            yield
            return
        self.model.set_knob(value)
        try:
            yield
        finally:
            self.model.set_knob(knob.value)

    @torch.inference_mode()
    def _classes(self, tokens: Tensor, layout: TokenLayout) -> Classes:
        """The most probable ones of tokens after the final norm; none where the model is no classifier.

        Raises:
            HttpError: 500, its numbers are not finite.
        """
        model, config = self.model, self.model.config
        if not bool(tokens.isfinite().all()):
            raise HttpError(500, f"{self.name}: its tokens for this view are not finite")
        if not config.has_classifier or not model.num_classes or model.attn_pool is None:
            return []
        logits = model.head(model.pool(tokens, model.encoded_layout(layout.to(tokens.device))))[0].float()
        if not bool(logits.isfinite().all()):
            raise HttpError(500, f"{self.name}: its logits for this view are not finite")
        best = scores_of(logits, config.score_link).topk(min(TOP, model.num_classes))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"name": self.class_name(index), "probability": score} for index, score in pairs]

    def class_name(self, index: int) -> str:
        """What a class is called; of classes that share a name, which one it is."""
        names = self.model.config.class_names
        if names is None:
            return f"class {index}"
        return names[index] if names.count(names[index]) == 1 else f"{names[index]} (class {index})"


class _Checked(Measure):
    """Looks at nothing, and ends a pass that is wanted no more."""

    def __init__(self, model: Model, check: Check) -> None:
        super().__init__(model)
        self.wanted = check

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        self.wanted()

    def arrays(self) -> dict[str, np.ndarray]:
        return {}


class _Kept(_Checked):
    """Keeps what a pass shows."""

    def __init__(self, model: Model, check: Check) -> None:
        super().__init__(model, check)
        self.calls: list[AttentionRecord] = []
        self.outputs: list[Tensor] = []

    def called(self, call: AttentionRecord) -> None:
        """A layer's attention, before it is computed."""
        if call.layer is None:
            return
        layout = call.keys
        if len(layout.segments) != 1 or not layout.segments[0].complete or layout.segments[0].window is not None:
            raise InputError(f"{self.model.name}: layer {call.layer} does not attend to whole images")
        whole = TokenLayout.uniform(
            layout.segments[0].grid, 1, num_prefix_tokens=layout.num_prefix_tokens, device=layout.device
        )
        q, k = (_own(layout.to_row_major(one.transpose(1, 2)).transpose(1, 2)) for one in (call.q, call.k))
        self.calls.append(replace(call, q=q, k=k, v=k[..., :0], keys=whole, queries=whole))

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        super().tokens(layer, tokens, layout)
        if layer >= 0:
            self.outputs.append(_own(tokens[0]))


def _own(x: Tensor) -> Tensor:
    """Apart from the tensor that it is a part of, as queries are of queries, keys and values together."""
    return x.detach().float().contiguous()


def _slider(knob: Knob) -> dict[str, Any]:
    """Between which values a knob is worth turning: around those that a search tries, not all that are accepted."""
    tried = (*knob.candidates, knob.value, knob.default)
    low, high = max(min(tried) / 2, knob.low), min(max(tried) * 2, knob.high)
    return {"name": knob.name, "value": knob.value, "low": min(low, knob.value), "high": max(high, knob.value)}


def _sides(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _near(right: Sequence[Sequence[int]]) -> str:
    """The sizes around one, height before width."""
    return " or ".join(_sides((height, width)) for height in right[0] for width in right[1])
