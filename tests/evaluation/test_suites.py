"""Suites: small data in the true form of each, with scores computed by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from sightline.errors import InputError
from sightline.evaluation.imagenet import described, reassessed, subset, synsets
from sightline.evaluation.logits import find_logits, read_logits, rescore
from sightline.evaluation.suites.base import open_suite
from sightline.results.rows import read_rows
from tests.evaluation.suite_data import answering, imagenet_s, model_folder, objectnet, picture, validation

# By their ILSVRC numbers; the second has two reassessed labels, the first none.
VAL = {1: 65, 2: 970, 3: 230, 4: 809}


@pytest.fixture
def scores(tmp_path, cli):
    """`scores(suite, *options)`: (top1, top5, images, classes) by the data of the rows."""

    def measure(suite, *options, model=None):
        model = model or model_folder(tmp_path / "model")
        out = tmp_path / "out"
        code, _, err = cli(
            "evaluate",
            model,
            "--suite",
            suite,
            "--out",
            out,
            "--precision",
            "float32",
            "--resolutions",
            16,
            "--logits",
            *options,
        )
        assert code == 0, err
        rows = read_rows(out / "results.jsonl")
        again = [row for file in find_logits(out / "logits") for row in rescore(read_logits(file))]
        key = str
        assert sorted(map(key, again)) == sorted(map(key, rows))
        measure.rows, measure.err = rows, err
        whole = [row for row in rows if not row.slices]
        found = {}
        for row in whole:
            if row.metric in ("top1", "top5"):
                found.setdefault(row.data, []).append(row.value)
        return {data: (*both, _count(whole, data), _classes(whole, data)) for data, both in found.items()}

    return measure


def _count(rows, data):
    (count,) = {row.count for row in rows if row.data == data}
    return count


def _classes(rows, data):
    (classes,) = {row.classes for row in rows if row.data == data}
    return classes


def test_what_is_known_of_imagenet():
    """From timm's files: their lengths, and single values that everybody knows."""
    assert len(set(synsets())) == len(described()) == 1000
    assert synsets()[207] == "n02099601"
    assert described()[207] == "golden retriever"
    assert [len(subset(one)) for one in "ar"] == [200, 200]
    assert subset("a")[:3] == (6, 11, 13)
    assert subset("r")[:3] == (1, 2, 4)
    assert len(reassessed()) == 50_000
    assert reassessed()[:4] == ((), (970, 795), (230, 231), (809,))


def test_real_counts_any_label_and_leaves_out_what_has_none(scores, tmp_path, monkeypatch):
    validation(tmp_path / "root" / "val", VAL)
    answers = {"_00000001.": [65], "_00000002.": [795, 970], "_00000003.": [1, 231, 2, 3, 4], "_00000004.": [809]}
    shown = answering(monkeypatch, answers)
    found = scores(f"imagenet:{tmp_path / 'root'}")
    assert found == {"imagenet": (2 / 4, 3 / 4, 4, 1000), "imagenet-real": (2 / 3, 3 / 3, 3, 1000)}
    # One pass for both.
    assert len(shown) == 4
    (file,) = find_logits(tmp_path / "out" / "logits")
    stored = read_logits(file)
    assert stored.labels.tolist() == list(VAL.values())
    assert [one.right for one in stored.scorings] == [None, [[], [795, 970], [230, 231], [809]]]
    assert "imagenet-v2" in scores.err


@pytest.mark.parametrize(
    "beside",
    [
        ("LOC_val_solution.csv", "ImageId,PredictionString\n{name},{synset} 85 1 499 272 \n"),
        ("val.txt", "{name}.JPEG {number}\n"),
        ("val_map.txt", "{name}.JPEG {synset}\n"),
    ],
)
def test_images_in_one_folder_have_their_classes_beside_them(beside, scores, tmp_path, monkeypatch):
    root = tmp_path / "root"
    validation(root / "ILSVRC" / "Data" / "CLS-LOC" / "val", {3: 230, 40: 809}, flat=True)
    name, text = beside
    *lines, line = text.splitlines()
    for number, label in ((40, 809), (3, 230)):
        lines.append(line.format(name=f"ILSVRC2012_val_{number:08d}", synset=synsets()[label], number=label))
    (root / name).write_text("\n".join(lines) + "\n")
    answering(monkeypatch, {"_00000003.": [230], "_00000040.": [230, 809]})
    found = scores(f"imagenet:{root},parts=val")
    assert found["imagenet"] == (1 / 2, 2 / 2, 2, 1000)


