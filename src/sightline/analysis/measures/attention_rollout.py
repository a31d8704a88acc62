"""Which patches a token was made of, through all layers: attention rollout (Abnar and Zuidema 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.analysis.places import CENTRE, Place, cell_of, checked_place
from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.io.config import Entries, check_value
from sightline.models import Model
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

PREFIX = "prefix"
"""The query that is the first prefix token: CLS where there is one."""
Query = Place | str


class AttentionRollout(Measure):
    """The row of a query in the product over layers of (A + I) / 2, where A is the attention averaged over heads.

    The row times each layer from the last to the first: no product of two matrices is made, and memory grows with the
    tokens and not with their square. What a mask hides may still be reached through another patch, or through CLS.
    """

    name: ClassVar[str] = "attention_rollout"
    last_layer_first: ClassVar[bool] = True
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "rollout": MeasuredQuantity(
            ("image", "query", "row", "col"),
            "fraction",
            "rows: the queries; columns: patches, and what prefix tokens have is missing from the sum of 1; NaN where "
            "an image has no such patch: it was dropped, or lies beyond its grid",
            "maps",
        ),
        "to_prefix": MeasuredQuantity(
            ("image", "query"), "fraction", "what of the queries' rows prefix tokens have; rows: the queries"
        ),
        "queries": MeasuredQuantity(("query",), "", "what the queries are: places (y, x) of the image, or prefix"),
    }

    def __init__(self, model: Model, queries: Sequence[Query] | None = None) -> None:
        """Args: queries: places (y, x) from 0 to 1 of the image, or `prefix`; None is the centre, and the first prefix
        token where the model has one.

        Raises:
            InputError: a query is neither, or the model has no prefix token.
        """
        super().__init__(model)
        if queries is None:
            queries = (CENTRE, PREFIX) if model.num_prefix_tokens else (CENTRE,)
        check_value("attention_rollout: queries", queries, Entries)
        self.chosen = [one if one == PREFIX else checked_place("attention_rollout: query", one) for one in queries]
        if PREFIX in self.chosen and not model.num_prefix_tokens:
            raise InputError(
                "attention_rollout: query 'prefix': the model has no prefix token (expected places (y, x))"
            )
        self._layout: TokenLayout | None = None
        self._layer: int | None = None
        self._rows: list[Tensor] = []
        self._next: list[Tensor] = []
        self._found: list[tuple[np.ndarray, np.ndarray]] = []

    def begin(self, batch: Batch) -> None:
        layout = self._layout = batch.layout
        self._layer = None
        self._rows = [self._start(segment, layout) for segment in layout.segments]
        self._next = [torch.zeros_like(one) for one in self._rows]

    def _start(self, segment: Segment, layout: TokenLayout) -> Tensor:
        """One at each query's slot: float32 [rows, queries, slots of the image]."""
        prefix = layout.num_prefix_tokens
        indices = segment.indices.expand(layout.rows, -1)
        start = torch.zeros(layout.rows, len(self.chosen), prefix + segment.patches, device=indices.device)
        for number, query in enumerate(self.chosen):
            if isinstance(query, str):
                start[:, number, 0] = 1
                continue
            here = indices == cell_of(segment.grid, query)
            if not bool(here.any(1).all()):
                raise InputError(f"attention_rollout: query {query}: an image has not that patch: it was dropped")
            start[:, number, prefix:] = here.float()
        return start

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is None:
            return
        if block.layer != self._layer:
            self._through()
            self._layer = block.layer
        rows = block.images.to(self._rows[0].device) // len(self._rows)
        number = int(block.images[0]) % len(self._rows)
        asked = self._rows[number][rows, :, block.first : block.first + block.mean.shape[1]]
        self._next[number][rows] += asked @ block.mean

    def _through(self) -> None:
        """The layer whose attention was shown is done."""
        if self._layer is not None:
            for row, attended in zip(self._rows, self._next, strict=True):
                row.add_(attended).div_(2)
                attended.zero_()

    def end(self, tokens: Tensor, layout: TokenLayout) -> None:
        self._through()
        assert self._layout is not None
        prefix, images = self._layout.num_prefix_tokens, []
        for segment, rows in zip(self._layout.segments, self._rows, strict=True):
            grid = torch.full((*rows.shape[:2], segment.grid.cells), torch.nan, device=rows.device)
            where = segment.indices.unsqueeze(1).expand(rows.shape[0], rows.shape[1], -1)
            grid.scatter_(2, where, rows[..., prefix:])
            maps = grid.unflatten(2, tuple(segment.grid.planar(self.name))).double().cpu().numpy()
            images.append([*zip(maps, rows[..., :prefix].double().sum(-1).cpu().numpy(), strict=True)])
        # Images are counted row by row.
        self._found += [one for of_row in zip(*images, strict=True) for one in of_row]

    def arrays(self) -> dict[str, np.ndarray]:
        queries = len(self.chosen)
        sides = [max((one.shape[axis] for one, _ in self._found), default=0) for axis in (1, 2)]
        rollout = np.full((len(self._found), queries, *sides), np.nan)
        for number, (one, _) in enumerate(self._found):
            rollout[number, :, : one.shape[1], : one.shape[2]] = one
        to_prefix = np.array([one for _, one in self._found]).reshape(len(self._found), queries)
        return {"rollout": rollout, "to_prefix": to_prefix, "queries": np.array([_named(one) for one in self.chosen])}


def _named(query: Query) -> str:
    """What a query is called beside its maps."""
    return query if isinstance(query, str) else "centre" if query == CENTRE else f"{query[0]:g}, {query[1]:g}"
