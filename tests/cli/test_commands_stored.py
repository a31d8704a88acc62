"""What commands make of stored logits: a temperature fitted on minival, and what classes come to."""

from __future__ import annotations

import json

from sightline.results import read_rows

FEW = ["--images", 6, "--threads", 1]


def by_metric(lines):
    return {(row["split"], row["resolution"], row["metric"]): row for row in map(json.loads, lines.splitlines())}


def test_a_temperature_is_fitted_on_minival_and_again_from_stored_logits(cli, run_copy, tmp_path):
    rows, kept = tmp_path / "rows.jsonl", tmp_path / "kept"
    words = ["evaluate", run_copy, "--resolutions", "8,16", *FEW, "--temperature", "--temperature-images", 40]
    code, out, _ = cli(*words, "--out", rows, "--logits", kept)
    assert code == 0
    assert "calibration error at the fitted temperature" in " ".join(out.split())
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
    out = ["--out", tmp_path / "rows.jsonl", "--temperature"]
    refused("evaluate", run_copy, "--data", data, *out, says=["temperature: data 'imagefolder'", "no split 'minival'"])
    refused("evaluate", run_copy, *out, "--temperature-images", 0, says=["temperature_images", "0"])
    assert not (tmp_path / "rows.jsonl").exists()
    assert not list(tmp_path.glob(".rows*"))
