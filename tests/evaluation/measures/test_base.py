"""A measure of the model itself is one file: it is found by its name, asked for, and its rows stand with the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sightline import plugins
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.measure import RunInfo, count_images
from tests.evaluation.models import tiny

FILE = '''
"""How large the knob is, twice the images."""
from sightline.errors import InputError
from sightline.evaluation.measures.base import ModelMeasure
from sightline.results.rows import MetricValue


class KnobSeen(ModelMeasure):
    name = "knob_seen"
    tasks = ("classification",)

    @classmethod
    def check(cls, model, task, source, splits):
        if model.knob is None:
            raise InputError("measures: knob_seen needs a knob")

    @classmethod
    def passes(cls, source, split, count):
        return 2 * count

    def rows(self, subject, parts, work, advance=None):
        def made():
            advance(2 * len(subject.indices))
            return subject.model.knob.value

        return [MetricValue("knob_seen", parts.once(work, made), "", len(subject.indices))]
'''


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "measures_test_knob.py").write_text(FILE)
    monkeypatch.setattr(plugins, "__path__", list(plugins.__path__))
    monkeypatch.setenv(plugins.FOLDERS, os.environ.get(plugins.FOLDERS, ""))
    plugins.add(tmp_path)
    yield
    sys.modules.pop(f"{plugins.__name__}.measures_test_knob", None)


def test_a_measure_is_asked_for_by_name_and_measured_at_each_size_and_knob():
    model, source = tiny("scenes"), open_source("scenes")
    config = EvaluateConfig(
        (16, 24), images=6, knobs="both", tune_images=4, precision="float32", measures=("knob_seen",)
    )
    without = EvaluateConfig((16, 24), images=6, knobs="both", tune_images=4, precision="float32")
    seen: list[int] = []
    rows = evaluate(model, source, config, RunInfo("one", "scenes", 16, 0), advance=seen.append)
    found = {(row.resolution, row.tuned): (row.value, row.knob) for row in rows if row.metric == "knob_seen"}
    assert found.keys() == {(16, False), (16, True), (24, False), (24, True)}
    assert all(value == knob for value, knob in found.values())
    # Images shrunk to the training size are measured by their answers alone.
    assert {row.metric for row in rows if row.shrunk is not None}.isdisjoint({"knob_seen"})
    assert sum(seen) == count_images(source, model, config, 16)
    assert count_images(source, model, config, 16) - count_images(source, model, without, 16) == 4 * 2 * 6


def test_what_is_not_there_or_does_not_fit_is_refused_before_anything_is_measured():
    with pytest.raises(InputError, match=r"'knob_sen'.*knob_seen"):
        EvaluateConfig((16,), measures=("knob_sen",))
    config = EvaluateConfig((16,), images=2, measures=("knob_seen",))
    with pytest.raises(InputError, match="knob_seen"):
        evaluate(tiny("scenes", "learned_1d"), open_source("scenes"), config, RunInfo("one", "scenes", 16, 0))
