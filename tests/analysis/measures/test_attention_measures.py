"""Each measure of attention is its definition, written out on every pair of tokens."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from sightline.analysis.analyse import run_pass
from sightline.analysis.attention_blocks import attention_blocks
from sightline.analysis.images import Normalised
from sightline.analysis.measures.attention_maps import AttentionMaps, AttentionRollout
from sightline.analysis.measures.base import Measure
from sightline.analysis.measures.heads import AttentionDistance, Entropy, HeadDistance, HeadDiversity
from sightline.attention import AttentionRecord, record_attention
from sightline.models import create_model
from sightline.models.model import Model
from sightline.tokens.grid import Grid
from tests.analysis.measures import explicit
from tests.analysis.measures.explicit import Seen, by_layer, recorded, tiny, written_out
from tests.contract.randomise import randomise_parameters

MEASURES: list[type[Measure]] = [
    AttentionDistance, Entropy, HeadDiversity, HeadDistance, AttentionMaps, AttentionRollout,
]  # fmt: skip
REGISTERS = {"num_registers": 2}
BARE = {"pool": "mean"}
POOLING = {"pool": "attention"}
CASES: dict[str, tuple[Callable[[Model], Normalised], str, Mapping[str, object]]] = {
    "plain": (explicit.plain, "none", {}),
    "plain, masked": (explicit.plain, "lookhere_90", {}),
    "masked, no prefix": (explicit.plain, "lookhere_90", BARE),
    "masked, centre": (explicit.plain, "lookhere_180", {}),
    "packed": (explicit.packed, "learned_1d", {}),
    "packed, masked": (explicit.packed, "lookhere_90", REGISTERS),
    "padded": (explicit.padded, "lookhere_90", {}),
    "dropped": (explicit.dropped, "lookhere_90", REGISTERS),
    "dropped, no bias": (explicit.dropped, "rope_axial", BARE),
    "dropped pack": (explicit.dropped_pack, "alibi_2d", {}),
    "registers": (explicit.plain, "rope_mixed", REGISTERS),
    "penalty": (explicit.packed, "alibi_2d", {}),
    "table": (explicit.plain, "rpe_learned", REGISTERS),
    "table, packed": (explicit.packed, "rpe_learned", {}),
    "rotated": (explicit.packed, "rope_axial", {}),
    "pooling": (explicit.packed, "lookhere_90", POOLING),
    "pooling, dropped": (explicit.dropped, "rope_axial", {**POOLING, "pool_heads": 3}),
}


def spans(one: Seen) -> np.ndarray:
    return np.array([[np.hypot(*(key - query)) for key in one.keys] for query in one.queries])


def distance(one: Seen) -> np.ndarray:
    weights = one.of_patches[..., one.prefix_k :]
    return ((weights * spans(one)).sum(-1) / weights.sum(-1)).mean(-1)


def weighted_sum(one: Seen) -> np.ndarray:
    return (one.of_patches[..., one.prefix_k :] * spans(one)).sum(-1).mean(-1)


@functools.cache
def mean_apart(grid: tuple[int, ...]) -> float:
    cells = list(itertools.product(*map(range, grid)))
    return float(np.mean([np.hypot(a[0] - b[0], a[1] - b[1]) for a in cells for b in cells]))


def of_grid(one: Seen) -> np.ndarray:
    return distance(one) / mean_apart(one.grid)


def shannon(rows: np.ndarray) -> np.ndarray:
    return -np.where(rows > 0, rows * np.log(np.where(rows > 0, rows, 1)), 0).sum(-1)


def of_visible(one: Seen) -> np.ndarray:
    entropy, count = shannon(one.of_patches), one.visible[:, one.prefix_q :].sum(-1)
    return np.array([
        np.mean([value / np.log(seen) for value, seen in zip(*head, strict=True) if seen > 1] or [0])
        for head in zip(entropy, count, strict=True)
    ])  # fmt: skip


def jsd(one: Seen) -> np.ndarray:
    return (shannon(one.of_patches.mean(0)) - shannon(one.of_patches).mean(0)).mean()


def pairs(norm: int) -> Callable[[Seen], np.ndarray]:
    def mean(one: Seen) -> np.ndarray:
        both = itertools.combinations(one.of_patches, 2)
        return np.asarray(np.mean([np.linalg.norm(a - b, ord=norm, axis=-1) for a, b in both]))

    return mean


BY_LAYER: dict[str, Callable[[Seen], np.ndarray]] = {
    "distance": distance,
    "distance_of_grid": of_grid,
    "distance_pixels": lambda one: 4 * distance(one),
    "weighted_sum": weighted_sum,
    "to_prefix": lambda one: one.of_patches[..., : one.prefix_k].sum(-1).mean(-1),
    "entropy": lambda one: shannon(one.of_patches).mean(-1),
    "of_visible": of_visible,
    "jsd": jsd,
    "l1": pairs(1),
    "l2": pairs(2),
}


def on_grid(one: Seen, row: np.ndarray) -> np.ndarray:
    """A row [..., keys that are patches] where it stands; NaN where no patch is."""
    found = np.full((*row.shape[:-1], *one.grid), np.nan)
    for place, (y, x) in enumerate(one.keys):
        found[..., y, x] = row[..., place]
    return found


def centre(one: Seen) -> int:
    """The slot of the patch in the middle."""
    middle = [side // 2 for side in one.grid]
    return one.prefix_q + int(np.flatnonzero((one.queries == middle).all(1))[0])


def rolled(seen: list[Seen], image: int) -> tuple[np.ndarray, np.ndarray]:
    """The product of all layers as one matrix, [queries, rows, cols], and what prefix tokens have of it."""
    layers = [one for one in seen if one.image == image and one.layer is not None]
    product = np.eye(layers[0].attention.shape[-1])
    for one in layers:
        product = (one.attention.mean(0) + np.eye(len(product))) / 2 @ product
    one = layers[0]
    rows = product[[centre(one), *([0] if one.prefix_q else [])]]
    return on_grid(one, rows[:, one.prefix_k :]), rows[:, : one.prefix_k].sum(-1)


def check(measures: list[Measure], seen: list[Seen], tolerance: float = 1e-5) -> None:
    arrays = {name: (one, array) for one in measures for name, array in one.arrays().items() if name != "queries"}
    for name, (measure, array) in arrays.items():
        assert array.dtype == np.float64, name
        if name in BY_LAYER and not (name == "to_prefix" and isinstance(measure, AttentionRollout)):
            expected = by_layer(seen, BY_LAYER[name])
            assert expected.std() > 0.001 or name == "to_prefix", name
            np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def check_rollout(measure: Measure, seen: list[Seen], tolerance: float = 1e-5) -> None:
    arrays = measure.arrays()
    for image in range(1 + max(one.image for one in seen)):
        rollout, to_prefix = rolled(seen, image)
        rows, cols = rollout.shape[1:]
        np.testing.assert_allclose(arrays["rollout"][image, :, :rows, :cols], rollout, rtol=tolerance, atol=tolerance)
        assert np.isnan(arrays["rollout"][image, :, rows:]).all()
        assert np.isnan(arrays["rollout"][image, :, :, cols:]).all()
        np.testing.assert_allclose(arrays["to_prefix"][image], to_prefix, rtol=tolerance, atol=tolerance)


def check_maps(measure: Measure, seen: list[Seen], tolerance: float = 1e-5) -> None:
    arrays = measure.arrays()
    patches = lambda one, slot: on_grid(one, one.attention[:, slot, one.prefix_k :])  # noqa: E731
    expected = {"map": np.nanmean(by_layer(seen, lambda one: patches(one, centre(one))), axis=0)}
    if seen[0].prefix_q:
        expected["map_prefix"] = np.nanmean(by_layer(seen, lambda one: patches(one, 0)), axis=0)
    if any(one.layer is None for one in seen):
        expected["pooling"] = np.nanmean([patches(one, 0) for one in seen if one.layer is None], axis=0)
    assert sorted(arrays) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(arrays[name], array, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block_bytes", [1, 3000, 1 << 22])
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_it_is_what_is_written_out(case: str, block_bytes: int) -> None:
    make, encoding, options = CASES[case]
    model = tiny(encoding, **options)
    batch = make(model)
    seen = list(written_out(recorded(model, batch)))
    one_grid = len({segment.grid for segment in batch.layout.segments}) == 1
    measures = [one(model) for one in MEASURES if one_grid or one is not AttentionMaps]
    run_pass(model, batch, measures, block_bytes)
    check(measures, seen)
    check_rollout(next(one for one in measures if isinstance(one, AttentionRollout)), seen)
    for one in measures:
        if isinstance(one, AttentionMaps):
            check_maps(one, seen)


@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_axial"])
def test_tiles_are_put_back_into_rows(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an order that a back end wants the tokens in, and across an edge of the grid."""
    monkeypatch.setattr("sightline.models.model.preferred_tile", lambda *_: Grid(2, 3))
    model = tiny(encoding)
    batch = explicit.plain(model, size=(20, 28))
    calls = recorded(model, batch)
    assert not calls[0].keys.segments[0].row_major
    measures = [one(model) for one in MEASURES]
    run_pass(model, batch, measures)
    seen = list(written_out(calls))
    check(measures, seen)
    check_maps(measures[4], seen)
    check_rollout(measures[5], seen)


