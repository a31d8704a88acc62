"""`sightline analyse`: what it writes, what it refuses before anything is computed, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from PIL import Image

from sightline.analysis.analyse import analysed
from sightline.analysis.found import Analysis
from sightline.analysis.labels import split_batches
from sightline.analysis.measures.heads import AttentionDistance
from sightline.data.open import open_source
from sightline.hub.load import load_model, save_model
from sightline.models import create_model
from sightline.results.analysis import AnalysisRow
from sightline.results.rows import read_rows
from sightline.runs import analysis_folder
from tests.tiny import after, killed, pictures, tree

MEASURE = ("--measures", "attention_distance")
FEW = ("--images", "3", *MEASURE)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two small classifiers of the glyphs, saved: `a` (rope_axial) and `b` (learned_1d)."""
    from tests.contract.randomise import randomise_parameters

    folder = tmp_path_factory.mktemp("models")
    for seed, (name, encoding) in enumerate((("a", "rope_axial"), ("b", "learned_1d"))):
        model = create_model(
            "vit_micro_patch4", encoding=encoding, depth=2, dim=24, heads=2, image_size=16, num_classes=24
        )
        save_model(randomise_parameters(model, seed), folder / name)
    return folder


def test_two_models_give_arrays_rows_figures_and_a_page(cli, models, tmp_path):
    out = tmp_path / "inside"
    words = ("analyse", models / "a", models / "b", "--resolutions", "16,24x16", *FEW, "--out", out)
    code, said, err = cli(*words)
    assert code == 0, err
    sizes = "16 px, 24 \N{MULTIPLICATION SIGN} 16 px"
    said_first = f"plan: 2 models, 3 images of scenes/test (embedded, drawn at each size) at {sizes}"
    assert said_first in err
    assert str(out / "analysis.html") in said
    assert sorted(str(file.relative_to(out)) for file in out.rglob("*.*")) == [
        "a.attention_distance.npz", "analysis.html", "analysis.jsonl", "b.attention_distance.npz",
        "figures/attention_distance.distance.svg", "figures/attention_distance.distance_of_grid.svg",
    ]  # fmt: skip
    found = Analysis.read(out / "b.attention_distance.npz")
    assert (found.model, found.encoding, found.sizes) == ("b", "learned_1d", ((16, 16), (24, 16)))
    # What is stored is what the function of the measure gives of the same images.
    model, source = load_model(models / "b"), open_source("scenes")
    batches = {size: split_batches(model, source, "test", range(3), size) for size in found.sizes}
    expected = analysed(model, AttentionDistance, batches)
    for size in found.sizes:
        np.testing.assert_array_equal(found.arrays[size]["distance"], expected.arrays[size]["distance"])
    rows = read_rows(out / "analysis.jsonl", AnalysisRow)
    assert {row.run for row in rows} == {"a", "b"}
    assert {row.size for row in rows} == {(16, 16), (24, 16)}
    one = next(
        row for row in rows
        if (row.run, row.metric, row.size, row.layer) == ("b", "distance", (24, 16), 1)
    )  # fmt: skip
    values = expected.arrays[24, 16]["distance"][:, 1].mean(1)
    assert one.value == pytest.approx(values.mean())
    assert (one.count, one.data, one.split, one.unit) == (3, "scenes", "test", "cells")
    assert one.interval is not None
    # Student's t of two degrees of freedom.
    assert one.interval[1] - one.value == pytest.approx(4.30265 * values.std(ddof=1) / 3**0.5, rel=1e-5)


def test_an_option_of_a_measure_is_kept_with_its_arrays(cli, models, tmp_path):
    words = ("--images", "2", "--measures", "attention_maps", "--options.attention_maps.query=[0,1]")
    maps = []
    for name, more in (("corner", words), ("middle", words[:-2])):
        out = tmp_path / name
        assert cli("analyse", models / "a", "--resolutions", "16", *more, "--out", out)[0] == 0
        maps.append(Analysis.read(out / "a.attention_maps.npz"))
    assert maps[0].about["options"] == {"query": [0, 1]}
    assert maps[1].about["options"] == {}
    assert not np.array_equal(maps[0]["map"], maps[1]["map"])


