"""Where queries look: attention maps, averaged over images (LookHere figures 8 and 18 to 27), and attention rollout
through all layers (Abnar and Zuidema 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.analysis.views import CENTRE, Place, cell_of, check_place
from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.io.config import Entries, check_value
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment, row_major_index

PREFIX = "prefix"
"""The query that is the first prefix token: CLS where there is one."""
Query = Place | str
_WORDS = (
    "averaged over images; rows: the query alone; columns: patches, as attention gives it: what prefix tokens get is "
    "missing from the sum of 1; 0 where masked, nothing where no image has the patch"
)


class AttentionMaps(Measure):
    """What a patch attends to by head and layer, what the first prefix token does, and what attention pooling does.

    All images of a size share one grid. An image whose patch that asks was dropped does not count for it.
    """

    name: ClassVar[str] = "attention_maps"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "map": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "fraction",
            f"of one patch, that in the middle unless the option query says another; {_WORDS}",
            "maps",
        ),
        "map_prefix": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "fraction",
            f"of the first prefix token, CLS where there is one, if the model has any; {_WORDS}",
            "maps",
        ),
        "pooling": MeasuredQuantity(
            ("head", "row", "col"), "fraction", f"of the probe of attention pooling, if the model has one; {_WORDS}"
        ),
    }

    def __init__(self, model: Model, query: Place = CENTRE) -> None:
        """Args: query: where the patch that asks stands, (y, x) from 0 to 1 of the image; else InputError."""
        super().__init__(model)
        self.query = check_place("attention_maps: query", query)
        self.grid: Grid | None = None
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}

    def begin(self, batch: Batch) -> None:
        for segment in batch.layout.segments:
            if self.grid is None:
                self.grid = segment.grid
            if segment.grid != self.grid:
                given, expected = (" x ".join(map(str, grid)) for grid in (segment.grid, self.grid))
                raise InputError(f"attention_maps: an image of {given} patches beside one of {expected} (expected one "
                                 "grid at a size: give sizes, not native)")  # fmt: skip

    def queries(self, segment: Segment, prefix: int) -> Sequence[int]:
        places = (segment.indices == cell_of(segment.grid, self.query)).nonzero()[:, 1] + prefix
        return [*([0] if prefix else []), *places.unique().tolist()]

    def attention(self, block: AttentionBlock) -> None:
        before, keys = block.prefix_queries, row_major_index(block.keys, block.grid)
        keys = keys.expand(len(block.images), -1)
        if before and block.first == 0:
            name = "pooling" if block.layer is None else "map_prefix"
            self._add(name, block.layer, block.attention[:, :, 0, block.prefix_keys :], keys)
        asks = row_major_index(block.queries, block.grid) == cell_of(block.grid, self.query)
        rows, places = asks.expand(len(block.images), -1).nonzero().unbind(-1)
        if len(rows):
            self._add("map", block.layer, block.attention[rows, :, places + before, block.prefix_keys :], keys[rows])

    def _add(self, name: str, layer: int | None, weights: Tensor, keys: Tensor) -> None:
        """Weights [images, heads, patches] of patches of these row-major indices [images, patches]."""
        assert self.grid is not None
        heads, layers = weights.shape[1], 1 if layer is None else self.model.config.depth
        if name not in self._sums:
            like = {"dtype": torch.float64, "device": weights.device}
            self._sums[name] = torch.zeros(layers, heads, self.grid.cells, **like)
            self._counts[name] = torch.zeros(layers, 1, self.grid.cells, **like)
        ones = torch.ones(1, keys.numel(), dtype=torch.float64, device=weights.device)
        self._counts[name][layer or 0].index_add_(1, keys.flatten(), ones)
        self._sums[name][layer or 0].index_add_(1, keys.flatten(), weights.double().transpose(0, 1).flatten(1))

    def arrays(self) -> dict[str, np.ndarray]:
        config, grid = self.model.config, (0, 0) if self.grid is None else tuple(self.grid)
        # Where no image had the patch that asks, nothing was added.
        found = {"map": np.full((config.depth, config.heads, *grid), np.nan)}
        for name, total in self._sums.items():
            array = (total / self._counts[name]).unflatten(-1, grid).cpu().numpy()
            found[name] = array[0] if name == "pooling" else array
        return found


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
            "rows: the queries; columns: patches, and what prefix tokens have is missing from the sum of 1; nothing "
            "where an image has no such patch: it was dropped, or lies beyond its grid",
            "maps",
        ),
        "to_prefix": MeasuredQuantity(
            ("image", "query"), "fraction", "what of the queries' rows prefix tokens have; rows: the queries"
        ),
        "queries": MeasuredQuantity(("query",), "", "what the queries are: places (y, x) of the image, or prefix"),
    }

    def __init__(self, model: Model, queries: Sequence[Query] | None = None) -> None:
        """Args: queries: places (y, x) from 0 to 1 of the image, or `prefix` (else InputError); None is the centre, and
        the first prefix token where the model has one."""
        super().__init__(model)
        if queries is None:
            queries = (CENTRE, PREFIX) if model.num_prefix_tokens else (CENTRE,)
        check_value("attention_rollout: queries", queries, Entries)
        self.chosen = [one if one == PREFIX else check_place("attention_rollout: query", one) for one in queries]
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
        names = [
            one if isinstance(one, str) else "centre" if one == CENTRE else f"{one[0]:g}, {one[1]:g}"
            for one in self.chosen
        ]
        return {"rollout": rollout, "to_prefix": to_prefix, "queries": np.array(names)}
