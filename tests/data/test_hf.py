"""Data sets of Hugging Face: which columns, which splits, what is refused, and what a row may lack."""

import logging
import sys

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


def test_without_a_column_of_classes_the_candidates_are_named(tmp_path):
    other = datasets.Dataset.from_dict({"raw": PNGS, "n": list(range(6)), "text": ["a"] * 6})
    spec = write(tmp_path / "a", train=other)
    for options, named in (("", "candidates: raw"), (",image=raw", "candidates: n, text")):
        with pytest.raises(InputError, match=named):
            open_source(f"{spec}{options}").length("train")


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


def test_rows_in_another_order(tmp_path):
    shuffled = table().select([3, 1, 0])
    source = HuggingFace("mine", {"train": shuffled})
    assert source.labels == [1, 1, 0]
    assert [source.stored_size("train", index) for index in range(3)] == [(14, 15)] * 3
    for index, number in enumerate((3, 1, 0)):
        assert np.array_equal(read_image(source.listing.image(index)), PIXELS[number])
    sliced = HuggingFace("mine", {"train": datasets.concatenate_datasets([table().select(range(2, 4)), table()])})
    assert [np.array_equal(read_image(sliced.listing.image(row)), PIXELS[number])
            for row, number in enumerate((2, 3, 0, 1, 2, 3))] == [True] * 6  # fmt: skip


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


def test_what_stands_in_the_way_is_said_and_nothing_else(tmp_path, refused, caplog):
    """Files of other columns: the library's own words are that an error occurred, and the reason stands in its log."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for split, name in (("train", "image"), ("test", "picture")):
        pq.write_table(pa.table({name: PNGS[:2], "label": [0, 1]}), tmp_path / f"{split}.parquet")
    logger = logging.getLogger("datasets")
    logger.addHandler(caplog.handler)
    refused("data", "check", f"hf:{tmp_path},image=image,label=label", says=["column names"])
    logger.removeHandler(caplog.handler)
    assert caplog.records == []


def test_splits_whose_classes_are_called_in_another_order_are_refused():
    """Its numbers are other classes: measured by the names of the first split, all would be wrong without a word."""
    with pytest.raises(InputError, match=r"'bee' .*'ant'"):
        HuggingFace("mine", {"train": table(), "test": table(names=("bee", "ant"))})
    more = HuggingFace("mine", {"train": table(), "test": table((2, 0, 1, 0, 1), names=("ant", "bee", "cat"))})
    assert more.classes == ("ant", "bee")


def test_without_the_library(tmp_path, monkeypatch, refused):
    spec = saved(tmp_path / "a", images(count=1))
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused("data", "check", spec, says=["'.[hf]'"])