def test_json_prints_the_rows(cli, models, tmp_path):
    code, said, _ = cli("analyse", models / "a", *FEW, "--out", tmp_path / "inside", "--json")
    assert code == 0
    rows = [json.loads(line) for line in said.splitlines()]
    assert said == (tmp_path / "inside/analysis.jsonl").read_text()
    # The size of the model, and twice that.
    assert [list(size) for size in dict.fromkeys(tuple(row["size"]) for row in rows)] == [[16, 16], [32, 32]]


@pytest.mark.slow
def test_all_measures_that_fit_are_taken(cli, models, tmp_path):
    out = tmp_path / "inside"
    code, _, err = cli("analyse", models / "a", "--images", "4", "--resolutions", "16", "--out", out)
    assert code == 0, err
    taken = {file.name.split(".")[1] for file in out.glob("*.npz")}
    assert {"attention_distance", "class_identifiability", "rope_fourier"} <= taken
    # It takes many passes, and is measured where it is asked for.
    assert "knock_out" not in taken
    assert "position_similarity" not in taken


def test_what_does_not_fit_is_refused_where_it_was_asked_for(refused, models, tmp_path):
    out = tmp_path / "inside"
    measures = "attention_distance,position_similarity"
    refused("analyse", models / "a", "--images", "2", "--measures", measures, "--out", out,
            says=["position_similarity: ", "rope_axial"])  # fmt: skip
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--measures", "atention_distance"], ["atention_distance", "attention_distance"]),
        (["--resolutions", "18"], ["resolution 18", "16 or 20"]),
        (["--resolutions", "16x18"], ["resolution 18", "16 or 20"]),
        (["--resolutions", "big"], ["--resolutions big", "native"]),
        (["--resolutions", "native"], ["native", "no size of their own"]),
        (["--split", "tset"], ["split", "tset", "test"]),
        (["--data", "scenes:glyhps"], ["glyhps"]),
        (["--data", "imagefolder:nowhere"], ["nowhere"]),
        (["--images", "0"], ["--images"]),
        (["--workers", "-1"], ["--workers"]),
        (["--images", "10000000000000"], ["--images 10000000000000", "at most 1,000,000"]),
        (["--options.attention_distnace.x=1"], ["attention_distnace", "attention_distance"]),
        (["--options.attention_distance.x=1"], ["attention_distance.x", "no options"]),
        (["--no-pretrained"], ["--no-pretrained", "timm:NAME"]),
    ],
)  # fmt: skip
def test_refusals_are_one_line_and_leave_nothing(refused, models, tmp_path, words, says):
    out = tmp_path / "inside"
    given = [] if "--measures" in words else MEASURE
    refused("analyse", models / "a", *words, *given, "--out", out, says=says)
    assert not out.exists()


def test_models_that_are_not_there_or_twice(refused, models, tmp_path):
    refused("analyse", says=["expected a model"])
    refused("analyse", models / "c", *FEW, "--out", tmp_path / "out", says=[str(models / "c")])
    refused("analyse", models / "a", models / "a", *FEW, "--out", tmp_path / "out", says=["there twice"])


