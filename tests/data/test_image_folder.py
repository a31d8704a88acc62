"""Folders of images: the layout, the labels, and every way in which a folder can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.discovery import open_source
from sightline.data.folder_scan import check_disjoint
from sightline.data.image_file import read_image
from sightline.data.loader import batches
from sightline.data.sources.imagefolder import ImageFolder
from sightline.data.transforms import eval_view, train_view
from sightline.errors import InputError, UnreadableDataError

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


def test_labels_order_and_views(tmp_path: Path) -> None:
    source = ImageFolder(make(tmp_path, classes=("b", "a", "Ünder score")))
    assert source.classes == ("a", "b", "Ünder score")
    assert source.splits == ("train", "test")
    paths = [path for path, _ in source.files("test")]
    assert paths == sorted(paths)
    for index in (0, 5, 11):
        path, label = source.files("test")[index]
        assert Path(path).parent.name == source.classes[label]
        image = read_image(path)
        example = source.example("test", index, (8, 10))
        assert (example.label, example.name) == (label, path)
        assert (example.image == eval_view(image, (8, 10))).all()
        trained = source.example("train", index, (8, 10), seed=2, epoch=3).image
        image = read_image(source.files("train")[index][0])
        assert (trained == train_view(image, (8, 10), seed=2, epoch=3, index=index)).all()


def test_the_options_of_the_view_are_used(tmp_path: Path) -> None:
    make(tmp_path)
    image = read_image(ImageFolder(tmp_path).files("test")[0][0])
    source = ImageFolder(tmp_path, crop=0.5, interpolation="box")
    expected = eval_view(image, (8, 8), crop=0.5, interpolation="box")
    assert (source.example("test", 0, (8, 8)).image == expected).all()
    with pytest.raises(UnreadableDataError, match="too large"):
        ImageFolder(tmp_path, max_pixels=10).example("test", 0, (8, 8))


@pytest.mark.parametrize(
    ("folders", "splits", "roles"),
    [
        (("train", "test"), ("train", "test"), {"test": "test"}),
        (("train", "val"), ("train", "test"), {"test": "val", "val": "val"}),
        (("train", "validation", "test"), ("train", "minival", "test"), {"minival": "validation", "test": "test"}),
        (("train", "minival", "test"), ("train", "minival", "test"), {"minival": "minival"}),
        (("train", "minival", "val"), ("train", "minival", "test"), {"minival": "minival", "test": "val"}),
        (("val",), ("test",), {"test": "val"}),
    ],
)
def test_names_of_split_folders(
    tmp_path: Path, folders: tuple[str, ...], splits: tuple[str, ...], roles: dict[str, str]
) -> None:
    source = ImageFolder(make(tmp_path, folders))
    assert source.splits == splits
    for split, folder in roles.items():
        assert source.length(split) == 8
        assert f"/{folder}/" in source.example(split, 0, (4, 4)).name


def test_class_folders_alone_are_a_test_split(tmp_path: Path) -> None:
    make(tmp_path, ("train",))
    source = open_source(f"imagefolder:{tmp_path / 'train'}")
    assert source.splits == ("test",)
    assert source.length("test") == 8
    with pytest.raises(InputError, match="to train, put class folders into DIR/train"):
        source.length("train")


def test_a_test_split_may_lack_a_class_and_keeps_the_labels(tmp_path: Path) -> None:
    make(tmp_path, classes=("a", "b", "c"))
    shutil.rmtree(tmp_path / "test" / "b")
    source = ImageFolder(tmp_path)
    assert [label for _, label in source.files("test")] == [0] * 4 + [2] * 4


def test_images_may_lie_deeper_and_others_are_listed(tmp_path: Path) -> None:
    make(tmp_path)
    save(tmp_path / "train" / "cat" / "more" / "5.PNG", 99)
    for name in ("train/cat/.hidden.png", "train/cat/notes.txt", "train/README", "train/cat/.DS_Store"):
        (tmp_path / name).write_text("text")
    (tmp_path / "extra").mkdir()
    source = ImageFolder(tmp_path)
    assert source.length("train") == 9
    skipped = {str(Path(item.path).relative_to(tmp_path)): item.reason for item in source.skipped}
    assert skipped == {
        "train/cat/.hidden.png": "hidden",
        "train/cat/.DS_Store": "hidden",
        "train/cat/notes.txt": "unknown extension",
        "train/README": "not in a class folder",
        "extra": "not a split",
    }


def test_names_that_differ_in_case_or_ending_are_all_kept(tmp_path: Path) -> None:
    make(tmp_path)
    for seed, name in enumerate(("Photo.png", "photo.png", "photo.bmp", "phöto 1.png", "-rf.png")):
        save(tmp_path / "train" / "cat" / name, 200 + seed)
    assert ImageFolder(tmp_path).length("train") == 13


def refused(root: Path) -> str:
    with pytest.raises(InputError) as caught:
        ImageFolder(root)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "nowhere")
    assert "no class folders" in refused(tmp_path)
    save(tmp_path / "file.png", 0)
    assert "no such folder" in refused(tmp_path / "file.png")
    (tmp_path / "train").mkdir()
    assert "no class folders" in refused(tmp_path)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "train" / "bird").mkdir()
    (tmp_path / "train" / "bird" / "list.txt").write_text("no image")
    assert f"{tmp_path / 'train' / 'bird'}: no images" in refused(tmp_path)


def test_one_class_is_enough_to_evaluate_only(tmp_path: Path) -> None:
    make(tmp_path, classes=("cat",))
    text = refused(tmp_path)
    assert "one class only" in text
    assert "'cat'" in text
    assert ImageFolder(tmp_path / "test").length("test") == 4


def test_a_class_that_train_lacks_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    save(tmp_path / "test" / "bird" / "0.png", 77)
    assert "bird" in refused(tmp_path)


def test_an_image_in_two_splits_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    shutil.copyfile(tmp_path / "train" / "cat" / "2.png", tmp_path / "test" / "dog" / "other name.png")
    text = refused(tmp_path)
    assert str(tmp_path / "train" / "cat" / "2.png") in text
    assert str(tmp_path / "test" / "dog" / "other name.png") in text


def test_files_of_one_size_or_with_one_end_are_not_one_image(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    first.write_bytes(b"a" + b"x" * 10_000)
    second.write_bytes(b"b" + b"x" * 10_000)
    third.write_bytes(b"")
    fourth = tmp_path / "d"
    fourth.write_bytes(b"")
    missing = str(tmp_path / "missing")
    check_disjoint({"train": [str(first), str(third), missing], "test": [str(second), str(fourth), missing]})
    check_disjoint({"train": [str(first), str(first)]})
    with pytest.raises(InputError, match="overlap"):
        check_disjoint({"train": [str(first)], "test": [str(second), str(first)]})


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


def test_unreadable_images_are_refused_by_default(damaged: Path) -> None:
    source = ImageFolder(damaged)
    assert source.length("test") == 14
    with pytest.raises(UnreadableDataError) as caught:
        source.check_readable("test", max_unreadable=5)
    text = str(caught.value)
    assert "6 of 14 images" in text
    assert "(allowed: 5)" in text
    assert "1_bomb_100000x100000.png: " in text
    assert "and 3 more" in text
    assert "\n" not in text
    assert source.check_readable("train")[1] == ()


def test_unreadable_images_are_left_out_and_no_label_is_shifted(damaged: Path) -> None:
    calls: list[tuple[int, int]] = []
    source = ImageFolder(damaged)
    remaining, bad = source.check_readable("test", max_unreadable=6, progress=lambda *call: calls.append(call))
    assert calls == [(done, 14) for done in range(1, 15)]
    assert [Path(item.path).name for item in bad] == [
        "1_bomb_100000x100000.png",
        "1_folder.png",
        "1_link.png",
        "1_text.jpg",
        "1_truncated.jpg",
        "1_zero_bytes.jpg",
    ]
    assert "link to a missing file" in bad[2].reason
    assert remaining.length("test") == 8
    assert source.length("test") == 14
    assert remaining.length("train") == 8
    for index in range(8):
        example = remaining.example("test", index, (6, 6))
        assert Path(example.name).parent.name == remaining.classes[example.label]


def test_a_split_without_any_readable_image_is_refused(tmp_path: Path) -> None:
    make(tmp_path, ("train",))
    for name in ("cat", "dog"):
        (tmp_path / "test" / name).mkdir(parents=True)
        shutil.copyfile(INPUTS / "text.jpg", tmp_path / "test" / name / "a.jpg")
    with pytest.raises(UnreadableDataError, match="no image of test"):
        ImageFolder(tmp_path).check_readable("test", max_unreadable=9)


def test_workers_give_the_same_batches_and_the_same_refusal(damaged: Path) -> None:
    source = ImageFolder(damaged)
    remaining, _ = source.check_readable("test", max_unreadable=6)
    outcomes = []
    for workers in (0, 2):
        got = list(batches(remaining, "test", indices=range(8), image_size=(6, 6), batch_size=3, workers=workers))
        with pytest.raises(UnreadableDataError) as caught:
            list(batches(source, "test", indices=range(14), image_size=(6, 6), batch_size=3, workers=workers))
        outcomes.append((torch.cat([batch.images for batch in got]), [batch.names for batch in got], str(caught.value)))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1:] == outcomes[1][1:]


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)

    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # The superuser may read everything, so the refusal of the system is played.
    monkeypatch.setattr("os.scandir", denied)
    with pytest.raises(UnreadableDataError, match="Permission denied"):
        ImageFolder(tmp_path)
