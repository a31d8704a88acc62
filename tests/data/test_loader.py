"""Batches: in order, complete, and the same for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.data.batch import Batch, collate_packed, is_finite
from sightline.data.contact_sheet import contact_sheet
from sightline.data.open import open_source
from sightline.data.pack_plan import epoch_order
from sightline.data.source import Source
from sightline.tokens.grid import Grid
from tests.batches import images_of, uniform_batches


@pytest.fixture(scope="module")
def scenes() -> Source:
    return open_source("scenes")


def collect(source: Source, workers: int, batch_size: int = 8, split: str = "train") -> list[Batch]:
    indices = epoch_order(35, seed=4, epoch=1)
    options = {"image_size": (20, 36), "batch_size": batch_size, "seed": 5, "epoch": 1, "workers": workers}
    return list(uniform_batches(source, split, indices=indices, **options))


def test_batches_hold_the_examples_in_order(scenes: Source) -> None:
    got = collect(scenes, workers=0)
    assert [len(batch) for batch in got] == [8, 8, 8, 8, 3]
    order = epoch_order(35, seed=4, epoch=1)
    assert torch.cat([batch.indices for batch in got]).tolist() == order.tolist()
    first, labels = got[0], got[0].targets["labels"]
    assert (first.inputs.dtype, tuple(first.inputs.shape)) == (torch.uint8, (8, 5 * 9, 3 * 4 * 4))
    assert (first.layout.rows, [segment.grid for segment in first.layout.segments]) == (8, [(5, 9)])
    assert (labels.dtype, first.indices.dtype) == (torch.int64, torch.int64)
    images = images_of(first)
    for place, index in enumerate(order[:8]):
        example = scenes.example("train", int(index), (20, 36), seed=5, epoch=1)
        assert (images[place].permute(1, 2, 0).numpy() == example.image).all()
        assert labels[place] == example.target.label
        assert first.slices[place] == example.slices
        assert example.slices.keys() == {"group", "size"}
        assert first.names[place] == example.name


def test_a_contact_sheet_shows_the_examples_pixel_for_pixel(scenes: Source) -> None:
    sheet = contact_sheet(scenes, "test", [(40, 80), (64, 32)], columns=3)
    assert sheet.dtype == np.uint8
    assert sheet.ndim == 3
    windows = np.lib.stride_tricks.sliding_window_view(sheet[..., 1], (40, 80))
    for index in range(3):
        image = scenes.example("test", index, (40, 80)).image[..., 1]
        corner = np.argwhere((windows[..., 0, 0] == image[0, 0]) & (windows[..., -1, -1] == image[-1, -1]))
        assert any((windows[y, x] == image).all() for y, x in corner)
    short = contact_sheet(open_source("scenes:pairs"), "test", [(16, 16)], columns=2, rows=2)
    assert short.shape[1] < sheet.shape[1]


def test_a_tree_of_targets_goes_to_a_device_whole() -> None:
    """Of a pack of two images, each tensor of what a task made of their targets; what is no tensor stays as it is."""
    targets = {
        "masks": [torch.ones(2, 3, dtype=torch.bool), torch.zeros(4, 1, dtype=torch.bool)],
        "boxes": {"corners": [torch.zeros(0, 4), torch.ones(2, 4)], "crowd": (torch.tensor([1]), torch.tensor([0, 1]))},
        "words": ["one", None],
    }
    images = [torch.zeros(4, 12, dtype=torch.uint8), torch.ones(6, 12, dtype=torch.uint8)]
    inputs, layout = collate_packed(images, [Grid(2, 2), Grid(2, 3)], [None, np.array([1, 4])], num_prefix_tokens=1)
    batch = Batch(inputs, layout, targets, torch.tensor([7, 5]), ["a", "b"], [{}, {"group": "un"}])
    there = batch.to("meta")
    found = [there.inputs, there.indices, *there.targets["masks"], *there.targets["boxes"]["corners"]]
    found += there.targets["boxes"]["crowd"]
    assert {one.device.type for one in found} == {there.layout.device.type} == {"meta"}
    assert [tuple(one.shape) for one in found] == [(1, 6, 12), (2,), (2, 3), (4, 1), (0, 4), (2, 4), (1,), (2,)]
    assert (there.names, there.slices, there.targets["words"]) == (batch.names, batch.slices, ["one", None])
    # The batch itself stays where it is.
    assert batch.targets["boxes"]["crowd"][1].device.type == batch.layout.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_whose_sum_is_beyond_the_type_are_finite(dtype):
    most = torch.finfo(dtype).max
    assert is_finite([torch.full((3, 4), most, dtype=dtype), {"counts": torch.arange(5)}, torch.empty(0)])
    assert is_finite(torch.tensor([most, most, -most, -most], dtype=dtype))


@pytest.mark.parametrize("bad", [[torch.inf], [-torch.inf], [torch.nan], [torch.inf, -torch.inf]])
def test_one_that_is_not_is_found(bad):
    values = torch.randn(7, 9)
    values.view(-1)[40 : 40 + len(bad)] = torch.tensor(bad)
    assert not is_finite({"first": torch.zeros(3), "second": [values]})
