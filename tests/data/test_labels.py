"""Labels that are withheld, and labels that are words, in every reader that has labels of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sightline import load_model
from sightline.data.folder_check import check_folder
from sightline.data.image_list import list_images
from sightline.data.open import open_source
from sightline.data.sources.hf import HuggingFace
from sightline.data.sources.wds import WebDataset
from sightline.errors import InputError, UnreadableDataError
from sightline.results.predictions import read_predictions
from tests.clips import frames_of, save_folder
from tests.data.test_image_folder import save
from tests.data.three_kinds import encoded, write_tar

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 9, 11, 3), dtype=np.uint8)
PNGS = [encoded(pixels) for pixels in PIXELS]
WORDS = ("cat", "dog", "Ant", "cat", "dog", "Ant")
SHARDS = {
    "cls": lambda label: ("cls", b"-1" if label is None else str(label).encode()),
    "json": lambda label: ("json", json.dumps({"label": label}).encode()),
    "txt": lambda label: ("txt", b"" if label is None else f"{label}\n".encode()),
}


def shards(root, parts, kind):
    number = 0
    for split, labels in parts.items():
        members = []
        for label in labels:
            key = f"{number:03}"
            members += [(f"{key}.png", PNGS[number]), (f"{key}.{(said := SHARDS[kind](label))[0]}", said[1])]
            number += 1
        write_tar(root / f"{split}.tar", members)
    return str(root)


def tables(parts, feature=None, column="label"):
    datasets = pytest.importorskip("datasets")
    features, made, number = {"image": datasets.Image()}, {}, 0
    for split, labels in parts.items():
        rows = [{"bytes": one, "path": None} for one in PNGS[number : number + len(labels)]]
        said = features | {column: feature or datasets.Value("string")}
        made[split] = datasets.Dataset.from_dict({"image": rows, column: list(labels)}, datasets.Features(said))
        number += len(labels)
    return made


def opened(reader, tmp_path, parts, numbers=False):
    """The same labels in a kind of data set."""
    if reader in SHARDS:
        return WebDataset(shards(tmp_path, parts, reader) + (",label=txt" if reader == "txt" else ""))
    datasets = pytest.importorskip("datasets")
    if reader == "parquet":
        datasets.config.HF_DATASETS_CACHE = tmp_path / "arrow"
        for split, table in tables(parts, datasets.Value("int64") if numbers else None).items():
            (tmp_path / "data").mkdir(parents=True, exist_ok=True)
            table.to_parquet(tmp_path / "data" / f"{split}-0.parquet")
        return open_source(f"hf:{tmp_path}")
    return HuggingFace("mine", tables(parts, datasets.Value("int64") if numbers else None))


@pytest.mark.parametrize("withheld", [None, -1])
@pytest.mark.parametrize("reader", ["cls", "json", "hf", "parquet"])
def test_a_split_without_labels_is_not_measured(reader, withheld, tmp_path):
    parts = {"train": [0, 1, 0, 1], "validation": [1, 0], "test": [withheld] * 3}
    source = opened(reader, tmp_path, parts, numbers=True)
    assert (source.splits, source.length("train"), source.length("test")) == (("train", "test"), 4, 2)
    assert source.example("test", 0, (8, 8)).target.label == 1
    assert source.check_readable("test")[1] == ()
    [said] = [one for one in source.skipped if "no labels" in one.reason]
    assert said.path.endswith("test")
    assert "validation" in said.reason
    found = check_folder(source)
    assert found.counts["test"] == {"no label": 3}
    assert found.unreadable == {"train": (), "validation": (), "test": ()}


def test_a_missing_column_and_a_folder_without_class_folders(tmp_path, cli):
    datasets = pytest.importorskip("datasets")
    parts = tables({"train": [0, 1, 0, 1], "test": [0, 0]}, datasets.ClassLabel(names=["a", "b"]))
    source = HuggingFace("mine", parts | {"test": parts["test"].remove_columns("label")})
    assert source.splits == ("train",)
    with pytest.raises(InputError, match="test"):
        source.length("test")
    for number, name in enumerate(("train/a/0", "train/b/0", "val/a/0", "test/0", "test/1")):
        save(tmp_path / f"{name}.png", number)
    source = open_source(f"imagefolder:{tmp_path}")
    assert (source.splits, source.length("test"), source.classes) == (("train", "test"), 1, ("a", "b"))
    assert source.example_name("test", 0) == f"{tmp_path}/val/a/0.png"
    # Their answers are what a test set without labels is for.
    assert list_images([f"imagefolder:{tmp_path}"])[3:] == [f"{tmp_path}/test/{number}.png" for number in (0, 1)]
    code, out, err = cli("data", "check", f"imagefolder:{tmp_path}")
    assert code == 0, err
    assert "no label" in out
    assert f"{tmp_path}/test: " in out


def test_folders_of_frames_without_class_folders(tmp_path):
    for number, name in enumerate(("train/a/c", "train/b/c", "val/a/c", "test/c", "test/d")):
        save_folder(tmp_path / name, frames_of(number, 2))
    source = open_source(f"clips:{tmp_path}")
    assert (source.splits, source.classes, source.length("test")) == (("train", "test"), ("a", "b"), 1)
    assert [one.path for one in source.skipped] == [f"{tmp_path}/test"]
    assert [str(one) for one in list_images([f"clips:{tmp_path}"])[3:]] == [f"{tmp_path}/test/{one}" for one in "cd"]


@pytest.mark.parametrize("reader", ["cls", "json", "hf"])
def test_single_labels_that_miss_are_rows_that_cannot_be_read(reader, tmp_path):
    source = opened(reader, tmp_path, {"train": [0, 1, 0, 1], "val": [0], "test": [1, None, -1]}, numbers=True)
    assert source.splits == ("train", "minival", "test")
    assert len(source.check_readable("test", skip_unreadable="all")[1]) == 2
    # Where nothing has a label, each image is one without.
    with pytest.raises(UnreadableDataError):
        opened(reader, tmp_path / "none", {"test": [None, -1]}, numbers=True).check_readable("test")


def test_an_image_is_not_left_out_for_one_without_a_label(tmp_path):
    for number, name in enumerate(("train/a/0", "train/b/0", "val/a/0", "val/b/0")):
        save(tmp_path / f"{name}.png", number)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "0.png").write_bytes((tmp_path / "val" / "a" / "0.png").read_bytes())
    assert open_source(f"imagefolder:{tmp_path}").length("test") == 2


@pytest.mark.parametrize("reader", ["json", "txt", "hf", "parquet"])
def test_classes_are_the_words_of_train_by_code_point(reader, tmp_path):
    source = opened(reader, tmp_path, {"train": WORDS, "val": ("dog", "bee", None, "cat", "-1", "")})
    assert source.classes == ("Ant", "cat", "dog")
    assert [source.example("train", index, (8, 8)).target.label for index in range(6)] == [1, 2, 0, 1, 2, 0]
    left, lost = source.check_readable("val", skip_unreadable="all")
    assert [left.example("val", index, (8, 8)).target.label for index in range(2)] == [2, 1]
    assert "'bee'" in lost[0].reason
    assert len(lost) == 4
    # Seen from its own words the classes are others; a run maps them by their names.
    assert opened(reader, tmp_path / "alone", {"val": ("dog", "cat", "dog", "cat")}).classes == ("cat", "dog")


def test_a_run_keeps_its_words_and_measures_by_them(tmp_path, cli):
    spec = f"wds:{shards(tmp_path / 'data', {'train': WORDS * 2, 'val': WORDS}, 'json')}"
    words = ["--model", "vit_micro_patch4", "--resolution", "8", "--images", "6", "--model_options.depth=1"]
    code, _, err = cli("train", "--data", spec, *words, "--out", tmp_path / "run", "--threads", "1")
    assert code == 0, err
    assert load_model(tmp_path / "run").config.class_names == ("Ant", "cat", "dog")
    other = f"wds:{shards(tmp_path / 'other', {'test': ('dog', 'cat', 'dog', 'cat')}, 'json')}"
    told = tmp_path / "told"
    code, _, err = cli("evaluate", tmp_path / "run", "--data", other, "--resolutions", "8", "--out", told)
    assert code == 0, err
    assert [one.label for one in read_predictions(told / "predictions.csv")] == ["dog", "cat", "dog", "cat"]