def test_sixteen_bits_are_looked_at_in_float32() -> None:
    model = tiny("lookhere_90")
    batch = explicit.packed(model)
    model.bfloat16()
    batch = dataclasses.replace(batch, inputs=batch.inputs.bfloat16())
    calls = recorded(model, batch)
    assert calls[0].q.dtype == torch.bfloat16
    measures = [one(model) for one in MEASURES if one is not AttentionMaps]
    run_pass(model, batch, measures)
    seen = list(written_out(calls))
    check(measures, seen)
    check_rollout(measures[-1], seen)


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("encoding", ["rope_axial", "lookhere_90"])
def test_queries_that_see_their_own_masks_alone(encoding: str, packing: bool) -> None:
    """Terms of images: other ones of each image of a uniform batch too."""
    options = {"queries": 5, "blocks": 3, "masked_in_evaluation": True}
    settings = {"depth": 3, "heads": 4, "dim": 48, "num_classes": 4, "image_size": 32, "class_names": tuple("abcd")}
    model = create_model(
        "vit_micro_patch4", encoding=encoding, head="eomt", head_options=options, task="segmentation",
        final_norm="both", **settings,
    )  # fmt: skip
    randomise_parameters(model).eval()
    batch = explicit.packed(model) if packing else explicit.plain(model)
    calls: list[AttentionRecord] = []
    with torch.inference_mode(), record_attention(calls.append):
        model(batch.inputs, layout=batch.layout)
    assert calls[-1].pattern is not None
    assert calls[-1].pattern.of_images
    seen = list(written_out(calls))
    measures = [one(model) for one in MEASURES if not one.last_layer_first and not (packing and one is AttentionMaps)]
    for block_bytes in (1, 3000, 1 << 20):
        measures = [type(one)(model) for one in measures]
        for one in measures:
            one.begin(batch)
        for call in calls:
            for block in attention_blocks(call, block_bytes):
                for one in measures:
                    one.attention(block)
        check(measures, seen)
        if not packing:
            check_maps(measures[-1], seen)
    # What queries see is a part of the image, another one each.
    first = seen[-1]
    assert 0 < first.visible[:, : first.prefix_q].mean() < 1
