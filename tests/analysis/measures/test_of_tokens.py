"""Measures of tokens are found by their folder, share one pass, and come back from their file."""

from __future__ import annotations

import numpy as np

from sightline.analysis.analyse import analysed, analysed_together
from sightline.analysis.found import Analysis
from sightline.analysis.measures.base import measures_by_name
from tests.analysis.measures import token_cases as cases

NAMES = ["patch_similarity", "token_norms", "patch_colours", "cka", "knock_out"]


def test_one_pass_gives_what_each_gives(tmp_path):
    model = cases.model()
    shown = cases.images(*[(3, 5)] * 5)
    measures = measures_by_name(NAMES)
    for measure, found in zip(measures, analysed_together(model, measures, shown), strict=True):
        np.savez(tmp_path / f"{measure.name}.npz", **found.flat())
        back = Analysis.read(tmp_path / f"{measure.name}.npz")
        alone = analysed(model, measure, shown)
        assert set(back.arrays[0, 0]) <= set(measure.quantities)
        for name, array in alone.arrays[0, 0].items():
            np.testing.assert_array_equal(back[name], array)
            assert array.ndim == len(measure.quantities[name].axes)
            if "image" in measure.quantities[name].axes:
                assert len(array) == 5
