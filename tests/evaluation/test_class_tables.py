"""Tables of classes from stored logits: which images, in which order, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sightline.errors import InputError
from sightline.evaluation.class_tables import class_rows, ilsvrc_number, stored_tables
from sightline.evaluation.logits import find_logits, read_logits, rescore, write_logits
from sightline.evaluation.scoring import Scoring
from tests.stored import store


def drawn(seed, images, classes):
    draw = np.random.default_rng(seed)
    # Few values, so that ties are the rule.
    return draw.integers(0, 3, (images, classes)).astype(np.float32), draw.integers(0, classes, images)


@pytest.mark.parametrize(("images", "classes"), [(1, 1), (1, 3), (23, 3), (1200, 7)])
def test_a_table_is_of_every_image_once(images, classes, tmp_path):
    logits, labels = drawn(0, images, classes)
    file = store(tmp_path, logits, labels)
    (one,) = stored_tables([file])
    assert (one.line, one.shown, one.trained) == ("a", "16 px", "16 px")
    # Of equal scores the first.
    answers = [max(range(classes), key=lambda one: (row[one], -one)) for row in logits.tolist()]
    assert one.answers.tolist() == answers
    assert one.labels.tolist() == labels.tolist()
    powers = np.exp(logits.astype(float))
    chances = powers / powers.sum(axis=1, keepdims=True)
    for number in range(classes):
        inside = labels == number
        expected = chances[inside].mean(axis=0) if inside.any() else np.zeros(classes)
        assert one.chances[number] == pytest.approx(expected, abs=1e-9)
    by_class = {(row.metric, row.slices["class"]): row for row in class_rows(one)}
    right = np.array(answers) == labels
    for number in range(classes):
        inside, said = labels == number, np.array(answers) == number
        assert (("top1", str(number)) in by_class) == inside.any()
        assert (("predicted", str(number)) in by_class) == (inside.any() or said.any())
        if inside.any():
            row = by_class["top1", str(number)]
            assert (row.value, row.count) == (pytest.approx(right[inside].mean()), inside.sum())
        if inside.any() or said.any():
            row = by_class["predicted", str(number)]
            assert (row.value, row.count, row.better) == (pytest.approx(said.mean()), images, "")
    # What they make together is top-1 of all.
    whole = next(row for row in rescore(read_logits(file)) if row.metric == "top1")
    parts = [row for row in class_rows(one) if row.metric == "top1"]
    assert sum(row.value * row.count for row in parts) / images == pytest.approx(whole.value)
    assert (parts[0].run, parts[0].resolution, parts[0].split) == ("a", 16, "test")


def test_of_what_is_scored_in_several_ways_it_is_that_by_labels_or_none(tmp_path):
    """ObjectNet's and ImageNet-HR's label is one of several right answers: a table by it alone would be wrong."""
    logits, labels = drawn(1, 30, 4)
    few, either = Scoring("few", [[one] for one in labels.tolist()], (0, 1, 2, 3)), Scoring("either", [[0, 1]] * 30)
    plain = read_logits(store(tmp_path / "plain", logits, labels))
    write_logits(tmp_path, "whole.npz", dataclasses.replace(plain, scorings=[few, Scoring("all")]))
    (one,) = stored_tables([tmp_path / "whole.npz"])
    assert {(row.data, row.classes) for row in class_rows(one)} == {("all", 4)}
    write_logits(tmp_path, "either.npz", dataclasses.replace(plain, scorings=[either]))
    with pytest.raises(InputError, match=r"either.npz"):
        stored_tables([tmp_path / "either.npz"])


def test_images_that_all_have_in_common_in_one_order(tmp_path):
    logits, labels = drawn(1, 30, 4)
    store(tmp_path, logits, labels)
    some = np.random.default_rng(2).permutation(30)[:12]
    store(tmp_path, logits[some] + 1, labels[some], indices=some, run="b")
    first, second = stored_tables(find_logits(tmp_path))
    assert first.labels.tolist() == labels[np.sort(some)].tolist() == second.labels.tolist()
    assert (first.answers == second.answers).all()
    store(tmp_path, logits[:1], labels[:1], indices=[99], run="c")
    with pytest.raises(InputError, match="classes"):
        stored_tables(find_logits(tmp_path))


def test_the_first_images_go_by_their_numbers(tmp_path):
    """In folders of classes, as they are read: the first by order are of one class alone."""
    logits, labels = drawn(3, 40, 4)
    order = np.argsort(labels, kind="stable")
    numbers = np.random.default_rng(4).permutation(40) + 1
    names = [f"val/n0{label}/ILSVRC2012_val_{number:08d}.JPEG" for label, number in zip(labels, numbers, strict=True)]
    file = store(tmp_path, logits[order], labels[order], names=[names[one] for one in order])
    (table,) = stored_tables([file], first=10)
    wanted = {int(number) for number in numbers if number <= 10}
    kept = [one for one in order if numbers[one] <= 10]
    assert len(wanted) == len(kept) == 10
    assert table.labels.tolist() == labels[kept].tolist()
    assert table.answers.tolist() == [int(logits[one].argmax()) for one in kept]
    assert len(set(table.labels.tolist())) > 1
    assert len(set(labels[order][:10].tolist())) == 1
    (whole,) = stored_tables([file], first=5000)
    assert len(whole.labels) == 40
    with pytest.raises(InputError, match=r"--first 0"):
        stored_tables([file], first=0)
    other = store(tmp_path, logits, labels, run="b")
    with pytest.raises(InputError, match=r"'0.png'"):
        stored_tables([other], first=10)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ILSVRC2012_val_00000001.JPEG", 1), ("val/n01440764/ILSVRC2012_val_00049999.JPEG", 49999),
        ("shards/val-0003.tar/ILSVRC2012_val_00000293_n01440764.jpg", 293), ("ILSVRC2012_test_00100000.JPEG", 100_000),
        ("n01440764_10026.JPEG", None), ("ILSVRC2012_val_7/1.png", None),
    ],
)  # fmt: skip
def test_numbers(name, number):
    assert ilsvrc_number(name) == number


def test_lines_splits_and_shrunk_images(tmp_path):
    logits, labels = drawn(5, 9, 3)
    store(tmp_path, logits, labels, run="a")
    store(tmp_path, logits, labels, run="a", seed=1)
    store(tmp_path, logits, labels, run="b", knob=1.0)
    store(tmp_path, logits, labels, run="b", knob=0.5, tuned=True)
    store(tmp_path, logits, labels, run="b", side=24, shrunk=16)
    store(tmp_path, logits, labels, run="b", split="minival")
    store(tmp_path, logits, labels, run="c", view="tokens:64", resolution=None, grid=None, patches=63.5)
    files = find_logits(tmp_path)
    tables = stored_tables(files)
    assert sorted(one.line for one in tables) == [
        "a (seed 0)", "a (seed 1)", "b (default parameter)", "b (tuned parameter)", "c",
    ]  # fmt: skip
    assert [one.shown for one in tables] == ["16 px"] * 4 + ["tokens:64"]
    (named,) = stored_tables([store(tmp_path / "mean", logits, labels, run="mean")])
    assert named.line == "mean (seed 0)"
    (held,) = stored_tables(files, split="minival")
    assert held.measured["split"] == "minival"
    with pytest.raises(InputError, match="'tets'"):
        stored_tables(files, split="tets")
    shrunk = [file for file in files if "16-square" in file.name]
    with pytest.raises(InputError, match="shrunk"):
        stored_tables(shrunk)


def test_what_does_not_belong_together_is_refused(tmp_path):
    logits, labels = drawn(6, 9, 3)
    here = store(tmp_path / "1", logits, labels)
    for changes, said in (
        ({}, "a at 16 px is in"),
        ({"run": "b", "data": "other"}, "data 'other'"),
        ({"run": "b", "classes": ["x", "y", "z"]}, "other classes"),
        ({"run": "b", "labels": (labels + 1) % 3}, "other labels"),
    ):
        there = store(tmp_path / said, logits, **{"labels": labels, **changes})
        with pytest.raises(InputError, match=said):
            stored_tables([here, there])
    files = [store(tmp_path / "v", logits, labels, split=split) for split in ("x", "y")]
    with pytest.raises(InputError, match="x, y"):
        stored_tables(files)


def test_classes_of_one_name_are_told_apart(tmp_path):
    """ImageNet has two cranes."""
    logits, labels = drawn(7, 20, 3)
    (one,) = stored_tables([store(tmp_path, logits, labels, classes=["crane", "hen", "crane"])])
    assert one.classes == ["crane (0)", "hen", "crane (2)"]
    assert len({(row.metric, row.slices["class"]) for row in class_rows(one)}) == len(class_rows(one))
    assert dataclasses.asdict(class_rows(one)[0])["slices"] == {"class": "crane (0)"}
