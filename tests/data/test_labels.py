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


def test_true_and_false_are_words(tmp_path):
    datasets = pytest.importorskip("datasets")
    labels = [True, False, True, False]
    for source in (
        HuggingFace("mine", tables({"train": labels}, datasets.Value("bool"))),
        WebDataset(shards(tmp_path, {"train": labels}, "json")),
    ):
        assert (source.classes, source.labels) == (("false", "true"), [1, 0, 1, 0])


def test_words_that_are_no_labels_are_refused(tmp_path):
    captions = [f"a picture of {number}" for number in range(4)] + ["a cat"] * 3
    with pytest.raises(InputError, match="5 words"):
        HuggingFace("mine", tables({"train": captions}, column="caption"), label="caption")
    with pytest.raises(InputError, match="5 words"):
        WebDataset(f"{shards(tmp_path, {'train': captions}, 'txt')},label=txt")
    with pytest.raises(InputError, match="candidates: caption"):
        HuggingFace("mine", tables({"train": WORDS}, column="caption")).length("train")
    # A member of text is taken for a label where it is named alone.
    with pytest.raises(UnreadableDataError):
        WebDataset(shards(tmp_path / "b", {"train": WORDS}, "txt")).length("train")


def test_names_in_a_file_are_those_of_the_words(tmp_path):
    (tmp_path / "classes.txt").write_text("dog\ncat\nAnt\n")
    source = WebDataset(f"{shards(tmp_path, {'train': WORDS}, 'json')}")
    assert (source.classes, source.labels) == (("dog", "cat", "Ant"), [1, 0, 2, 1, 0, 2])


def test_what_is_remembered_of_words_is_what_was_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    spec = shards(tmp_path / "a", {"train": WORDS, "test": ("cat", "bee", "dog")}, "json")
    first, again = WebDataset(spec), WebDataset(spec)
    assert (again.classes, again.labels, again._faults) == (first.classes, first.labels, first._faults)


def test_options_may_be_written_in_any_case(tmp_path):
    """Extensions are read in lower case; a field is called as it is."""
    members = []
    for number in range(4):
        members += [(f"{number}.PNG", PNGS[number]), (f"{number}.Label", b"%d" % (number % 2))]
    write_tar(tmp_path / "a" / "train.tar", members)
    for options in (",label=Label", ",label=label,image=PNG", ",label=LABEL,image=png"):
        assert WebDataset(f"{tmp_path / 'a'}{options}").labels == [0, 1, 0, 1]
    fields = [(f"{number}.json", json.dumps({"Label": number % 2}).encode()) for number in range(4)]
    write_tar(tmp_path / "b" / "train.tar", [*members[::2], *fields])
    assert WebDataset(f"{tmp_path / 'b'},label=Label").labels == [0, 1, 0, 1]


def test_names_with_dots_are_said_to_be_that(tmp_path):
    members = []
    for number in range(4):
        members += [(f"img.v2.{number}.png", PNGS[number]), (f"img.v2.{number}.cls", b"0")]
    write_tar(tmp_path / "train.tar", members)
    with pytest.raises(UnreadableDataError, match="first dot"):
        WebDataset(str(tmp_path)).length("test")


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
