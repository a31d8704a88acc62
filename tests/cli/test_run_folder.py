"""What a report reads of a run's validation and answers, and what it does where they are not there or damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sightline.data.source import Example
from sightline.data.targets import Label
from sightline.errors import InputError
from sightline.io.run_files import PREDICTIONS
from sightline.reports.content import SeenSizes
from sightline.results.predictions import Prediction, dump_predictions
from sightline.runs.report_answers import read_answers
from sightline.runs.report_content import best_step, read_validation

SQUARE = SeenSizes.of_one(32)


def line(index: int, named: str, score: float, **changes: object) -> Prediction:
    fields = {
        "split": "test", "view": "square", "resolution": 32, "index": index, "name": f"{index}.png", "label": "a",
        "predicted": named, "score": score, "correct": named == "a",
    }  # fmt: skip
    return Prediction(**{**fields, **changes})


LINES = [line(0, "a", 0.9), line(1, "b", 0.6), line(2, "b", 0.8)]
OTHERS = [
    line(0, "b", 0.9, resolution=64),
    line(0, "b", 0.7, view="native", resolution=None),
    line(0, "b", 1.0, split="minival"),
]


class Data:
    classes = ("a", "b")

    def stored_size(self, split, index):
        return 10, 40

    def example(self, split, index, size):
        # Image 1 was replaced by another file since.
        return Example(np.zeros((*size, 3), np.uint8), Label(0), name="new.png" if index == 1 else f"{index}.png")


def test_answers_are_those_of_the_test_split_at_the_size_of_the_card(tmp_path):
    assert read_answers(tmp_path, "run", SQUARE, None) is None
    (tmp_path / PREDICTIONS).write_text(dump_predictions([*OTHERS, *LINES]))
    said = read_answers(tmp_path, "run", SQUARE, None)
    assert said is not None
    assert (said.split, said.shown, list(said.answers), said.mistakes) == ("test", "32\u00a0px", LINES, [])
    for sizes in (SeenSizes(16, 64, "16 to 64 px"), SeenSizes.unknown(64), SeenSizes.unknown(224)):
        packed = read_answers(tmp_path, "run", sizes, None)
        assert packed is not None
        assert (packed.shown, list(packed.answers)) == ("64\u00a0px", OTHERS[:1])


def test_only_pictures_of_the_same_file_are_shown(tmp_path):
    (tmp_path / PREDICTIONS).write_text(dump_predictions([*OTHERS, *LINES]))
    said = read_answers(tmp_path, "run", SQUARE, Data())
    assert said is not None
    assert [one.caption for one in said.mistakes] == ["a, named b (0.80)"]
    (tmp_path / PREDICTIONS).write_text(dump_predictions(OTHERS[1:]))
    native = read_answers(tmp_path, "run", SQUARE, Data())
    assert native is not None
    assert native.shown == "native"
    # Its own aspect.
    assert native.mistakes[0].image.shape[1] == 4 * native.mistakes[0].image.shape[0]


def test_validation_is_read_where_it_is(tmp_path):
    assert read_validation(tmp_path) == []
    assert best_step(tmp_path) is None
    record = {"step": 10, "images": 320, "split": "minival", "top1": 0.5, "count": 100, "loss": 1.0}
    (tmp_path / "validation.jsonl").write_text(json.dumps(record) + "\n")
    (point,) = read_validation(tmp_path)
    assert (point.step, point.images, point.split) == (10, 320, "minival")
    measured = point.measured
    assert (measured.metric, measured.value, measured.unit, measured.count) == ("top1", 0.5, "fraction", 100)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"step": 1}', '{"step": 1, "images": 1, "split": "t", "top1": 7, "count": 1}']
)
def test_a_damaged_file_is_named(text, tmp_path):
    (tmp_path / "validation.jsonl").write_text(text + "\n")
    with pytest.raises(InputError, match=r"validation\.jsonl: cannot be read"):
        read_validation(tmp_path)
    (tmp_path / PREDICTIONS).write_text(text + "\n")
    with pytest.raises(InputError, match=r"predictions\.csv"):
        read_answers(tmp_path, "run", SQUARE, None)
