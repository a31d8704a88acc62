"""The script that looks at classes inside models: its rows are the measures' own, its sentences say what they show."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from sightline.analysis.labels import split_batches
from sightline.analysis.measures.class_patches import class_patches
from sightline.analysis.measures.head_diversity import head_diversity
from sightline.analysis.measures.lens_miou import lens_miou
from sightline.data.open import open_source
from sightline.hub.load import load_model, save_model
from sightline.models import create_model

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(_FOLDER))
    return runpy.run_path(str(_FOLDER / "inside_classes.py"))


@pytest.fixture
def models(tmp_path):
    names = open_source("scenes").classes
    for encoding in ("lookhere_90", "learned_1d"):
        options = {"depth": 2, "dim": 48, "heads": 12, "num_classes": 24, "class_names": names, "image_size": 16}
        save_model(create_model("vit_micro_patch4", encoding=encoding, **options), tmp_path / f"a_{encoding}")
    (tmp_path / "report.html").write_text("none of these")
    return sorted(tmp_path.iterdir())


def test_rows_are_what_measures_find(script, models, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.jsonl"
    words = [*map(str, models), "--images", "5", "--resolutions", "16", "24", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["inside_classes.py", *words])
    script["main"]()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    found = {(one["model"], one["measure"], one["metric"], one["resolution"], one["layer"]): one for one in rows}
    assert len(found) == len(rows) == 2 * 2 * (5 * 2 + 1 + 2)
    assert {one["encoding"] for one in rows} == {"lookhere_90", "learned_1d"}
    assert all(one["hardware"] and one["data"] == "scenes" for one in rows)
    model = load_model(models[0])
    batches = {(24, 24): split_batches(model, open_source("scenes"), "test", range(5), (24, 24))}
    name = models[0].name
    diversity = head_diversity(model, batches)["jsd"]
    assert found[name, "head_diversity", "jsd", 24, 1]["value"] == pytest.approx(diversity[:, 1].mean(), abs=1e-5)
    assert found[name, "head_diversity", "jsd", 24, "all"]["value"] == pytest.approx(diversity.mean(), abs=1e-5)
    lens = lens_miou(model, batches)
    row = found[name, "lens_miou", "miou", 24, 0]
    assert row["value"] == pytest.approx(lens["miou"][0], abs=1e-5)
    assert row["interval"] == pytest.approx([lens["miou_low"][0], lens["miou_high"][0]], abs=1e-5)
    on = class_patches(model, batches)["on_object"][:, 1]
    row = found[name, "class_patches", "on_object", 24, 1]
    assert row["value"] == pytest.approx(np.nanmean(on), abs=1e-5)
    assert row["images"] == np.isfinite(on).sum()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("At ")]
    assert [line.split(",")[0] for line in said] == ["At 16 px", "At 16 px", "At 24 px", "At 24 px"]


def test_sentences_follow_from_the_rows(script):
    def row(encoding, measure, layer, value, reach):
        return {
            "model": f"runs/{encoding}", "encoding": encoding, "measure": measure, "layer": layer, "value": value,
            "interval": [value - reach, value + reach], "unit": "fraction", "resolution": 32,
        }  # fmt: skip

    rows = [
        row("lookhere_90", "lens_miou", 0, 0.1, 0.01), row("rope_axial", "lens_miou", 0, 0.9, 0.01),
        row("lookhere_90", "lens_miou", 1, 0.6, 0.1), row("rope_axial", "lens_miou", 1, 0.3, 0.1),
        row("lookhere_90", "head_diversity", "all", 0.6, 0.2), row("rope_axial", "head_diversity", "all", 0.3, 0.2),
    ]  # fmt: skip
    diversity, lens = script["sentences"](rows)
    assert diversity.startswith("At 32 px, no verdict on head diversity")
    assert lens.startswith("At 32 px, LookHere's logit-lens mIoU is higher, as its paper found")


def test_refused_without_masks_of_the_models_classes(script, models, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.jsonl"
    for data in ("scenes:pairs", "digits"):
        monkeypatch.setattr(sys, "argv", ["inside_classes.py", str(models[0]), "--data", data, "--out", str(out)])
        with pytest.raises(SystemExit) as ended:
            script["main"]()
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert said.startswith(f"sightline: error: lens_miou: data {data}: ")
        assert said.count("\n") == 1
    assert not out.exists()
