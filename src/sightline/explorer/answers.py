"""What the page is told of a view: attention, fields of view and overlays, as JSON with arrays in base64.

Arrays are little-endian and in C order. No web library here: these are functions of what is kept of a pass.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import attention_blocks
from sightline.analysis.measures.attention_maps import CENTRE, AttentionRollout
from sightline.analysis.measures.logit_lens import check_classifier, lens, probabilities
from sightline.analysis.measures.patch_colours import colours_of
from sightline.analysis.one_query import attention_of, visible_to
from sightline.data.batch import Batch
from sightline.errors import InputError, require_known
from sightline.explorer.models import Check, ExplorerModel, PassResult
from sightline.explorer.requests import number_of, slot_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

OVERLAYS = ("lens", "colours", "rollout", "norms")
LONG = ("rollout",)
"""Overlays that take as long as a pass, or longer."""


def overlays_of(subject: ExplorerModel) -> list[str]:
    """Those that a model allows."""
    try:
        check_classifier(subject.model, "lens")
    except InputError:
        return [kind for kind in OVERLAYS if kind != "lens"]
    return list(OVERLAYS)


@torch.inference_mode()
def attention(seen: PassResult, query: str | None) -> dict[str, Any]:
    """Where one token looks, in every layer and head.

    `maps` float32 [layers, heads, rows, cols] is its attention to patches, `prefix` float32 [layers, heads, prefix
    tokens] the rest; `distance` [layers][heads] is how far it looks, the distance to patches in cells weighted by
    attention to them (which is scaled to sum to 1), null for a prefix token, which stands nowhere.

    Raises:
        InputError: there is no such token.
    """
    slot, before = _slot(seen, query)
    rows = torch.stack([attention_of(call, slot) for call in seen.calls])
    to_patches = rows[..., before:]
    distance = None
    if slot >= before:
        away = _away(seen.grid, slot - before).to(to_patches.device)
        total = to_patches.sum(-1)
        # What a query gives to patches may round to nothing; it then looks at none.
        distance = torch.where(total > 0, to_patches @ away / total, 0).tolist()
    return {
        **_shape(seen.grid, rows),
        "maps": _text(to_patches, "<f4"),
        "prefix": _text(rows[..., :before], "<f4"),
        "distance": distance,
    }


@torch.inference_mode()
def field(seen: PassResult, query: str | None) -> dict[str, Any]:
    """Which patches one token may attend to: `visible` uint8 [layers, heads, rows, cols], 1 where it may; raises as
    `attention`."""
    slot, before = _slot(seen, query)
    visible = torch.stack([visible_to(call, slot) for call in seen.calls])[..., before:]
    return {**_shape(seen.grid, visible), "visible": _text(visible, "u1")}


@torch.inference_mode()
def overlay(
    subject: ExplorerModel,
    seen: PassResult,
    kind: str | None,
    layer: str | None,
    query: str | None,
    check: Check = lambda: None,
) -> dict[str, Any]:
    """Something of each patch, to be laid over the picture.

    `lens`: the class that each patch says by itself, and how surely. `colours`: its features' first three principal
    components. `norms`: the length of its vector after the layer. `rollout`: what of it reached the query through all
    layers up to `layer`; it alone takes long, goes through all pairs of tokens, and calls `check` as it goes.

    Raises:
        InputError: the kind, the layer or the query is none that there is.
    """
    require_known("kind", kind, overlays_of(subject))
    depth = len(seen.calls)
    number = depth - 1 if layer is None else number_of(layer, "layer", depth)
    about = {"rows": seen.grid.rows, "cols": seen.grid.cols, "layer": number}
    patches = seen.tokens[number][seen.calls[0].keys.num_prefix_tokens :]
    if kind == "lens":
        return {**about, **_lens(subject, seen, patches)}
    if kind == "colours":
        return {**about, "colours": _text((colours_of(patches, seen.grid) * 255).round(), "u1")}
    if kind == "norms":
        return {**about, "values": _text(patches.norm(dim=-1), "<f4")}
    slot, _ = _slot(seen, query)
    return {**about, "values": _text(_rollout(subject, seen, number, slot, check), "<f4")}


class _FromSlot(AttentionRollout):
    """Of one token, whichever it is."""

    def __init__(self, subject: ExplorerModel, slot: int) -> None:
        super().__init__(subject.model, [CENTRE])
        self._slot = slot

    def _start(self, segment: Segment, layout: TokenLayout) -> Tensor:
        start = torch.zeros(1, 1, layout.num_prefix_tokens + segment.patches, device=layout.device)
        start[..., self._slot] = 1
        return start


def _rollout(subject: ExplorerModel, seen: PassResult, layer: int, slot: int, check: Check) -> np.ndarray:
    """What of each patch reached a token up to a layer: float64 [rows, cols]."""
    measure, layout = _FromSlot(subject, slot), seen.calls[0].keys
    measure.begin(Batch(torch.empty(1, 0, 0), layout, {}, torch.zeros(1, dtype=torch.int64), ["image"], [{}]))
    for call in reversed(seen.calls[: layer + 1]):
        for block in attention_blocks(call):
            check()
            measure.attention(block)
    measure.end(seen.tokens[layer].unsqueeze(0), layout)
    return measure.arrays()["rollout"][0, 0]


def _lens(subject: ExplorerModel, seen: PassResult, patches: Tensor) -> dict[str, Any]:
    model = subject.model
    anchor = model.anchor
    layout = TokenLayout.uniform(seen.grid, 1, num_prefix_tokens=0, device=anchor.device)
    logits = lens(model, patches.unsqueeze(0).to(anchor.device, anchor.dtype), layout)[0]
    which = logits.argmax(-1)
    surest = probabilities(model, logits).gather(-1, which.unsqueeze(-1)).squeeze(-1)
    # Of a thousand classes a picture shows some.
    used, index = which.unique(return_inverse=True)
    names = [subject.class_name(one) for one in used.tolist()]
    return {"names": names, "index": _text(index, "<i4"), "probability": _text(surest, "<f4")}


def _slot(seen: PassResult, query: str | None) -> tuple[int, int]:
    """The slot that is asked about, and how many prefix tokens stand first."""
    before = seen.calls[0].keys.num_prefix_tokens
    return slot_of(query, seen.grid.cells, before), before


def _shape(grid: Grid, values: Tensor) -> dict[str, int]:
    return {"layers": values.shape[0], "heads": values.shape[1], "rows": grid.rows, "cols": grid.cols}


def _away(grid: Grid, patch: int) -> Tensor:
    """Euclidean, from one patch to each, in cells: float32 [cells]."""
    row, col = divmod(patch, grid.cols)
    y, x = torch.arange(grid.rows) - row, torch.arange(grid.cols) - col
    return (y.square().unsqueeze(1) + x.square()).float().sqrt().flatten()


def _text(values: Tensor | np.ndarray, kind: str) -> str:
    array = values.cpu().numpy() if isinstance(values, Tensor) else values
    return base64.b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode("ascii")
