"""Folders of clips: the layout, the labels, what is shown of them, and every way in which one can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sightline.data.config import MixingConfig
from sightline.data.crops import apply_crop, eval_crop
from sightline.data.folder_check import check_folder
from sightline.data.loader import Collator, load_batches, read_example
from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan
from sightline.data.sizes import ConstantDrop, FrameSampling, SizeSampler
from sightline.data.sources.clips import Clips
from sightline.errors import UnreadableDataError
from sightline.tokens.patchify import ImagePatchifier
from sightline.tokens.tubelets import TubeletPatchifier
from tests.batches import labelling, same
from tests.clips import SIZE, frames_of, make, save_folder

ROWS = ImagePatchifier(TubeletPatchifier(4, tubelet=2), mean=(0.5, 0.5, 0.5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "clips")


def test_labels_order_and_lengths(folder: Path) -> None:
    source = open_source(f"clips:{folder}")
    assert isinstance(source, Clips)
    assert (source.classes, source.splits, source.task) == (("jump", "run"), ("train", "test"), "classification")
    names = [Path(source.example_name("test", index)).relative_to(folder / "test") for index in range(8)]
    assert names == [Path(one) / clip for one in ("jump", "run") for clip in ("a", "b.gif", "c.webp", "d.png")]
    assert source.labels_of("test") == [0] * 4 + [1] * 4
    assert [source.stored_frames("test", index) for index in range(8)] == [5, 4, 3, 1] * 2
    assert source.stored_size("test", 0) == SIZE
    assert source.skipped == ()


def test_what_is_measured_is_the_centre_of_frames_spread_over_the_clip(folder: Path) -> None:
    source = Clips(folder).with_view(frames=FrameSampling(3))
    whole = frames_of(30, 5)
    example = source.example("test", 0, (8, 8), seed=3, epoch=2)
    assert example.image.shape == (3, 8, 8, 3)
    assert example.image.dtype == np.uint8
    for place, frame in zip([0, 2, 4], example.image, strict=True):
        assert np.array_equal(frame, apply_crop(whole[place], eval_crop(SIZE, (8, 8))))
    assert example.name == str(folder / "test" / "jump" / "a")
    # Without a number of frames, the one in the middle, as an image.
    alone = Clips(folder).example("test", 0, SIZE)
    assert np.array_equal(alone.image, whole[2])
    assert alone.middle_frame is alone.image
    assert np.array_equal(example.middle_frame, example.image[1])
    still = source.example("test", 3, SIZE).image
    assert np.array_equal(still, np.repeat(frames_of(33, 1), 3, axis=0))


def test_packs_of_images_and_clips_are_the_same_for_any_number_of_workers(folder: Path) -> None:
    source = Clips(folder).with_view(frames=FrameSampling(4, exact=False))
    sampler = SizeSampler(4, drop=ConstantDrop(0.25), max_tokens=40, tubelet=2)
    planned = list(PackPlan(source, "train", sampler, capacity=60, images=16, seed=5).batches())
    make_batch = Collator(source, "train", ROWS, labelling(2).targets, seed=5)
    alone, other = (list(load_batches(make_batch, planned, workers=workers)) for workers in (0, 1))
    assert len(alone) == len(other) > 2
    assert all(same(one, two) for one, two in zip(alone, other, strict=True))
    assert {segment.grid[0] for batch in alone for segment in batch.layout.segments} == {1, 2}
    # What was planned is what is there: a quarter of the tokens was dropped.
    for batch in alone:
        assert batch.inputs.shape[1] == sum(round(0.75 * segment.grid.cells) for segment in batch.layout.segments)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_what_is_mixed_has_as_many_frames(folder: Path, kind: str) -> None:
    source = Clips(folder).with_view(frames=FrameSampling(4, exact=False))
    for index in range(8):
        example, lost = read_example(
            source, "train", index, (8, 8), seed=3, epoch=1, mixing=MixingConfig(**{kind: 1.0})
        )
        assert lost is None
        assert example is not None
        alone = source.example("train", index, (8, 8), seed=3, epoch=1).image
        assert example.image.shape == alone.shape
        changed = (example.image != alone).any(axis=(1, 2, 3))
        assert changed.all() or not changed.any()
        if kind == "cutmix":
            # One box in all frames.
            where = (example.image != alone).any(axis=(0, 3))
            rows, cols = where.any(axis=1), where.any(axis=0)
            assert not where[~rows].any()
            assert not where[:, ~cols].any()


def test_augmentations_draw_once_for_all_frames(tmp_path: Path) -> None:
    from sightline.data.augmentations import apply_augmentations, make_augmentations

    frame = frames_of(1, 1, (16, 16))[0]
    clip = np.stack([frame, frame, frame])
    ways = {"colour_jitter": {}, "rand_augment": {}, "three_augment": {}, "random_erasing": {"chance": 1.0}}
    for name, options in ways.items():
        made = make_augmentations({name: options})
        for epoch in range(5):
            changed = apply_augmentations(clip, made, seed=0, epoch=epoch, index=3)
            assert changed.shape == clip.shape
            assert (changed == changed[0]).all(), name
            assert np.array_equal(changed[1], apply_augmentations(frame, made, seed=0, epoch=epoch, index=3))


def test_faults_are_counted_in_the_allowance(folder: Path) -> None:
    save_folder(folder / "train" / "jump" / "odd", [*frames_of(0, 2), frames_of(1, 1, (4, 4))[0]])
    broken = folder / "train" / "run" / "e.gif"
    broken.write_bytes(b"no animation")
    os.mkfifo(folder / "train" / "run" / "f.webp")
    source = Clips(folder)
    with pytest.raises(UnreadableDataError) as raised:
        source.check_readable("train")
    assert all(name in str(raised.value) for name in ("odd", "e.gif", "f.webp"))
    assert "\n" not in str(raised.value)
    readable, left = Clips(folder).check_readable("train", skip_unreadable=3)
    assert len(left) == 3
    assert readable.length("train") == 8
    found = check_folder(Clips(folder))
    assert {Path(one.path).name for one in found.unreadable["train"]} == {"odd", "e.gif", "f.webp"}
    assert found.counts == {"train": {"jump": 4, "run": 4}, "test": {"jump": 4, "run": 4}}
