"""Stored logits: what is measured of them is what was measured, and what is damaged is refused."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.logits import StoredLogits, find_logits, read_logits, rescore, task_record, write_logits
from sightline.evaluation.measure import RunInfo, logits_names
from sightline.models import create_model
from sightline.tasks.base import make_task, task_of
from tests.evaluation.models import tiny
from tests.tiny import pictures


def measure(folder, data="scenes", link="softmax", **config):
    """Rows, and the names of the files that were planned."""
    model, source = tiny(data, score_link=link), open_source(data)
    config = EvaluateConfig(**{"resolutions": (16,), "images": 23, "precision": "float32", **config})
    identity = RunInfo("name", data, 16, 3)

    def keep(name, stored):
        write_logits(folder, name, dataclasses.replace(stored, work="this work"))

    rows = evaluate(model, source, config, identity, keep=keep)
    return rows, logits_names(source, model, config, identity)


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_what_is_measured_of_them_is_what_was_measured(link, tmp_path):
    """Groups, sizes, a knob that was searched for, shrunk images, and images at their own aspect too."""
    asked = {"resolutions": (16, 24, View("tokens", 12)), "knobs": "both", "tune_images": 4}
    rows, names = measure(tmp_path, link=link, splits=("test", "heldout_fonts"), **asked)
    files = {file.name: file for file in find_logits(tmp_path)}
    assert sorted(files) == sorted(names)
    again = [row for name in names for row in rescore(read_logits(files[name]))]
    assert again == rows
    assert {"group", "size_quintile", "confidence_bin", "coverage"} <= {part for row in rows for part in row.slices}
    header = read_logits(files[names[0]], header=True)
    assert (header.work, len(header.names), header.logits.shape) == ("this work", 23, (23, 0))


def test_files_of_any_name_and_where_they_stand(tmp_path):
    data = pictures(tmp_path / "data", count=5)
    odd = (tmp_path / "data" / "test" / "a" / "0.png").rename(tmp_path / "data" / "test" / "a" / "\udcff é.png")
    rows, (name,) = measure(tmp_path / "kept", data)
    stored = read_logits(tmp_path / "kept" / name)
    assert rescore(stored) == rows
    assert sorted(stored.indices.tolist()) == list(range(10))
    assert sum(odd.name in one for one in stored.names) == 1
    folders = [stored.task["classes"][label] for label in stored.labels]
    assert all(f"/{folder}/" in f"/{name}" for folder, name in zip(folders, stored.names, strict=True))
    assert set(folders) == {"a", "b"}
    assert stored.logits.dtype == np.float32
    assert stored.logits.shape == (10, 2)


def changed(file, **members):
    """Its bytes with some members replaced, None for left out."""
    with np.load(file, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files} | members
    content = io.BytesIO()
    np.savez_compressed(content, **{name: one for name, one in arrays.items() if one is not None})
    return content.getvalue()


def about(file, **changes):
    with np.load(file, allow_pickle=False) as held:
        record = json.loads(held["about"].tobytes()) | changes
    return np.frombuffer(json.dumps(record).encode(), np.uint8)


FAULTS = {
    "a class too few": (lambda file: {"logits": np.zeros((23, 3), np.float32)}, "logits"),
    "a label too few": (lambda file: {"labels": np.zeros(22, np.int64)}, "labels"),
    "no labels": (lambda file: {"labels": None}, "labels"),
    "no words": (lambda file: {"about": None}, "about"),
    "objects": (lambda file: {"labels": np.array([{}] * 23)}, "pickle"),
    "another format": (lambda file: {"about": about(file, format=1)}, "format 1"),
    "names too few": (lambda file: {"about": about(file, names=["a"])}, "1 images"),
    "rows of nothing": (lambda file: {"about": about(file, measured={})}, ""),
    "a row that is none": (
        lambda file: {"about": about(file, measured={**read_logits(file).measured, "seed": "x"})}, "seed",
    ),
    "JSON that is cut": (lambda file: {"about": np.frombuffer(b'{"format": 1', np.uint8)}, "Expecting"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_another_content_is_refused(fault, tmp_path):
    measure(tmp_path)
    (file,) = find_logits(tmp_path)
    change, said = FAULTS[fault]
    file.write_bytes(changed(file, **change(file)))
    with pytest.raises(InputError, match=rf"{file.name}: .*{said}"):
        read_logits(file)


def test_where_there_are_none(tmp_path):
    (tmp_path / "kept").mkdir()
    for place in (tmp_path / "kept", tmp_path / "kepd"):
        with pytest.raises(InputError, match=place.name):
            find_logits(place)


def test_a_task_without_scores_is_refused():
    model = create_model("vit_micro_patch4", image_size=16, depth=1, dim=48, heads=4, num_classes=2, head="linear_map",
                         task="segmentation")  # fmt: skip
    with pytest.raises(InputError, match=r"segmentation"):
        task_record(task_of(model))


def test_one_image_of_one_class():
    """The smallest file: every metric has a value."""
    config = make_task("classification", create_model("vit_micro_patch4", num_classes=1).config)
    measured = {
        "run": "r", "encoding": "e", "task": "t", "data": "d", "split": "test", "train_resolution": 4, "seed": 0,
        "commit": "c", "hardware": "h", "resolution": 4, "grid": (1, 1), "knob": None, "tuned": False, "seconds": 1.0,
        "view": "square", "patches": 1.0, "shrunk": None, "ranks": 1,
    }  # fmt: skip
    stored = StoredLogits(
        np.zeros((1, 1), np.float32), np.zeros(1, np.int64), np.zeros(1, np.int64), ["x"], [{}], task_record(config),
        measured,
    )  # fmt: skip
    values = {row.metric: row.value for row in rescore(stored) if not row.slices}
    assert values["top1"] == 1
    assert values["nll"] == values["brier"] == values["ece"] == values["aurc"] == 0
