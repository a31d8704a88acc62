"""Folders of images: the layout, the labels, and every way in which a folder can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.data import stored
from sightline.data.crops import RandomResizedCrop, apply_crop, eval_crop
from sightline.data.image_file import read_image
from sightline.data.open import open_source
from sightline.data.sources.imagefolder import ImageFolder
from sightline.errors import InputError, UnreadableDataError
from sightline.training.config import TrainConfig
from sightline.training.setup import open_training_data
from tests.batches import uniform_batches

INPUTS = Path(__file__).parents[1] / "faults" / "inputs"


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 18, 3), dtype=np.uint8)).save(path)


def make(root: Path, splits: tuple[str, ...] = ("train", "test"), classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    seed = 0
    for split in splits:
        for name in classes:
            for number in range(4):
                seed += 1
                save(root / split / name / f"{number}.png", seed)
    return root


def names(source: ImageFolder, split: str = "test") -> list[str]:
    return [source.example_name(split, index) for index in range(source.length(split))]


def test_labels_order_and_views(tmp_path: Path) -> None:
    source = ImageFolder(make(tmp_path, classes=("b", "a", "Ünder score")))
    assert source.classes == ("a", "b", "Ünder score")
    assert source.splits == ("train", "test")
    paths = names(source)
    assert paths == sorted(paths)
    for index in (0, 5, 11):
        path, label = paths[index], source.labels_of("test")[index]
        assert Path(path).parent.name == source.classes[label]
        image = read_image(path)
        example = source.example("test", index, (8, 10))
        assert (example.target.label, example.name) == (label, path)
        assert (example.image == apply_crop(image, eval_crop((12, 18), (8, 10)))).all()
        trained = source.example("train", index, (8, 10), seed=2, epoch=3).image
        image = read_image(source.example_name("train", index))
        assert (
            trained
            == apply_crop(image, RandomResizedCrop().train_crop((12, 18), (8, 10), seed=2, epoch=3, index=index))
        ).all()


def test_class_folders_alone_are_a_test_split(tmp_path: Path) -> None:
    make(tmp_path, ("train",))
    source = open_source(f"imagefolder:{tmp_path / 'train'}")
    assert source.splits == ("test",)
    assert source.length("test") == 8
    with pytest.raises(InputError, match=f"mean imagefolder:{tmp_path}"):
        source.length("train")
    (tmp_path / "train").rename(tmp_path / "mine")
    with pytest.raises(InputError, match="a fifth is the test") as error:
        ImageFolder(tmp_path / "mine").length("train")
    assert (error.value.field, error.value.value) == ("split", "train")


def test_a_path_alone_and_a_split_say_what_was_meant(tmp_path: Path) -> None:
    make(tmp_path, ("train",))
    with pytest.raises(InputError, match=f"mean imagefolder:{tmp_path}"):
        open_source(str(tmp_path))
    with pytest.raises(InputError, match=f"mean imagefolder:{tmp_path}"):
        open_training_data(TrainConfig(data=f"imagefolder:{tmp_path / 'train'}"))


def test_a_test_split_may_lack_a_class_and_keeps_the_labels(tmp_path: Path) -> None:
    make(tmp_path, classes=("a", "b", "c"))
    shutil.rmtree(tmp_path / "test" / "b")
    assert ImageFolder(tmp_path).labels_of("test") == [0] * 4 + [2] * 4
    # One class is enough to evaluate.
    shutil.rmtree(tmp_path / "test" / "a")
    assert ImageFolder(tmp_path / "test").length("test") == 4


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Sixteen good images of two classes and six bad ones among those of `cat`."""
    make(tmp_path / "images")
    cat = tmp_path / "images" / "test" / "cat"
    for name in ("zero_bytes.jpg", "text.jpg", "truncated.jpg", "bomb_100000x100000.png"):
        shutil.copyfile(INPUTS / name, cat / f"1_{name}")
    (cat / "1_folder.png").mkdir()
    (cat / "1_link.png").symlink_to(tmp_path / "nowhere.png")
    return tmp_path / "images"


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_decoded_leaves_its_batch_within_what_is_allowed(damaged: Path, workers: int) -> None:
    """Headers are read before, pixels when their turn comes: one line too many names the file and the ways on."""
    source = ImageFolder(damaged)
    options = {"indices": range(9), "image_size": (6, 6), "batch_size": 3, "workers": workers, "patch_size": 2}
    allowed, _ = source.check_readable("test", skip_unreadable=6)
    got = list(uniform_batches(allowed, "test", **options))
    assert sorted(map(len, got)) == [2, 3, 3]
    alone = ImageFolder(damaged).check_readable("test", skip_unreadable="all")[0]
    assert [batch.names for batch in uniform_batches(alone, "test", **options)] == [batch.names for batch in got]
    refusing, _ = source.check_readable("test", skip_unreadable=5)
    with pytest.raises(UnreadableDataError, match=r"6 images.*allowed: 5.*--skip-unreadable"):
        list(uniform_batches(refusing, "test", **options))


def test_no_pixel_is_decoded_before_the_first_batch(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = stored.read_picture
    monkeypatch.setattr(stored, "read_picture", lambda path, **rest: read.append(path) or real(path, **rest))
    source, _ = ImageFolder(damaged).check_readable("train")
    assert read == []
    next(uniform_batches(source, "train", indices=[3, 1], image_size=(6, 6), batch_size=2, patch_size=2))
    assert read == [source.example_name("train", index) for index in (3, 1)]


def shown(source, index=0, side=16, **options):
    return source.example("train", index, (side, side), **options).image


def test_files_are_cut_as_in_evaluation_and_decoded_whole(tmp_path):
    draws = np.random.default_rng(0)
    for split, name in (("train", "a"), ("train", "b"), ("test", "a")):
        folder = tmp_path / split / name
        folder.mkdir(parents=True)
        # So large that a training image is decoded at an eighth of its size.
        noise = draws.integers(0, 256, (30, 40, 3), np.uint8)
        Image.fromarray(noise).resize((400, 300)).save(folder / "one.jpg", quality=90)
    source = open_source(f"imagefolder:{tmp_path}").prepared("bilinear", 0.875)
    with Image.open(tmp_path / "train/a/one.jpg") as file:
        whole = np.asarray(file.convert("RGB"))
    expected = apply_crop(whole, eval_crop((300, 400), (16, 16), 0.875), "bilinear")
    for seed, epoch in ((0, 0), (3, 5)):
        assert np.array_equal(shown(source.with_view(still=True), seed=seed, epoch=epoch), expected)
    assert not np.array_equal(shown(source), expected)
    # Whatever order the two are asked in, and the source itself is as it was.
    assert np.array_equal(shown(source.with_view(still=True).prepared("bilinear", 0.875)), expected)
    assert not source.still
    assert source.with_view(still=True).still
