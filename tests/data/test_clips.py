"""Folders of clips: the layout, the labels, what is shown of them, and every way in which one can be wrong."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.data import clip_file
from sightline.data.clip_file import list_clips
from sightline.data.config import MixingConfig
from sightline.data.crops import apply_crop, eval_crop
from sightline.data.folder_check import check_folder
from sightline.data.image_list import list_images
from sightline.data.loader import Collator, SampleSpec, load_batches, read_example
from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan, group_by_frames, group_by_grid
from sightline.data.sizes import ConstantDrop, FrameSampling, SizeSampler, View
from sightline.data.skip_policy import Unreadable
from sightline.data.sources.clips import Clips
from sightline.errors import InputError, UnreadableDataError
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import ImagePatchifier
from sightline.tokens.tubelets import TubeletPatchifier
from tests.batches import labelling, same
from tests.clips import SIZE, frames_of, make, save_folder, save_gif

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


def test_clips_may_be_left_unmirrored(tmp_path: Path) -> None:
    make(tmp_path)
    for argument, share in ((f"{tmp_path}", 0.5), (f"{tmp_path},flip=0", 0.0), (f"{tmp_path},flip=1", 1.0)):
        assert open_source(f"clips:{argument}").transform.flip == share
    for option in ("flip=left", "flop=1", "flip=2"):
        with pytest.raises(InputError, match="flip"):
            open_source(f"clips:{tmp_path},{option}")
    assert Clips.folders(f"{tmp_path},flip=0") == (tmp_path,)


def test_packs_show_as_many_frames_as_there_are(folder: Path) -> None:
    source = Clips(folder).with_view(frames=FrameSampling(4, exact=False))
    assert [source.frames_shown("test", index) for index in range(4)] == [4, 4, 3, 1]
    assert [source.example("test", index, (8, 8)).image.shape[0] for index in range(4)] == [4, 4, 3, 1]
    assert group_by_frames(source, "test", range(8)) == {1: [3, 7], 3: [2, 6], 4: [0, 1, 4, 5]}
    found = group_by_grid(source, "test", range(4), View("native", 100), 4, tubelet=2)
    assert found == {Grid(1, 3, 4): [3], Grid(2, 3, 4): [0, 1, 2]}


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


def test_fingerprint_is_of_every_frame_and_is_kept(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    before = Clips(folder).fingerprint()
    assert before.digest == Clips(shutil.copytree(folder, tmp_path / "copy")).fingerprint().digest
    calls = []
    monkeypatch.setattr(clip_file, "read_image_size", lambda *given, **more: calls.append(given))
    again = Clips(folder)
    assert again.fingerprint().digest == before.digest
    assert [again.stored_frames("train", index) for index in range(4)] == [5, 4, 3, 1]
    assert calls == []
    monkeypatch.undo()
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    middle = folder / "train" / "jump" / "a" / "frame10.png"
    Image.fromarray(frames_of(77, 1)[0]).save(middle)
    assert Clips(folder).fingerprint().digest != before.digest
    middle.unlink()
    changed = Clips(folder)
    assert changed.stored_frames("train", 0) == 4
    assert changed.fingerprint().digest != before.digest


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


def test_a_frame_that_is_damaged_is_found_when_it_is_decoded(folder: Path) -> None:
    path = folder / "train" / "jump" / "a" / "frame12.png"
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(bytes(content))
    source, _ = Clips(folder).check_readable("train", skip_unreadable=1)
    source = source.with_view(frames=FrameSampling(5))
    with pytest.raises(UnreadableDataError, match=r"frame12\.png"):
        source.example("train", 0, (8, 8))
    make_batch = Collator(source, "train", ROWS, labelling(2).targets)
    batch = make_batch([SampleSpec(index, 0, (8, 8), 8) for index in range(2)])
    assert len(batch) == 1
    assert batch.left_out[0].path == str(folder / "train" / "jump" / "a")
    assert {Path(one.path).name for one in check_folder(Clips(folder)).unreadable["train"]} == {"a"}


def test_clips_are_bounded(folder: Path) -> None:
    source = Clips(folder).with_view(max_pixels=5)
    with pytest.raises(UnreadableDataError, match="192"):
        source.stored_size("test", 0)
    save_gif(folder / "test" / "jump" / "z.gif", frames_of(0, 20))
    assert Clips(folder).with_view(max_pixels=12 * 16 * 20).header_error(Clips(folder).rows_of("test")[4]) is None
    with pytest.raises(UnreadableDataError, match="3840"):
        Clips(folder).with_view(max_pixels=12 * 16).example("test", 4, (8, 8))


def test_what_is_passed_over_is_said(folder: Path) -> None:
    (folder / "test" / "jump" / "notes.txt").write_text("x")
    (folder / "test" / "jump" / "a" / "notes.txt").write_text("x")
    (folder / "test" / "jump" / "a" / "more").mkdir()
    (folder / "test" / "jump" / "nothing").mkdir()
    (folder / "test" / "jump" / ".cache").mkdir()
    save_folder(folder / "test" / "jump" / "deep" / "er", frames_of(9, 2))
    (folder / "test" / "jump" / "ring").symlink_to(folder / "test")
    source = Clips(folder)
    said = sorted(str(Path(one.path).relative_to(folder / "test" / "jump")) for one in source.skipped)
    assert said == [".cache", "a/more", "a/notes.txt", "notes.txt", "nothing", "ring"]
    assert source.length("test") == 9
    assert source.stored_frames("test", 4) == 2


def test_patterns_and_folders_on_a_command_line_pass_over_no_clip(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that no shell expanded matches folders of frames too, as one that a shell did; what is no clip stands
    in its place with the reason."""
    found = list_images([f"clips:{folder}"])
    assert [Path(str(one)).name for one in found] == ["a", "b.gif", "c.webp", "d.png"] * 4
    jump = folder / "test" / "jump"
    (jump / "z").mkdir()
    found = list_clips([f"{jump}/*"])
    assert [Path(str(one)).name for one in found] == ["a", "b.gif", "c.webp", "d.png", "z"]
    (tmp_path / "nowhere").mkdir()
    os.symlink(tmp_path / "nowhere", jump / "loop.gif")
    said = [one.path for one in list_clips([str(folder / "test")]) if isinstance(one, Unreadable)]
    assert said == [str(jump / "loop.gif")]
    real = os.scandir

    def closed(path: str) -> object:
        if str(path) == str(jump):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    # The permissions are feigned: root may read everything.
    monkeypatch.setattr(os, "scandir", closed)
    found = list_clips([str(folder / "test")])
    said = {one.path: one.reason for one in found if isinstance(one, Unreadable)}
    assert said == {str(jump): "Permission denied"}
