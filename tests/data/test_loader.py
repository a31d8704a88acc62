"""Batches: in order, complete, and the same for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.data.contact_sheet import contact_sheet
from sightline.data.discovery import open_source
from sightline.data.loader import Batch, batches, epoch_order
from sightline.data.source import Source
from sightline.errors import InputError


@pytest.fixture(scope="module")
def scenes() -> Source:
    return open_source("scenes")


def collect(source: Source, workers: int, batch_size: int = 8, split: str = "train") -> list[Batch]:
    indices = epoch_order(35, seed=4, epoch=1)
    return list(
        batches(
            source, split, indices=indices, image_size=(20, 36), batch_size=batch_size, seed=5, epoch=1, workers=workers
        )
    )


def equal(a: Batch, b: Batch) -> bool:
    tensors = all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("images", "labels", "sizes", "indices"))
    return tensors and a.groups == b.groups and a.names == b.names


def test_batches_hold_the_examples_in_order(scenes: Source) -> None:
    got = collect(scenes, workers=0)
    assert [len(batch) for batch in got] == [8, 8, 8, 8, 3]
    order = epoch_order(35, seed=4, epoch=1)
    assert torch.cat([batch.indices for batch in got]).tolist() == order.tolist()
    first = got[0]
    assert (first.images.dtype, tuple(first.images.shape)) == (torch.uint8, (8, 3, 20, 36))
    assert (first.labels.dtype, first.sizes.dtype, first.indices.dtype) == (torch.int64, torch.float32, torch.int64)
    for place, index in enumerate(order[:8]):
        example = scenes.example("train", int(index), (20, 36), seed=5, epoch=1)
        assert (first.images[place].permute(1, 2, 0).numpy() == example.image).all()
        assert first.labels[place] == example.label
        assert first.groups[place] == example.group
        assert first.sizes[place] == pytest.approx(example.size)
        assert first.names[place] == example.name


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(scenes: Source, workers: int) -> None:
    alone, helped = collect(scenes, 0), collect(scenes, workers)
    assert all(equal(a, b) for a, b in zip(alone, helped, strict=True))


def test_workers_leave_the_global_random_state_alone(scenes: Source) -> None:
    torch.manual_seed(1)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # pyright: ignore
    for workers in (0, 2):
        collect(scenes, workers)
        assert torch.equal(torch.get_rng_state(), before)
        assert (np.random.get_state()[1] == numpy_before).all()  # pyright: ignore


def test_the_batch_size_does_not_change_an_image(scenes: Source) -> None:
    def images(batch_size: int) -> torch.Tensor:
        return torch.cat([batch.images for batch in collect(scenes, 0, batch_size)])

    assert torch.equal(images(1), images(8))
    assert torch.equal(images(100), images(8))


@pytest.mark.parametrize("workers", [0, 2])
def test_no_indices_give_no_batch(scenes: Source, workers: int) -> None:
    assert list(batches(scenes, "test", indices=[], image_size=(8, 8), batch_size=4, workers=workers)) == []


def test_sizes_are_nan_where_a_source_has_none() -> None:
    batch = next(iter(batches(open_source("digits"), "test", indices=[3, 1], image_size=(8, 8), batch_size=4)))
    assert batch.sizes.isnan().all()
    assert batch.groups == [None, None]
    assert batch.indices.tolist() == [3, 1]


def test_wrong_arguments_are_refused_before_the_first_batch(scenes: Source) -> None:
    for keywords, message in (
        ({"batch_size": 0}, "batch_size 0"),
        ({"workers": -1}, "workers -1"),
        ({"indices": [1, 10_000]}, "index 10000"),
        ({"indices": [1, -1]}, "index -1"),
        ({"image_size": (0, 4)}, "0x4"),
    ):
        arguments = {"indices": [0], "image_size": (8, 8), "batch_size": 2} | keywords
        with pytest.raises(InputError, match=message):
            batches(scenes, "test", **arguments)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="heldout_fonts"):
        batches(scenes, "heldout", indices=[0], image_size=(8, 8), batch_size=2)


@pytest.mark.parametrize("length", [0, 1, 2, 1000])
def test_an_epoch_has_each_index_once(length: int) -> None:
    orders = [epoch_order(length, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for order in orders:
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == list(range(length))
    assert (epoch_order(length, 0, 1) == orders[1]).all()
    if length == 1000:
        assert not any((a == b).all() for a, b in ((orders[0], orders[1]), (orders[0], orders[2])))


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


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_whole_where_a_gpu_will_fetch_them(workers, monkeypatch):
    """Pinning itself needs CUDA; that each tensor is asked to be pinned, and nothing else changes, does not."""
    asked = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *_: asked.append(self) or self)
    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", _without_pinning_thread)
    options = {"indices": [0, 1, 2], "image_size": (8, 12), "batch_size": 2}
    plain = list(batches(open_source("scenes"), "train", workers=workers, **options))
    assert not asked
    pinned = list(batches(open_source("scenes"), "train", workers=workers, pin=True, **options))
    if workers == 0:
        assert {id(one) for one in asked} == {
            id(t) for batch in pinned for t in (batch.images, batch.labels, batch.sizes, batch.indices)
        }
    else:
        assert _ASKED == [True]
    for one, other in zip(plain, pinned, strict=True):
        assert torch.equal(one.images, other.images)
        assert one.names == other.names


_ASKED = []
_LOADER = torch.utils.data.DataLoader.__init__


def _without_pinning_thread(self, *arguments, pin_memory=False, **options):
    """torch's loader, whose thread that pins would only warn here that there is no accelerator."""
    if pin_memory:
        _ASKED.append(True)
    _LOADER(self, *arguments, pin_memory=False, **options)
