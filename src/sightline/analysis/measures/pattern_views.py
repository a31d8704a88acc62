"""What each head may see, and at what penalty, as the encoding says it (LookHere section 3, figures 2 and 9 to 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import WeightMeasure, refuse_larger
from sightline.analysis.views import CENTRE, Place, bias_matrix, cell_of, check_place, require_bias, visible_from
from sightline.models import Model
from sightline.tokens.grid import Grid

_WORDS = "of one patch that asks; prefix tokens, which it always sees, are no columns"


class FieldsOfView(WeightMeasure):
    """Which patches of a grid one of them may attend to, in each head of each layer, and what is added to the scores.

    It is what the encoding says, whatever the image shows.
    """

    name: ClassVar[str] = "fields_of_view"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "visible": MeasuredQuantity(("layer", "head", "row", "col"), "", f"whether it may be attended to; {_WORDS}"),
        "bias": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "",
            f"what is added to the score before the softmax, -inf where it is masked; {_WORDS}",
        ),
        "weight": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "fraction",
            f"exp(bias), at most 1: what a score is worth beside one that is not penalised, 0 where masked; {_WORDS}",
            "maps",
        ),
        "visible_cells": MeasuredQuantity(
            ("layer", "head"), "cells", f"how many are visible, itself included; {_WORDS}"
        ),
    }

    def __init__(self, model: Model, query: Place = CENTRE) -> None:
        """Args: query: where the patch that asks stands, (y, x) from 0 to 1 of the image; else InputError."""
        super().__init__(model)
        self.query = check_place("fields_of_view: query", query)

    @classmethod
    def check(cls, model: Model) -> None:
        require_bias(cls.name, model)

    def refuse_grid(self, grid: Grid) -> None:
        refuse_larger(self.name, self.model, grid)

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        visible, bias = visible_from(self.model, grid, divmod(cell_of(grid, self.query), grid.cols))
        weight = np.minimum(np.exp(bias), 1)
        return {"visible": visible, "bias": bias, "weight": weight, "visible_cells": visible.sum((2, 3))}


class BiasMatrices(WeightMeasure):
    """The bias of each head of each layer on all pairs of patches of a small grid.

    Of a larger grid `fields_of_view` and `visible_from` give what one patch sees.
    """

    name: ClassVar[str] = "bias_matrices"
    by_default: ClassVar[bool] = False
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "bias": MeasuredQuantity(
            ("layer", "head", "query", "key"),
            "",
            "what is added to the score before the softmax, -inf where it is masked; patches in row-major order; "
            "prefix tokens are neither rows nor columns",
        ),
        "visible_share": MeasuredQuantity(
            ("layer", "head"), "fraction", "of the pairs of patches, that are not masked; prefix tokens have no part"
        ),
    }

    @classmethod
    def check(cls, model: Model) -> None:
        require_bias(cls.name, model)

    def refuse_grid(self, grid: Grid) -> None:
        refuse_larger(self.name, self.model, grid, pairs=True)

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        bias = np.stack([bias_matrix(self.model, layer, grid) for layer in range(self.model.config.depth)])
        return {"bias": bias, "visible_share": (bias > -np.inf).mean((2, 3))}
