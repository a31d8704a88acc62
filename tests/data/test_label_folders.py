"""Images with maps of labels, in the formats in which they are published: what is read, and each fault in a line."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sightline.data.open import open_source
from sightline.data.targets import IGNORE
from sightline.errors import InputError, UnreadableDataError
from tests.data import dense_folders as folders

KINDS = ("ade20k", "cityscapes", "voc", "masks")
# Of the second image of the split that measures: its file, its map.
SECOND = {
    "ade20k": ("images/validation/ADE_valid_00000001.jpg", "annotations/validation/ADE_valid_00000001.png"),
    "cityscapes": ("leftImg8bit/val/bonn/bonn_000001_000019_leftImg8bit.png",
                   "gtFine/val/bonn/bonn_000001_000019_gtFine_labelTrainIds.png"),
    "voc": ("JPEGImages/2007_000010.jpg", "SegmentationClass/2007_000010.png"),
    "masks": ("images/val/deep/1.png", "masks/val/deep/1.png"),
}  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """`made(source, **options)` writes a data set of that kind; returns its folder."""
    return lambda source, **options: folders.WRITERS[source](tmp_path / source, **options)


def opened(kind, root):
    return open_source(f"{kind}:{root}")


def shown(source, split, index):
    """What is said of an image at the size in which it is stored."""
    return source.example(split, index, source.stored_size(split, index))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_read(kind, made):
    source = opened(kind, made(kind))
    assert (source.splits, source.provides, source.classes) == (("train", "test"), ("pixels",), ())
    assert [source.length(split) for split in source.splits] == [3, 3]
    assert {source.stored_size("test", index) for index in range(3)} == set(folders.SIZES)
    remaining, left_out = source.check_readable("test")
    assert (remaining.length("test"), left_out, source.skipped) == (3, (), ())
    for index in range(3):
        example = shown(source, "test", index)
        stored = np.asarray(Image.open(source.map_path(source._row("test", index))))
        expected = np.where(stored == 0, IGNORE, stored - 1) if kind == "ade20k" else stored
        assert (example.target.pixels == expected).all()
        assert example.image.shape[:2] == example.target.pixels.shape
    # Scored at the size in which they are stored, trained on at the size of the picture.
    assert source.example("test", 0, (6, 6)).target.pixels.shape != (6, 6)
    assert source.example("train", 0, (6, 6)).target.pixels.shape == (6, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_the_same_data_and_another_label_is_not(kind, made, tmp_path):
    root = made(kind)
    before = opened(kind, root).fingerprint("test").digest
    root = root.rename(tmp_path / "moved")
    assert opened(kind, root).fingerprint("test").digest == before
    path = root / SECOND[kind][1]
    values = np.array(Image.open(path))
    values[3, 4] = 1 if values[3, 4] != 1 else 2
    folders.index_png(path, values, palette=kind == "voc")
    assert opened(kind, root).fingerprint("test").digest != before


def test_names_are_those_of_the_data_set(made):
    root = made("ade20k")
    assert opened("ade20k", root).pixel_classes[:2] == ("1", "2")
    lines = [f"{number}\t0.1\t10\t1\tthing {number}" for number in range(1, 151)]
    (root / "objectInfo150.txt").write_text("\n".join(["Idx\tRatio\tTrain\tVal\tName", *lines]))
    assert opened("ade20k", root).pixel_classes[149] == "thing 150"
    (root / "objectInfo150.txt").write_text("\n".join(["Idx\tRatio\tTrain\tVal\tName", *lines[:-1]]))
    with pytest.raises(InputError, match=r"objectInfo150\.txt"):
        opened("ade20k", root)
    assert opened("cityscapes", made("cityscapes")).pixel_classes[13] == "car"
    assert opened("voc", made("voc")).pixel_classes[0] == "background"
    root = made("masks")
    assert opened("masks", root).pixel_classes == tuple("0123456")
    (root / "classes.txt").write_text("\n".join("abcdefgh"))
    assert opened("masks", root).pixel_classes == tuple("abcdefgh")
    (root / "classes.txt").write_text("a\nb\na\n")
    with pytest.raises(InputError, match=r"classes\.txt:3: "):
        opened("masks", root)


def test_ids_of_cityscapes_become_those_of_training(made):
    root = made("cityscapes", kind="labelIds", allowed=range(34))
    source = opened("cityscapes", root)
    stored = np.asarray(Image.open(source.map_path(source._row("test", 0))))
    pixels = shown(source, "test", 0).target.pixels
    for id, name in ((7, "road"), (26, "car"), (33, "bicycle")):
        assert (pixels[stored == id] == source.pixel_classes.index(name)).all()
    assert (pixels[np.isin(stored, [0, 9, 16, 29, 30])] == IGNORE).all()
    # Where both are there, that of trainIds is read.
    folders.index_png(root / SECOND["cityscapes"][1], np.full(folders.SIZES[1], 4))
    assert (shown(opened("cityscapes", root), "test", 2).target.pixels == 4).all()


@pytest.mark.parametrize("kind", ["ade20k", "cityscapes", "masks"])
def test_a_map_without_an_image_is_named(kind, made):
    root = made(kind)
    (root / SECOND[kind][0]).unlink()
    assert [one.path for one in opened(kind, root).skipped] == [str(root / SECOND[kind][1])]


def refused(kind, root):
    """What is said of the one image that cannot be read, before anything is decoded; the rest with one left out."""
    with pytest.raises(UnreadableDataError) as caught:
        opened(kind, root).check_readable("test")
    remaining, left_out = opened(kind, root).check_readable("test", skip_unreadable=1)
    assert (remaining.length("test"), len(remaining.skipped)) == (2, 1)
    assert [one.path for one in left_out] == [str(root / SECOND[kind][0])]
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_of_another_size_and_one_that_is_no_image(kind, made):
    root = made(kind)
    path = root / SECOND[kind][1]
    folders.index_png(path, np.ones((16, 10)))
    assert str(path) in refused(kind, root)
    path.write_bytes(b"none")
    assert f"{path}: " in refused(kind, root)


def decoded(kind, root):
    """What is said where the second image of the split that measures is decoded."""
    source = opened(kind, root)
    index = next(at for at in range(3) if source.example_name("test", at) == str(root / SECOND[kind][0]))
    with pytest.raises(UnreadableDataError) as caught:
        source.example("test", index, (8, 8))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_outside_the_range_and_a_map_that_is_cut_or_has_colours(kind, made):
    root = made(kind)
    if kind == "masks":
        (root / "classes.txt").write_text("\n".join("abcdefg"))
    path = root / SECOND[kind][1]
    for value, bits in ((200, 8), (4711, 16)):
        values = np.ones(folders.SIZES[1], f"uint{bits}")
        values[3, 5] = values[9, 0] = value
        Image.fromarray(values).save(path)
        assert decoded(kind, root).startswith(f"{path}: value {value} at")
    path.write_bytes(path.read_bytes()[:-60])
    assert decoded(kind, root).startswith(f"{path}: ")
    folders.picture(path, folders.SIZES[1], 0)
    assert "colour" in decoded(kind, root)
    # A lossy format would change the numbers.
    Image.fromarray(np.ones(folders.SIZES[1], np.uint8)).save(path, "JPEG")
    assert "JPEG" in decoded(kind, root)


def test_a_map_is_of_the_upright_image(made):
    """As the image is shown; one of the image as its camera wrote it has another shape, and is refused."""
    root = made("ade20k")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.open(root / SECOND["ade20k"][0])
    picture.save(root / SECOND["ade20k"][0], exif=exif)
    refused("ade20k", root)
    folders.index_png(root / SECOND["ade20k"][1], np.full((9, 16), 8))
    example = shown(opened("ade20k", root), "test", 1)
    assert example.image.shape[:2] == (9, 16)
    assert (example.target.pixels == 7).all()


def test_an_image_in_two_splits(made):
    root = made("voc")
    lists = root / "ImageSets" / "Segmentation"
    for content, place in (("2007_000010\n2007_000002\n", "val.txt: "), ("2007_000010\n2007_000010\n", "val.txt:2: ")):
        (lists / "val.txt").write_text(content)
        with pytest.raises(InputError, match=place):
            opened("voc", root)
    root = made("masks")
    (root / SECOND["masks"][0]).write_bytes((root / "images/train/deep/1.png").read_bytes())
    assert [one.path for one in opened("masks", root).skipped] == [str(root / SECOND["masks"][0])]
