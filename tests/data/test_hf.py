"""Data sets of Hugging Face: which columns, which splits, what is refused, and what a row may lack."""

import numpy as np
import pytest
from PIL import Image

from sightline.data.image_file import read_image
from sightline.data.open import open_source
from sightline.data.sources.hf import HuggingFace
from sightline.errors import InputError, UnreadableDataError
from tests.data.three_kinds import encoded, images, saved

datasets = pytest.importorskip("datasets")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 14, 15, 3), dtype=np.uint8)
PNGS = [encoded(pixels) for pixels in PIXELS]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "arrow")


def table(labels=(0, 1, 0, 1), names=("ant", "bee"), **more):
    """Rows of an image and a label; `more` are other columns, as (values, feature)."""
    features = {"img": datasets.Image(), "fine": datasets.ClassLabel(names=list(names))}
    values = {"img": [{"bytes": one, "path": None} for one in PNGS[: len(labels)]], "fine": list(labels)}
    for name, (column, feature) in more.items():
        values[name], features[name] = column, feature
    return datasets.Dataset.from_dict(values, features=datasets.Features(features))


def write(place, **parts):
    datasets.DatasetDict(parts).save_to_disk(place)
    return f"hf:{place}"


def unreadable(source, split="train"):
    _, lost = source.check_readable(split, skip_unreadable="all")
    return {one.path.rpartition(":")[2]: one.reason for one in lost}


def test_the_only_columns_are_found_and_others_by_name(tmp_path):
    spec = write(tmp_path / "a", train=table(), test=table().select([3]).map(lambda row: row))
    with pytest.raises(InputError, match="splits overlap"):
        open_source(spec)
    spec = write(tmp_path / "b", train=table())
    source = open_source(spec)
    assert (source.splits, source.classes, source.labels) == (("train",), ("ant", "bee"), [0, 1, 0, 1])
    more = {
        "coarse": ([1, 1, 0, 0], datasets.ClassLabel(names=["x", "y"])),
        "mask": ([{"bytes": one, "path": None} for one in PNGS[1:5]], datasets.Image()),
        "raw": (PNGS[2:6], datasets.Value("binary")),
        "number": ([4, 0, 2, 2], datasets.Value("int16")),
        "score": ([0.5] * 4, datasets.Value("float32")),
    }
    spec = write(tmp_path / "c", train=table(**more))
    with pytest.raises(InputError, match="img, mask"):
        open_source(spec)
    with pytest.raises(InputError, match="fine, coarse"):
        open_source(f"{spec},image=mask").length("train")
    for image, first in (("img", 0), ("mask", 1), ("raw", 2)):
        source = open_source(f"{spec},image={image},label=coarse")
        assert (source.classes, source.labels) == (("x", "y"), [1, 1, 0, 0])
        assert np.array_equal(read_image(source.listing.image(1)), PIXELS[first + 1])
    source = open_source(f"{spec},image=img,label=number")
    assert (source.classes, source.labels) == (("0", "1", "2", "3", "4"), [4, 0, 2, 2])
    for options in ("image=score,label=fine", "image=img,label=score", "image=imgs,label=fine"):
        with pytest.raises(InputError, match=r"score|imgs"):
            open_source(f"{spec},{options}")


def test_a_data_set_without_splits_is_measured_alone(tmp_path):
    table().save_to_disk(tmp_path / "a")
    assert open_source(f"hf:{tmp_path}/a").splits == ("test",)
    for spec in (f"hf:{tmp_path}/a", write(tmp_path / "b", extra=table())):
        with pytest.raises(InputError):
            open_source(spec).length("train")


def test_rows_without_an_image_or_a_label(tmp_path):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    there = tmp_path / "there.png"
    Image.fromarray(PIXELS[5]).save(there)
    rows = {
        "image": [{"bytes": PNGS[0], "path": None}, None, {"bytes": b"", "path": "a.png"},
                  {"bytes": None, "path": str(there)}, {"bytes": None, "path": str(tmp_path / "gone.png")},
                  {"bytes": PNGS[1], "path": None}, {"bytes": PNGS[2], "path": None},
                  {"bytes": None, "path": "a\0.png"}],
        "label": [0, 1, 1, 1, 0, None, -1, 0],
    }  # fmt: skip
    # As it is in memory: what is saved has its files inside.
    source = HuggingFace("mine", {"train": datasets.Dataset.from_dict(rows, features=features)})
    found = unreadable(source)
    assert list(found) == [f"train/{row}" for row in (1, 2, 4, 5, 6, 7)]
    assert str(tmp_path / "gone.png") in found["train/4"]
    assert np.array_equal(read_image(source.listing.image(3)), PIXELS[5])
    assert source.listing.stats[3, 0] == there.stat().st_size
    with pytest.raises(UnreadableDataError, match=r"^mine:train/6: "):
        source.example("train", 6, (8, 8))


@pytest.mark.parametrize(
    "argument",
    ["", "{root}/none", "../none", "nobody/nothing", "{root}/empty", "{root}/saved,config=x", "{root}/saved,imag=x",
     "{root}/saved,streaming=true"],
)  # fmt: skip
def test_refusals(argument, tmp_path):
    (tmp_path / "empty").mkdir()
    saved(tmp_path / "saved", images(count=1))
    with pytest.raises(InputError):
        open_source(f"hf:{argument.format(root=tmp_path)}")
    with pytest.raises(InputError):
        HuggingFace("mine", {"train": table().to_iterable_dataset()})


def test_splits_whose_classes_are_called_in_another_order_are_refused():
    """Its numbers are other classes: measured by the names of the first split, all would be wrong without a word."""
    with pytest.raises(InputError, match=r"'bee' .*'ant'"):
        HuggingFace("mine", {"train": table(), "test": table(names=("bee", "ant"))})
    more = HuggingFace("mine", {"train": table(), "test": table((2, 0, 1, 0, 1), names=("ant", "bee", "cat"))})
    assert more.classes == ("ant", "bee")
