"""Small models with random values everywhere, and what it means that an exported file has their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sightline.export import LIMIT, check_export
from sightline.models import VisionTransformer
from tests.contract.contract import PATCH, SPREAD, build

# Never traced, not square among them: less and more than in training, a strip, and the training grid's transpose.
UNSEEN = [(3 * PATCH, 5 * PATCH), (14 * PATCH, 14 * PATCH), (2 * PATCH, 20 * PATCH), (8 * PATCH, 6 * PATCH)]
BEIT = ["rpe_learned", "rpe_learned_shared", "rope_axial+rpe_learned"]


def small(encoding: str = "learned_1d", pool: str = "mean", **options) -> VisionTransformer:
    return build(encoding, pool, **{"depth": 1, "dim": 48, "num_registers": 1, **options})


def assert_the_same(file: Path, model: VisionTransformer, sizes=UNSEEN) -> None:
    rows = check_export(file, model, sizes)
    assert [row.size for row in rows] == sizes
    for row in rows:
        assert row.grid == (row.size[0] // PATCH, row.size[1] // PATCH)
        assert row.images == 4
        assert row.difference < LIMIT, row
        assert row.same_top1 == 1
        assert row.spread > SPREAD, "the outputs hardly differ: nothing would be shown"


def session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(file, options)
