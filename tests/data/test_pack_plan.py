"""Packed batches: planned before they are made, the same for any number of workers, and each image as it is alone."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data import image_index
from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan
from sightline.data.sizes import BetaDrop, ConstantDrop, ResolutionSampling, SizeSampler
from sightline.errors import InputError, UnreadableDataError
from sightline.models import create_model
from sightline.tasks.base import predict_batch
from sightline.tokens.patchify import patchify
from tests.batches import kept_of, packed_batches
from tests.contract.randomise import randomise_parameters

SAMPLER = SizeSampler(4, ResolutionSampling(8, 40), BetaDrop(), max_tokens=64)


def planned(source, count=None, **options):
    options = {"capacity": 256, "seed": 3, **options}
    return list(islice(PackPlan(source, "train", SAMPLER, **options).batches(), count))


def ids(batches):
    return [
        [(one.index, one.epoch, one.image_size, one.tokens, tuple(one.patch_indices)) for one in batch]
        for batch in batches
    ]


def test_each_image_of_a_pass_comes_once_before_the_next():
    source = open_source("digits")
    found = [one for batch in planned(source, images=2 * 1297) for one in batch]
    assert len(found) == 2 * 1297
    for epoch in (0, 1):
        assert sorted(one.index for one in found if one.epoch == epoch) == list(range(1297))
    # Look-ahead reaches into the next pass, and no further.
    last_of_first = max(place for place, one in enumerate(found) if one.epoch == 0)
    assert sum(one.epoch for one in found[:last_of_first]) < 1024
    # In another order, and shown in another way.
    first, second = ([one for one in found if one.epoch == epoch] for epoch in (0, 1))
    assert [one.index for one in first] != [one.index for one in second]
    by_index = {one.index: one for one in second}
    assert sum(one.image_size != by_index[one.index].image_size for one in first) > 600


def test_a_batch_holds_the_kept_patches_of_its_images():
    source = open_source("scenes")
    (wanted,) = planned(source, 1)
    (batch,) = packed_batches(source, "train", [wanted], seed=3)
    start = 0
    for number, (one, segment) in enumerate(zip(wanted, batch.layout.segments, strict=True)):
        example = source.example("train", one.index, one.image_size, seed=3)
        whole = patchify(torch.from_numpy(example.image.transpose(2, 0, 1).copy())[None], 4)[0]
        end, kept = start + one.tokens, torch.from_numpy(one.patch_indices)
        assert torch.equal(batch.inputs[0, start:end], whole[kept])
        assert (segment.grid.rows * 4, segment.grid.cols * 4) == one.image_size
        assert torch.equal(segment.indices[0], kept)
        assert (batch.targets["labels"][number], batch.names[number]) == (example.target.label, example.name)
        start = end
    assert (start, batch.inputs.dtype) == (batch.inputs.shape[1], torch.uint8)
    assert len(batch) == len(wanted) > 3


def test_what_cannot_be_planned_or_read(tmp_path):
    folder = tmp_path / "train" / "a"
    folder.mkdir(parents=True)
    (tmp_path / "train" / "b").mkdir()
    for number in range(3):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(folder / f"{number}.png")
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "train" / "b" / "0.png")
    source = open_source(f"imagefolder:{tmp_path}")
    native = SizeSampler(4)
    with pytest.raises(InputError, match="has 100 tokens, and a sequence 99"):
        next(PackPlan(source, "train", native, capacity=99).batches())
    with pytest.raises(InputError, match="split"):
        next(PackPlan(source, "trian", native, capacity=99).batches())
    batches = list(PackPlan(source, "train", native, capacity=200, images=4).batches())
    assert [len(batch) for batch in batches] == [2, 2]
    content = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(content[:-30])
    for workers in (0, 2):
        with pytest.raises(UnreadableDataError, match=r"1\.png"):
            list(packed_batches(source, "train", batches, workers=workers))


def test_a_window_goes_on_from_its_position():
    """What is planned from any position is what is planned from the beginning."""
    source = open_source("digits")
    run, other = (PackPlan(source, "train", SAMPLER, 256, images=4000, seed=seed) for seed in (3, 4))
    windows = list(run.windows())
    assert ids(run.batches()) != ids(other.batches())
    assert len(windows) == 4
    for number, (position, _) in enumerate(windows):
        again = [(one, ids(packs)) for one, packs in run.windows(position)]
        assert again == [(one, ids(packs)) for one, packs in windows[number:]]
    assert any(position.waiting for position, _ in windows)


def test_headers_are_read_once(tmp_path, monkeypatch):
    for number in range(6):
        folder = tmp_path / "train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 20)).save(folder / f"{number}.png")
    opened = []
    real = image_index.read_image_size
    monkeypatch.setattr(image_index, "read_image_size", lambda *a, **k: opened.append(a) or real(*a, **k))
    source = open_source(f"imagefolder:{tmp_path}")
    assert sum(map(len, PackPlan(source, "train", SAMPLER, capacity=64, images=60).batches())) == 60
    assert len(opened) == 6
    checked, _ = source.check_readable("train")
    opened.clear()
    assert checked.stored_size("train", 5) == (20, 25)
    assert not opened


def test_native_images_of_a_folder_are_not_stretched(tmp_path):
    """Packed with their own aspect, circles stay circles; trained at a square size they are stretched as ever."""
    y, x = np.mgrid[0:200, 0:200]
    disc = np.where((y - 100) ** 2 + (x - 100) ** 2 < 40**2, 255, 0).astype(np.uint8)
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.fromarray(disc).convert("RGB").save(tmp_path / "train" / name / "0.png")
    source = open_source(f"imagefolder:{tmp_path}")

    def ratios(data):
        found = []
        for epoch in range(40):
            seen = data.example("train", 0, (128, 128), seed=0, epoch=epoch).image[..., 0] > 127
            rows, cols = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
            if seen[0].any() or seen[-1].any() or seen[:, 0].any() or seen[:, -1].any():
                continue
            found.append(len(rows) / len(cols))
        return found

    assert len(ratios(source)) > 8
    assert max(ratios(source)) > 1.15
    kept = ratios(source.with_view(aspect=(1.0, 1.0)))
    assert len(kept) > 8
    assert all(0.95 < ratio < 1.05 for ratio in kept)


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Images of 4, 6, 8, 5, 1 and 4 patches of 4 x 4 pixels."""
    folder = tmp_path_factory.mktemp("data")
    for number, (rows, cols) in enumerate([(1, 4), (2, 3), (4, 2), (5, 1), (1, 1), (2, 2)]):
        label = folder / "train" / "ab"[number % 2]
        label.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (4 * rows, 4 * cols, 3), np.uint8)
        Image.fromarray(pixels).save(label / f"{number}.png")
    return open_source(f"imagefolder:{folder}")