@pytest.mark.parametrize("letter", ["a", "r"])
def test_two_hundred_classes_and_all(letter, scores, tmp_path, monkeypatch):
    first, second = subset(letter)[:2]
    other = next(number for number in range(1000) if number not in subset(letter))
    root = tmp_path / "root" / f"imagenet-{letter}"
    for number in (first, second):
        picture(root / synsets()[number] / f"of_{number}.jpg")
    (root / "README.txt").write_text("not an image")
    answering(monkeypatch, {f"of_{first}.": [other, first], f"of_{second}.": [second]})
    found = scores(f"imagenet:{tmp_path / 'root'}")
    assert found == {f"imagenet-{letter}": (1.0, 1.0, 2, 200), f"imagenet-{letter}-1000": (1 / 2, 1.0, 2, 1000)}


def test_folders_of_v2_are_numbers(scores, tmp_path, monkeypatch):
    """Sorted as strings, "10" stands before "2"."""
    root = tmp_path / "root"
    variants = ("matched-frequency", "threshold0.7", "top-images")
    for variant in variants:
        for number in (0, 2, 10):
            picture(root / f"imagenetv2-{variant}-format-val" / str(number) / f"{variant}{number}.jpeg", seed=number)
    answers = {f"{variant}{number}.": [number] for variant in variants for number in (0, 2, 10)}
    answers["top-images2."] = [10, 2]
    answers["threshold0.72."] = answers["threshold0.710."] = [1, 4, 5, 6, 7]
    shown = answering(monkeypatch, answers)
    assert scores(f"imagenet:{root},parts=v2") == {
        "imagenet-v2-matched-frequency": (1.0, 1.0, 3, 1000),
        "imagenet-v2-threshold-0.7": (1 / 3, 1 / 3, 3, 1000),
        "imagenet-v2-top-images": (2 / 3, 1.0, 3, 1000),
        "imagenet-v2": (6 / 9, 7 / 9, 9, 1000),
    }
    assert len(shown) == 9