def test_out_is_replaced_where_it_is_asked_for_and_is_an_analysis(cli, refused, models, tmp_path):
    out = tmp_path / "inside"
    words = ("analyse", models / "a", "--resolutions", "16", *FEW, "--out", out)
    assert cli(*words)[0] == 0
    before = tree(out)
    refused(*words, says=["--overwrite replaces it"])
    (out / "notes.txt").write_text("mine")
    refused(*words, "--overwrite", says=["notes.txt", "was written by no analysis"])
    (out / "notes.txt").unlink()
    assert tree(out) == before
    again = ("analyse", models / "b", "--resolutions", "16", *FEW, "--out", out, "--overwrite")
    assert cli(*again)[0] == 0
    # Nothing of the analysis before is left.
    assert [file.name for file in out.glob("*.npz")] == ["b.attention_distance.npz"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["inside"]


def test_out_is_no_folder_of_somebody_else(refused, models, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused("analyse", models / "a", *FEW, "--out", tmp_path / "file", says=["is a file"])
    other = tmp_path / "other"
    other.mkdir()
    (other / "weights.npz").write_bytes(b"mine")
    refused("analyse", models / "a", *FEW, "--out", other, "--overwrite", says=["holds no analysis"])
    assert (other / "weights.npz").read_bytes() == b"mine"
    before = tree(models)
    for out in (models / "a", models, models / "a" / "inside"):
        refused("analyse", models / "a", *FEW, "--out", out, "--overwrite", says=[str(models / "a")])
    assert tree(models) == before


def test_out_is_no_folder_of_the_data(refused, models, tmp_path):
    data = pictures(tmp_path / "photos")
    folder = tmp_path / "photos" / "inside"
    refused("analyse", models / "a", "--data", data, *FEW, "--out", folder, says=["a folder of the data"])
    assert not folder.exists()


def test_files_are_read_at_their_own_size_and_a_broken_one_is_named(cli, models, tmp_path):
    data = pictures(tmp_path / "photos")
    out = tmp_path / "inside"
    words = ("analyse", models / "a", "--data", data, "--resolutions", "native,16", *FEW)
    code, _, err = cli(*words, "--out", out)
    assert code == 0, err
    assert {row.size for row in read_rows(out / "analysis.jsonl", AnalysisRow)} == {None, (16, 16)}
    broken = next((tmp_path / "photos").rglob("test/*/*"))
    broken.write_bytes(b"no image")
    code, _, err = cli(*words, "--out", tmp_path / "other")
    assert code == 3
    assert broken.name in err.splitlines()[-1]
    assert not (tmp_path / "other").exists()
    code, _, err = cli(*words, "--out", tmp_path / "other", "--skip-unreadable", "1")
    assert code == 0
    assert broken.name in err


def test_images_of_another_shape_anywhere_in_the_split_are_seen_before_the_work(cli, models, tmp_path):
    data = pictures(tmp_path / "photos")
    # The first ones are alike, and the last has another grid.
    for place, file in enumerate(sorted((tmp_path / "photos/test").rglob("*.png"))):
        Image.new("RGB", (16, 16 if place < 7 else 24), (place, 0, 0)).save(file)
    words = ("--resolutions", "native", "--measures", "attention_maps", "--out", tmp_path / "out")
    code, _, err = cli("analyse", models / "a", "--data", data, *words)
    assert code == 2
    assert "plan:" not in err
    assert "attention_maps: an image of " in err.splitlines()[-1]


def test_measures_are_tried_on_an_image_that_can_be_read(cli, models, tmp_path):
    data = pictures(tmp_path / "photos")
    broken = min((tmp_path / "photos/test").rglob("*.png"))
    # Its header is whole.
    broken.write_bytes(broken.read_bytes()[:60])
    words = ("--resolutions", "16", "--images", "3", "--skip-unreadable", "1", "--out", tmp_path / "out")
    # It has no masks, and not as many classes as the model.
    code, _, err = cli("analyse", models / "a", "--data", data, *words)
    assert code == 0, err
    taken = {row.measure for row in read_rows(tmp_path / "out" / "analysis.jsonl", AnalysisRow)}
    assert {"attention_distance", "entropy"} <= taken
    assert taken.isdisjoint({"class_patches", "lens_miou"})
    (line,) = [line for line in err.splitlines() if line.startswith("left out of a: ")]
    assert {"class_patches", "lens_miou", "position_similarity"} <= set(line.replace(",", "").split())
    assert taken.isdisjoint(line.replace(",", "").split())


def test_a_run_keeps_its_own_and_its_report_shows_it(cli, run_copy, tmp_path):
    from sightline.runs.outputs import Inputs, RunFolder

    code, said, err = cli("analyse", run_copy, "--resolutions", "16", *FEW)
    assert code == 0, err
    first, last = said.splitlines()[-2:]
    assert first.endswith(str(run_copy / "analysis" / "analysis.html"))
    assert f"report {run_copy} --out" in last
    page = tmp_path / "report.html"
    assert cli("report", run_copy, "--out", page)[0] == 0
    text = page.read_text()
    assert 'id="inside"' in text
    assert "Attention distance" in text
    # A new training may replace the run with what was found in it.
    RunFolder(run_copy, Inputs(), resume=False, overwrite=True).check()


def test_a_damaged_analysis_is_named_by_the_report(cli, refused, run_copy, tmp_path):
    assert cli("analyse", run_copy, "--resolutions", "16", *FEW)[0] == 0
    file = run_copy / "analysis" / "analysis.jsonl"
    line = json.loads(file.read_text().splitlines()[0])
    for wrong in ({**line, "value": None}, {**line, "slices": {"layer": "x"}}, {**line, "interval": [1]}, {}, 3):
        file.write_text(json.dumps(wrong) + "\n")
        refused("report", run_copy, "--out", tmp_path / "page.html", says=["analysis.jsonl:1"])


@pytest.mark.slow
def test_timm_by_name_with_random_weights(cli, tmp_path, monkeypatch):
    # The whole line, as a stranger types it: no data, no folder.
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "analysis"
    code, _, err = cli("analyse", "timm:test_vit", "--no-pretrained")
    assert code == 0, err
    rows = read_rows(out / "analysis.jsonl", AnalysisRow)
    assert {row.run for row in rows} == {"timm:test_vit, random weights"}
    assert (out / "timm_test_vit_random_weights.attention_distance.npz").exists()
    # Of 1000 classes, none of which is a glyph.
    assert "class_identifiability" not in {row.measure for row in rows}


def test_what_fails_while_it_is_written_leaves_what_was_there(cli, models, tmp_path, monkeypatch):
    out = tmp_path / "inside"
    words = ("analyse", models / "a", "--resolutions", "16", *FEW, "--out", out)
    assert cli(*words)[0] == 0
    before = tree(out)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(analysis_folder, "fsync", full)
    code, _, err = cli(*words, "--overwrite")
    assert code == 5
    assert "No space left on device" in err
    assert tree(out) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["inside"]


def test_an_interrupt_between_two_renames_puts_back_what_was_there(cli, models, tmp_path, monkeypatch):
    out = tmp_path / "inside"
    words = ("analyse", models / "a", "--resolutions", "16", *FEW, "--out", out)
    assert cli(*words)[0] == 0
    before, real = tree(out), os.replace

    def interrupted(source, target):
        real(source, target)
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "replace", interrupted)
    assert cli(*words, "--overwrite")[0] == 130
    assert tree(out) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["inside"]


def analyse_and_die(words, calls):
    """Analyse, and be killed at one of the files that are written."""
    from sightline.cli.app import main

    analysis_folder._put = after(calls, analysis_folder._put)
    main([str(word) for word in words])


def test_a_model_of_timms_beside_one_of_ours(cli, refused, models, tmp_path):
    out, words = tmp_path / "inside", ("--resolutions", "32", *FEW, "--no-pretrained")
    code, _, err = cli("analyse", models / "a", "timm:test_vit", *words, "--num-classes", "24", "--out", out)
    assert code == 0, err
    assert next(row.run for row in read_rows(out / "analysis.jsonl", AnalysisRow)) == "a"
    # The patch of one of them does not divide what that of the other does.
    refused("analyse", models / "a", "timm:test_vit", "--resolutions", "36", *FEW, "--no-pretrained",
            "--out", tmp_path / "other", says=["resolution 36", "32 or 48"])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("calls", [0, 1, 4])
def test_a_kill_leaves_the_old_folder_or_none(cli, models, tmp_path, calls):
    out = tmp_path / "inside"
    words = ("analyse", models / "a", "--resolutions", "16", *FEW, "--out", out)
    killed(analyse_and_die, words, calls)
    assert not out.exists()
    assert cli(*words)[0] == 0
    # What the killed one left beside it is gone.
    assert [entry.name for entry in tmp_path.iterdir()] == ["inside"]
    before = tree(out)
    killed(analyse_and_die, (*words, "--overwrite"), calls)
    assert tree(out) == before