def packed(source, sampler=None, images=6, **options):
    options = {"capacity": 8, "images": images, **options}
    return list(PackPlan(source, "train", sampler or SizeSampler(4), **options).batches())


def sums(batches):
    return [sum(one.tokens for one in batch) for batch in batches]


def logits(edges, batches):
    """Of each image by its index, packed and alone."""
    model = randomise_parameters(create_model("vit_micro_patch4", encoding="rope_mixed", depth=2, num_classes=5)).eval()
    found = {}
    for several in (batches, [[one] for batch in batches for one in batch]):
        by_index = {}
        for batch in packed_batches(edges, "train", several, num_prefix_tokens=model.num_prefix_tokens):
            with torch.no_grad():
                by_index |= dict(zip(batch.indices.tolist(), predict_batch(model, batch), strict=True))
        found[len(several)] = by_index
    return found[len(batches)], found[sum(map(len, batches))]


def test_full_to_the_token(edges):
    """28 tokens in packs of 8: an image that is as long as a pack has its own, the others are put together."""
    for how in ("first_fit", "best_fit"):
        batches = packed(edges, how=how)
        assert sum(sums(batches)) == 28
        assert max(sums(batches)) == 8
        lone = [batch for batch in batches if any(one.tokens == 8 for one in batch)]
        assert [len(batch) for batch in lone] == [1]
    assert [len(batch) for batch in packed(edges, capacity=28)] == [6]


def test_longer_than_a_pack(edges):
    """Refused by its lengths; or shown smaller, where that is asked for."""
    with pytest.raises(InputError, match=r"image \d+: has 8 tokens, and a sequence 7; lower the resolution"):
        packed(edges, capacity=7)
    batches = packed(edges, SizeSampler(4, max_tokens=7), capacity=7)
    assert sorted(one.index for batch in batches for one in batch) == list(range(6))
    assert max(math.prod(one.image_size) // 16 for batch in batches for one in batch) <= 7


def test_more_images_than_a_pack_takes(edges):
    batches = packed(edges, capacity=100, most_images=2)
    assert [len(batch) for batch in batches] == [2, 2, 2]
    assert sorted(one.index for batch in batches for one in batch) == list(range(6))


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99, 1.0])
def test_an_image_keeps_what_is_not_dropped_and_at_least_one_token(edges, rate):
    given = packed(edges, SizeSampler(4, drop=ConstantDrop(rate)), capacity=28)
    for batch, made in zip(given, packed_batches(edges, "train", given), strict=True):
        used, grids = [one.tokens for one in batch], [segment.grid for segment in made.layout.segments]
        assert used == [max(round(grid.cells * (1 - rate)), 1) for grid in grids]
        assert made.inputs.shape[:2] == (1, sum(used))
        assert [len(kept) for kept in kept_of(made)] == used
        assert all(one.patch_indices is not None and len(one.patch_indices) == one.tokens for one in batch)
        assert sum(grid.cells for grid in grids) == 28
    assert sum(map(len, given)) == 6
    together, alone = logits(edges, given)
    assert together.keys() == alone.keys() == set(range(6))
    assert torch.stack(list(alone.values())).std() > 0.02
    assert all((together[index] - alone[index]).abs().max() < 2e-5 for index in together)


def test_no_images(edges):
    assert packed(edges, images=0) == []
    assert list(packed_batches(edges, "train", [])) == []
    assert len(list(islice(PackPlan(edges, "train", SizeSampler(4), capacity=8).batches(), 50))) == 50, (
        "without an end otherwise"
    )