def test_hr_has_several_right_answers(scores, tmp_path, monkeypatch):
    root = tmp_path / "root" / "ImageNet-HR"
    labels = {"1_0.png": [0], "7_836.png": [836, 837], "8_836.png": [837, 836]}
    for name in labels:
        picture(root / "test" / name)
    lines = [json.dumps({"file_name": f"test/{name}", "img_idx": 0, "labels": some}) for name, some in labels.items()]
    (root / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    answering(monkeypatch, {"1_0.": [1, 2, 3, 4, 5], "7_836.": [836], "8_836.": [836]})
    assert scores(f"imagenet:{tmp_path / 'root'}") == {"imagenet-hr": (2 / 3, 2 / 3, 3, 1000)}
    (root / "metadata.jsonl").write_text('{"file_name": "test/1_0.png", "labels": [1000]}\n')
    with pytest.raises(InputError, match=r"metadata\.jsonl:1:"):
        open_suite(f"imagenet:{tmp_path / 'root'}")


def test_sketch_and_a_place_of_its_own(scores, tmp_path, monkeypatch):
    for number in (3, 500):
        picture(tmp_path / "elsewhere" / synsets()[number] / f"sketch_{number}.JPEG")
    answering(monkeypatch, {"sketch_3.": [3], "sketch_500.": [3, 500]})
    assert scores(f"imagenet:,sketch={tmp_path / 'elsewhere'}") == {"imagenet-sketch": (1 / 2, 1.0, 2, 1000)}


def test_objectnet_by_its_own_maps(scores, tmp_path, monkeypatch):
    """Its files number ImageNet's classes otherwise than torch sorts them; two classes are right of a clock."""
    objectnet(tmp_path / "root")
    answers = {"alarm_clock0.": [530], "alarm_clock1.": [409], "banana0.": [954], "banana1.": [700, 530]}
    shown = answering(monkeypatch, answers)
    assert scores(f"objectnet:{tmp_path / 'root'}") == {"objectnet": (3 / 4, 3 / 4, 4, 1000)}
    # Nothing of a class that ImageNet lacks was asked.
    assert len(shown) == 4


def test_accuracy_by_the_size_of_objects(scores, tmp_path, monkeypatch):
    few, many = synsets()[10], synsets()[20]
    counts = [(few, 40), (many, 2), (many, 90), (few, 11), (few, 25), (many, 3)]
    imagenet_s(tmp_path / "root", counts)
    answers = {f"_{number + 1:08d}.": [20 if name == many else 10] for number, (name, _) in enumerate(counts)}
    # The two smallest: of one the answer is wrong.
    answers["_00000006."] = [10]
    answering(monkeypatch, answers)
    assert scores(f"imagenet-s:{tmp_path / 'root'}")["imagenet-s"][0] == 5 / 6
    fifths = {
        row.slices["size_quintile"]: (row.value, row.count) for row in scores.rows if "size_quintile" in row.slices
    }
    assert fifths == {1: (1 / 2, 2), 2: (1.0, 1), 3: (1.0, 1), 4: (1.0, 1), 5: (1.0, 1)}
    (file,) = find_logits(tmp_path / "out" / "logits")
    stored = read_logits(file)
    sizes = {name[-13:-5]: one["size"] for name, one in zip(stored.names, stored.slices, strict=True)}
    # Of the 99 pixels that are said.
    assert sizes["00000001"] == 40 / 99
    assert sizes["00000006"] == 3 / 99


def test_corrupted_validation_images(scores, tmp_path, monkeypatch):
    validation(tmp_path / "root" / "val", {3: 230, 4: 809})
    answering(monkeypatch, {"_00000003.": [230], "_00000004.": [1, 2, 3, 4, 5]})
    found = scores(f"imagenet-c:{tmp_path / 'root'},corruptions=fog+contrast,severities=1+5")
    names = {f"imagenet-c-{kind}-{level}" for kind in ("fog", "contrast") for level in (1, 5)}
    assert found == dict.fromkeys(names, (1 / 2, 1 / 2, 2, 1000))


def test_a_model_that_numbers_the_classes_otherwise(scores, tmp_path, monkeypatch):
    """By their synsets, where it knows them: in another order the same answers are right."""
    names = synsets()[::-1]
    model = model_folder(tmp_path / "other", class_names=names)
    validation(tmp_path / "root" / "val", VAL)
    picture(tmp_path / "root" / "imagenet-a" / synsets()[6] / "of_a.jpg")
    answers = {"_00000001.": [65], "_00000002.": [795], "_00000003.": [1], "_00000004.": [809], "of_a.": [0, 6]}
    answering(monkeypatch, {part: [999 - number for number in some] for part, some in answers.items()})
    found = scores(f"imagenet:{tmp_path / 'root'}", model=model)
    assert {data: (one[0], one[2]) for data, one in found.items()} == {
        "imagenet": (2 / 4, 4), "imagenet-real": (2 / 3, 3), "imagenet-a": (1.0, 1), "imagenet-a-1000": (0.0, 1),
    }  # fmt: skip


def test_words_for_the_classes_are_taken_for_what_they_are(scores, tmp_path, monkeypatch, refused):
    validation(tmp_path / "root" / "val", {4: 809})
    answering(monkeypatch, {"_00000004.": [809]})
    model = model_folder(tmp_path / "timm", class_names=(*described()[:-1], "something else"))
    assert scores(f"imagenet:{tmp_path / 'root'}", model=model)["imagenet"] == (1.0, 1.0, 1, 1000)
    other = model_folder(tmp_path / "other", class_names=tuple(f"class {number}" for number in range(1000)))
    words = ("evaluate", other, "--suite", f"imagenet:{tmp_path / 'root'}", "--out", tmp_path / "refused")
    refused(*words, says=["'class 0'", "n01440764"])
    assert not (tmp_path / "refused").exists()


def test_a_data_set_of_hugging_face(scores, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    names = [synsets()[number] for number in subset("a")[::-1]]
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=names))
    images = [Image.fromarray(np.full((8, 8, 3), shade, np.uint8)) for shade in (10, 200)]
    part = datasets.Dataset.from_dict({"image": images, "label": [0, 199]}, features=features)
    datasets.DatasetDict({"test": part}).save_to_disk(str(tmp_path / "saved"))
    last, first = subset("a")[-1], subset("a")[0]
    answering(monkeypatch, {"saved:test/0": [last], "saved:test/1": [0, first]})
    found = scores(f"imagenet:,a=hf:{tmp_path / 'saved'}")
    assert found == {"imagenet-a": (1.0, 1.0, 2, 200), "imagenet-a-1000": (1 / 2, 1.0, 2, 1000)}


@pytest.mark.parametrize(("limit", "images"), [((), 3), (("--images", 3), 2)])
def test_what_cannot_be_read_moves_no_label(limit, images, scores, tmp_path, monkeypatch):
    """One file is no image: every other keeps its own right answers."""
    root = validation(tmp_path / "root" / "val", VAL)
    (root / synsets()[230] / "ILSVRC2012_val_00000003.JPEG").write_text("no image")
    answering(monkeypatch, {"_00000001.": [65], "_00000002.": [795], "_00000004.": [809]})
    found = scores(f"imagenet:{tmp_path / 'root'}", "--skip-unreadable", 1, *limit)
    assert found["imagenet"][2] == images
    # The first has no reassessed label.
    assert found["imagenet-real"] == (1.0, 1.0, images - 1, 1000)
