"""Packed batches: planned before they are made, the same for any number of workers, and each image as it is alone."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data import image_index
from sightline.data.open import open_source
from sightline.data.packs import PackPlan, plan
from sightline.data.sampling import BetaDrop, ResolutionSampling, SizeSampler
from sightline.errors import InputError, UnreadableDataError
from sightline.tokens.patchify import patchify
from tests.batches import packed_batches

SAMPLER = SizeSampler(4, ResolutionSampling(8, 40), BetaDrop(), most_tokens=64)


def planned(source, count=None, **options):
    options = {"capacity": 256, "seed": 3, **options}
    return list(islice(plan(source, "train", SAMPLER, **options), count))


def ids(batches):
    return [[(one.index, one.epoch, one.image_size, one.tokens, tuple(one.kept)) for one in batch] for batch in batches]


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


def test_a_run_that_was_killed_goes_on_where_it_was():
    """At several places, in the middle of a pass and after one: the same ids, drops and sizes."""
    source = open_source("digits")
    whole = ids(planned(source, images=2000))
    for done in (1, 7, len(whole) // 2, len(whole) - 1):
        again = ids(list(plan(source, "train", SAMPLER, capacity=256, seed=3, images=2000))[done:])
        assert again == whole[done:]
    assert ids(planned(source, images=2000, seed=4)) != whole


def test_a_batch_holds_the_kept_patches_of_its_images():
    source = open_source("scenes")
    (wanted,) = planned(source, 1)
    (batch,) = packed_batches(source, "train", [wanted], seed=3)
    start = 0
    for number, (one, segment) in enumerate(zip(wanted, batch.layout.segments, strict=True)):
        example = source.example("train", one.index, one.image_size, seed=3)
        whole = patchify(torch.from_numpy(example.image.transpose(2, 0, 1).copy())[None], 4)[0]
        end, kept = start + one.tokens, torch.from_numpy(one.kept)
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
        next(plan(source, "train", native, capacity=99))
    with pytest.raises(InputError, match="split"):
        next(plan(source, "trian", native, capacity=99))
    batches = list(plan(source, "train", native, capacity=200, images=4))
    assert [len(batch) for batch in batches] == [2, 2]
    content = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(content[:-30])
    for workers in (0, 2):
        with pytest.raises(UnreadableDataError, match=r"1\.png"):
            list(packed_batches(source, "train", batches, workers=workers))


@pytest.mark.parametrize(("how", "alike", "most"), [("first_fit", 0.2, 0.35), ("best_fit", 0.6, 2.0)])
def test_a_run_is_not_sorted_by_size(how, alike, most):
    """Nor, with first-fit, is a batch of one size: each holds about the same mixture as all. (Sorted, neighbours in
    each window of best-fit would correlate to .9 and more.)"""
    sampler = SizeSampler(4, ResolutionSampling(16, 32), aspect="square")
    options = {"capacity": 1024, "how": how, "images": 8192}
    batches = list(plan(open_source("scenes"), "train", sampler, **options))
    means = np.array([np.mean([one.image_size[0] // 4 for one in batch]) for batch in batches])
    # Small and large ones come in no order: neighbours are as unlike as strangers, and early ones as late ones.
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < alike
    thirds = [part.mean() for part in np.array_split(means, 3)]
    assert max(thirds) - min(thirds) < 0.4
    assert means[1:-1].std() < most


def test_a_window_goes_on_from_its_position():
    """What is planned from any position is what is planned from the beginning."""
    source = open_source("digits")
    run = PackPlan(source, "train", SAMPLER, 256, images=4000, seed=3)
    windows = list(run.windows())
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
    assert sum(map(len, plan(source, "train", SAMPLER, capacity=64, images=60))) == 60
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
