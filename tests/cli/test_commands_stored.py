"""What commands make of stored logits: a temperature fitted on minival, and what classes come to."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from sightline.evaluation.logits import read_logits, write_logits
from sightline.results.rows import read_rows
from tests.stored import store

FEW = ["--images", 6, "--threads", 1]


def by_metric(lines):
    return {(row["split"], row["resolution"], row["metric"]): row for row in map(json.loads, lines.splitlines())}


def test_a_temperature_is_fitted_on_minival_and_again_from_stored_logits(cli, run_copy, tmp_path):
    rows, kept = tmp_path / "out" / "results.jsonl", tmp_path / "out" / "logits"
    words = ["evaluate", run_copy, "--resolutions", "8,16", *FEW, "--temperature", "--temperature-images", 40]
    code, out, _ = cli(*words, "--out", tmp_path / "out", "--logits")
    assert code == 0
    assert "fitted temperature" in " ".join(out.split())
    found = {(row.split, row.resolution, row.metric): row for row in read_rows(rows)}
    for size in (8, 16):
        row = found["test", size, "temperature"]
        assert (row.count, row.slices) == (40, {"fitted_on": "minival"})
        assert found["test", size, "ece_tempered"].count == 6
        assert found["minival", size, "top1"].count == 40
    assert len(list(kept.glob("*.npz"))) == 4
    code, out, _ = cli("rescore", kept, "--json")
    assert code == 0
    assert sorted(out.splitlines()) == sorted(rows.read_text().splitlines())
    # One file alone has none to be fitted on.
    (file,) = kept.glob("test_8*")
    code, out, _ = cli("rescore", file, "--json")
    assert code == 0
    assert not {key for key in by_metric(out) if "temper" in key[2]}


def test_a_temperature_without_held_out_images_or_scores_is_refused(refused, run_copy, tmp_path):
    from tests.tiny import pictures

    data = pictures(tmp_path / "data", classes=tuple("01"))
    out = ["--out", tmp_path / "rows", "--temperature"]
    refused("evaluate", run_copy, "--data", data, *out, says=["temperature: ", f"{data},minival="])
    refused("evaluate", run_copy, *out, "--temperature-images", 0, says=["temperature_images", "0"])
    assert not (tmp_path / "rows").exists()


@pytest.fixture
def kept(tmp_path):
    """Logits of two runs at two sizes, of 24 images of three classes, by ILSVRC's names."""
    draw = np.random.default_rng(0)
    labels = np.sort(draw.integers(0, 3, 24))
    names = [f"val/n{label}/ILSVRC2012_val_{number + 1:08d}.JPEG" for number, label in enumerate(labels[::-1])][::-1]
    for run, loss in (("a", 1), ("b", 3)):
        for side in (16, 32):
            logits = draw.standard_normal((24, 3))
            logits[np.arange(24), labels] += 3 - loss * (side > 16)
            store(tmp_path / "kept", logits, labels, run=run, side=side, names=names, classes=["cat", "dog", "<hen>"])
    return tmp_path / "kept"


@pytest.mark.slow
def test_classes_are_compared_between_sizes_and_runs(cli, kept, tmp_path):
    out = tmp_path / "out"
    code, said, _ = cli("classes", kept, "--out", out, "--most", 2)
    assert code == 0
    assert {"falls", "Confused", "hen>"} <= set(said.replace("<", "").split())
    rows = read_rows(out / "classes.jsonl")
    assert {(row.run, row.resolution) for row in rows} == {("a", 16), ("a", 32), ("b", 16), ("b", 32)}
    assert {row.slices["class"] for row in rows} == {"cat", "dog", "<hen>"}
    effects = [json.loads(line) for line in (out / "class_effects.jsonl").read_text().splitlines()]
    assert {one["kind"] for one in effects} == {
        "extrapolation", "gap", "change", "spread_of_models", "spread_of_sizes", "confusion",
    }  # fmt: skip
    page = (out / "classes.html").read_text()
    assert "&lt;hen&gt;" in page
    assert "<hen>" not in page
    assert page.count("<figure>") == 4
    assert f"sightline classes {kept} --most 2 --out {out}" in page
    code, said, _ = cli("classes", kept, "--json")
    assert (code, said) == (0, (out / "class_effects.jsonl").read_text())
    # Equal logits, equal files.
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    assert cli("classes", kept, "--out", out, "--most", 2, "--overwrite")[0] == 0
    assert before == {file.name: file.read_bytes() for file in out.iterdir()}


def test_one_run_or_one_size(cli, kept, refused):
    runs = [[file for file in sorted(kept.glob("*.npz")) if f"test_{run}-" in file.name] for run in "ab"]
    code, said, _ = cli("classes", *runs[0], "--json")
    assert code == 0
    assert {json.loads(line)["kind"] for line in said.splitlines()} == {
        "extrapolation", "change", "spread_of_sizes", "confusion",
    }  # fmt: skip
    file = runs[0][0]
    odd = dataclasses.replace(read_logits(file), task=read_logits(file).task | {"classes": ["cat", "dog", "\udcff"]})
    write_logits(kept.parent / "odd", "odd.npz", odd)
    other = dataclasses.replace(odd, measured=odd.measured | {"run": "c"}, logits=odd.logits[:, ::-1].copy())
    write_logits(kept.parent / "odd", "other.npz", other)
    code, said, _ = cli("classes", kept.parent / "odd", "--out", kept.parent / "page")
    assert code == 0
    assert "?" in (kept.parent / "page" / "classes.html").read_text()
    code, said, _ = cli("classes", *(files[0] for files in runs), "--out", kept.parent / "out")
    assert code == 0
    assert "gaps" in said.split()
    assert "<figure>" not in (kept.parent / "out" / "classes.html").read_text()
    refused("classes", runs[0][0], says=["classes: "])


def test_what_cannot_be_compared_is_refused_and_nothing_written(kept, refused, tmp_path):
    file, out = next(kept.glob("*.npz")), tmp_path / "out"
    for words, said in (
        ([], ["classes: "]),
        ([tmp_path / "kpt"], ["kpt", "'kept'"]),
        ([kept, "--between", "16"], ["--between 16:"]),
        ([kept, "--between", "16,33"], ["'33 px'", "'32 px'"]),
        ([kept, "--against", "c"], ["--against: line"]),
        ([kept, "--split", "tst"], ["--split", "'tst'"]),
        ([kept, "--first", 0], ["--first", "0"]),
        ([kept, "--most", 0], ["--most", "0"]),
    ):
        refused("classes", *words, "--out", out, says=said)
    assert not out.exists()
    refused("classes", kept, "--out", file, says=["--out", str(file)])
    out.mkdir()
    (out / "classes.html").write_text("mine")
    refused("classes", kept, "--out", out, says=["classes.html", "--overwrite"])
    assert [one.name for one in out.iterdir()] == ["classes.html"]
