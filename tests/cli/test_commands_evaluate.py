"""`sightline evaluate`: rows where they belong, and none from a fault."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from sightline.attention import cpu
from sightline.distributed import machine
from sightline.evaluation import parts
from sightline.evaluation.measures import speed
from sightline.hub.load import load_model, write_model
from sightline.results.predictions import read_predictions
from sightline.results.rows import read_rows
from tests.tiny import pictures, reseal, tree

FEW = ["--images", 6, "--threads", 1]


def test_rows_are_added_and_replaced(cli, run_copy):
    first = read_rows(run_copy / "results.jsonl")
    code, out, err = cli("evaluate", run_copy, "--resolutions", "8,24", *FEW)
    assert code == 0
    assert "24 px" in out
    # The larger size also shrunk.
    assert ": 18/18" in err
    rows = read_rows(run_copy / "results.jsonl")
    assert rows[: len(first)] == first
    fresh = [row for row in rows[len(first) :] if row.metric in ("top1", "top5")]
    assert [(row.resolution, row.shrunk, row.metric, row.images, row.run) for row in fresh] == [
        (side, small, metric, 6, "tiny")
        for side, small in ((8, None), (24, None), (24, 16))
        for metric in ("top1", "top5")
    ]
    assert cli("evaluate", run_copy, "--resolutions", "8", "--images", 7, "--threads", 1)[0] == 0
    again = read_rows(run_copy / "results.jsonl")
    assert {row.images for row in again if row.resolution == 8 and not row.slices} == {7}
    assert sum(not row.slices for row in again) == sum(not row.slices for row in rows)


def test_rows_elsewhere(cli, refused, run_copy, tmp_path):
    before, rows = tree(run_copy), tmp_path / "new" / "folder" / "results.jsonl"
    words = ["evaluate", run_copy, *FEW, "--out", rows.parent, "--resolutions"]
    code, said, _ = cli(*words, "8", "--json")
    assert code == 0
    assert said == rows.read_text()
    assert {row["resolution"] for row in map(json.loads, said.splitlines())} == {8}
    assert len(read_predictions(rows.with_name("predictions.csv"))) == 6
    # What is measured later stands beside it; of another data set or model it does not.
    assert cli(*words, "12")[0] == 0
    assert {row.resolution for row in read_rows(rows)} == {8, 12}
    refused(*words, "8", "--data", "scenes:search", says=[])
    kept = read_rows(rows)
    rows.write_text(rows.read_text().replace('"weights": "', '"weights": "0'))
    refused(*words, "24", says=[str(rows.parent), "--overwrite"])
    assert cli(*words, "24", "--overwrite")[0] == 0
    assert {row.resolution for row in read_rows(rows)} == {24}
    assert {row.weights for row in kept} == {row.weights for row in read_rows(rows)}
    refused(*words[:-2], rows, "--resolutions", "8", says=[str(rows)])
    refused(*words[:-2], tmp_path / "other", "--limit", 3, "--resolutions", 8, says=["--limit"])
    assert tree(run_copy) == before


def test_data_and_suites_in_one_call(cli, refused, run_copy, tmp_path):
    """Rows of both stand in one file, told apart by data and preparation."""
    words = ["evaluate", run_copy, "--resolutions", "8", *FEW, "--suite", "digits", "--suite", "scenes:pairs"]
    refused(*words, says=["24", "10"])
    words = [*words[:-2], "--logits"]
    refused(*words, "--tune", says=["--tune", "--data"])
    code, _, err = cli(*words, "--data", "digits", "--measures", "fgsm")
    assert code == 0, err
    rows = [row for row in read_rows(run_copy / "results.jsonl") if row.count == 6]
    assert {(row.data, row.preparation) for row in rows} == {("digits", ""), ("digits", "model")}
    assert {row.preparation for row in rows if row.metric == "fgsm_top1"} == {""}
    whole = [
        {row.metric: row.value for row in rows if row.preparation == said and not row.slices} for said in ("", "model")
    ]
    assert whole[0].items() >= whole[1].items()
    assert len(list((run_copy / "logits").iterdir())) == 2
    assert len(read_predictions(run_copy / "predictions.csv")) == 306


def test_the_sizes_that_are_tested_unless_some_are_given(cli, run_copy, tmp_path):
    assert cli("evaluate", run_copy, *FEW, "--out", tmp_path / "rows")[0] == 0
    assert {row.resolution for row in read_rows(tmp_path / "rows" / "results.jsonl")} == {
        8,
        12,
        16,
        20,
        24,
        28,
        32,
    }.intersection({round(16 * factor / 4) * 4 for factor in (0.625, 0.75, 1.0, 1.375, 1.75, 2.0)})


@pytest.mark.parametrize("words", [["8,24"], ["8", "24"], ["24 8"], ["8", "24,8"]])
def test_a_list_of_resolutions(words, cli, run_copy, tmp_path):
    assert cli("evaluate", run_copy, "--resolutions", *words, *FEW, "--out", tmp_path / "rows")[0] == 0
    rows = [row for row in read_rows(tmp_path / "rows" / "results.jsonl") if row.metric == "top1"]
    assert [(row.resolution, row.shrunk) for row in rows] == [(8, None), (24, None), (24, 16)]


def test_what_is_measured_of_the_model_is_asked_for_by_name(cli, refused, run_copy, monkeypatch):
    monkeypatch.setattr(speed, "_SECONDS", 0.0)
    words = ["evaluate", run_copy, "--resolutions", "8,24", *FEW]
    before = tree(run_copy)
    refused(*words, "--measures", "fgms", says=["measure 'fgms' is not known", "fgsm", "pgd", "speed"])
    assert tree(run_copy) == before
    code, out, _ = cli(*words, "--measures", "fgsm,speed")
    assert code == 0
    assert {"FGSM", "Throughput"} <= set(out.split())
    rows = read_rows(run_copy / "results.jsonl")
    found = {(row.resolution, row.slices["epsilon"], row.slices["loss"]) for row in rows if row.metric == "fgsm_top5"}
    assert found == {(side, f"{epsilon}/255", loss) for side in (8, 24) for epsilon in (1, 3) for loss in ("ce", "bce")}
    assert {row.resolution for row in rows if row.metric == "latency"} == {8, 24}


def test_without_shrunk_images(cli, run_copy, tmp_path):
    words = ["evaluate", run_copy, "--resolutions", "24", *FEW, "--no-shrink", "--out", tmp_path / "rows"]
    code, _, err = cli(*words)
    assert code == 0
    assert "6/6" in err
    assert {(row.resolution, row.shrunk) for row in read_rows(tmp_path / "rows" / "results.jsonl")} == {(24, None)}
    assert "--no-shrink" in cli("evaluate", "--help")[1]


def test_a_tuned_knob_has_rows_of_its_own(cli, run_copy):
    code, out, _ = cli("evaluate", run_copy, "--resolutions", "24", *FEW, "--tune", "--tune-images", 4, "--json")
    assert code == 0
    rows = [row for row in map(json.loads, out.splitlines()) if row["metric"] in ("top1", "top5")]
    assert [(row["tuned"], row["metric"]) for row in rows] == [
        (False, "top1"), (False, "top5"), (True, "top1"), (True, "top5"), (False, "top1"), (False, "top5"),
    ]  # fmt: skip
    assert [row.get("shrunk") for row in rows] == [None] * 4 + [16] * 2
    assert rows[0]["knob"] == 1.0
    # Without the search, the rows of it stay.
    assert cli("evaluate", run_copy, "--resolutions", "24", *FEW)[0] == 0
    assert sum(row.tuned and row.metric == "top1" for row in read_rows(run_copy / "results.jsonl")) == 1


def test_another_split(cli, run_copy):
    assert cli("evaluate", run_copy, "--split", "minival,test", "--resolutions", "16", *FEW, "--overwrite")[0] == 0
    rows = [row for row in read_rows(run_copy / "results.jsonl") if not row.slices]
    assert {(row.split, row.images) for row in rows} == {("minival", 6), ("test", 6)}


def test_a_checkpoint_is_named_as_its_run(cli, run_copy):
    code, out, _ = cli("evaluate", run_copy / "checkpoint", "--resolutions", "16", *FEW, "--json")
    assert code == 0
    assert {json.loads(line)["run"] for line in out.splitlines()} == {"tiny"}
    # And the checkpoint is still one.
    assert cli("evaluate", run_copy, "--resolutions", "16", *FEW)[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolutions", "18"], ["resolution 18", "patch_size 4", "16 or 20"]),
        (["--resolutions", "3"], ["resolution 3", "nearest to 3: 4)"]),
        (["--resolutions", "0"], ["0", "whole numbers"]),
        (["--resolutions", "16x24"], ["16x24"]),
        (["--resolutions", "-16"], ["-16"]),
        (["--resolutions", "natve"], ["natve", "did you mean 'native'?"]),
        (["--resolutions", "max:0"], ["max:0", "max:PATCHES"]),
        (["--resolutions", "native"], ["resolution native: digits has images of no size of their own"]),
        (["--images", "0"], ["images = 0"]),
        (["--tune-images", "0"], ["tune_images = 0"]),
        (["--split", "tset"], ["'tset'", "did you mean 'test'?"]),
        (["--precision", "half"], ['precision "half"']),
        (["--workers", "-1", "--resolutions", "16"], ["workers -1"]),
        (["--data", "scenes"], ["24 classes", "head 10"]),
        (["--data", "scenes:pairs"], ["24 classes", "head 10"]),
        (["--data", "digit"], ["'digit'", "did you mean 'digits'?"]),
        (["--device", "gpu"], ["device 'gpu'"]),
    ],
)
def test_what_is_refused(words, says, refused, run_copy, tmp_path):
    before = tree(tmp_path)
    refused("evaluate", run_copy, *words, "--out", tmp_path / "new" / "rows", "--threads", 1, says=says)
    assert tree(tmp_path) == before


def test_no_knob_to_tune(cli, refused, tmp_path, tiny_run):
    config = ["--config", tiny_run / "config.yaml", "--encoding", "none", "--threads", 1]
    assert cli("train", *config, "--out", tmp_path / "a")[0] == 0
    before = tree(tmp_path)
    refused("evaluate", tmp_path / "a", "--tune", says=["--tune", "none"])
    assert tree(tmp_path) == before


def test_a_model_that_knows_no_data(refused, tiny_run, tmp_path):
    from sightline import load_model, save_model

    save_model(load_model(tiny_run), tmp_path / "m")
    refused("evaluate", tmp_path / "m", says=[str(tmp_path / "m"), "--data"])


def test_a_damaged_file_of_rows_is_found_before_the_work(refused, run_copy):
    (run_copy / "results.jsonl").write_text("not rows\n")
    before = tree(run_copy)
    refused("evaluate", run_copy, "--resolutions", "16", *FEW, says=["results.jsonl:1:"])
    assert tree(run_copy) == before


def test_logits_that_are_not_finite_end_with_4(cli, run_copy):
    file = run_copy / "checkpoint" / "model.safetensors"
    tensors = load_file(file)
    tensors["head.weight"] = torch.full_like(tensors["head.weight"], 3e38)
    save_file(tensors, file)
    reseal(run_copy / "checkpoint")
    before = tree(run_copy)
    code, out, err = cli("evaluate", run_copy, "--resolutions", "16", *FEW)
    assert (code, out) == (4, "")
    assert "digits/test/0" in err.splitlines()[-1]
    assert tree(run_copy) == before


def test_no_run_there(refused, tmp_path, run_copy):
    refused("evaluate", tmp_path / "tiyn", says=["tiyn", "'tiny'"])
    shutil.rmtree(run_copy / "checkpoints")
    refused("evaluate", run_copy, says=[str(run_copy)])
    refused("evaluate", run_copy / "log.jsonl", says=["log.jsonl"])


def test_a_packed_run_at_native_aspect_is_tested_so(cli, tmp_path):
    """By `train` at its end, by `evaluate` unless sizes are given, and by the words of `predict` where they are."""
    data = pictures(tmp_path / "data")
    run = tmp_path / "run"
    options = ["--images", 8, "--threads", 1, "--model_options.depth=1", "--precision=float32"]
    words = ["--data", data, "--model", "vit_micro_patch4", "--resolution", 16, *options]
    code, out, _ = cli("train", *words, "--packing.tokens=200", "--packing.most_tokens=60", "--out", run)
    assert code == 0
    assert "\nmax:60: " in out
    assert {row.view for row in read_rows(run / "results.jsonl")} == {"square", "max:60"}
    code, out, _ = cli("evaluate", run, "--threads", 1, "--json")
    assert code == 0
    found = {(row["view"], row["resolution"]) for row in map(json.loads, out.splitlines())}
    assert found >= {("max:60", None), ("square", 16)}
    code, out, _ = cli("evaluate", run, "--threads", 1, "--resolutions", "native,tokens:9")
    assert code == 0
    assert "native" in out
    views = {row.view for row in read_rows(run / "results.jsonl")}
    assert views == {"square", "max:60", "native", "tokens:9"}


def test_what_was_said_of_each_image(cli, run_copy):
    """After `train`, and after `evaluate`, where what is shown again is replaced."""
    first = read_predictions(run_copy / "predictions.csv")
    assert len(first) == 300
    assert {(row.split, row.view, row.resolution) for row in first} == {("test", "square", 16)}
    assert cli("evaluate", run_copy, "--resolutions", "8,tokens:9", "--threads", 1, "--precision", "float32")[0] == 0
    rows = read_predictions(run_copy / "predictions.csv")
    assert rows[:300] == first
    for view, side in (("square", 8), ("tokens:9", None)):
        shown = [row for row in rows if (row.view, row.resolution) == (view, side)]
        assert [row.index for row in shown] == list(range(300))
        measured = [row for row in read_rows(run_copy / "results.jsonl") if (row.view, row.resolution) == (view, side)]
        assert {row.value for row in measured if row.metric == "top1"} == {sum(row.correct for row in shown) / 300}
        assert all((row.label == row.predicted) is row.correct and 0 < row.score < 1 for row in shown)
        assert {row.label for row in shown} == set("0123456789")
    assert cli("evaluate", run_copy, "--resolutions", "8", *FEW, "--overwrite")[0] == 0
    again = read_predictions(run_copy / "predictions.csv")
    assert sum(row.resolution == 8 for row in again) == 6
    assert len(again) == len(rows) - 294


def test_predictions_elsewhere(cli, refused, run_copy, tmp_path):
    before, file = tree(run_copy), tmp_path / "out" / "predictions.csv"
    words = ["evaluate", run_copy, "--resolutions", "8", *FEW, "--out", tmp_path / "out"]
    assert cli(*words)[0] == 0
    assert file.read_text().splitlines()[0] == "split,view,resolution,index,name,label,predicted,score,correct"
    assert len(read_predictions(file)) == 6
    assert tree(run_copy) == before
    refused(*words[:-1], run_copy / "results.jsonl", says=["--out", "results.jsonl"])
    refused(*words[:-1], run_copy, says=[str(run_copy)])
    (run_copy / "predictions.csv").write_text("a,b\n")
    refused("evaluate", run_copy, "--resolutions", "8", *FEW, says=["predictions.csv:1:"])


@pytest.mark.slow
def test_what_measures_says_in_which_precision(cli, run_copy, tmp_path, monkeypatch):
    """By one rule: what is faster here, unless it is asked for."""
    monkeypatch.setattr(cpu, "default_precision", lambda device: "bfloat16")
    Image.new("RGB", (16, 16), "white").save(tmp_path / "white.png")
    words = {
        "evaluate": ["evaluate", run_copy, "--resolutions", "8", *FEW],
        "predict": ["predict", run_copy, tmp_path / "white.png"],
        "cascade": ["cascade", run_copy, "--tokens", "4,9", "--images", 6, "--overwrite", "--out", tmp_path / "c"],
    }
    for name, line in words.items():
        assert "bfloat16" in cli(*line)[1], name
        said = cli(*line, "--precision", "float32")[1]
        assert "float32" in said, name
        assert "bfloat16" not in said, name
    (answer,) = (json.loads(line) for line in cli(*words["predict"], "--json")[1].splitlines())
    assert answer["precision"] == "bfloat16"


def test_rows_of_weights_that_were_replaced_meanwhile_are_not_kept(cli, run_copy, tmp_path, monkeypatch):
    """By a training in the same folder: they would stand beside weights that they are not of."""
    from sightline.evaluation import measure as module

    measure = module.evaluate

    def meanwhile(*arguments, **options):
        rows = measure(*arguments, **options)
        model = load_model(run_copy)
        model.head.weight.data.add_(1)
        write_model(model, run_copy / "checkpoint")
        return rows

    monkeypatch.setattr(module, "evaluate", meanwhile)
    kept = {name: (run_copy / name).read_bytes() for name in ("results.jsonl", "predictions.csv")}
    code, _, err = cli("evaluate", run_copy, "--resolutions", "16", *FEW)
    assert code == 5
    assert str(run_copy) in err
    assert {name: (run_copy / name).read_bytes() for name in kept} == kept
    elsewhere = ["--data", "digits", "--out", tmp_path / "rows"]
    assert cli("evaluate", run_copy, "--resolutions", "16", *FEW, *elsewhere)[0] == 0


def test_logits_are_kept_and_measured_again_without_the_model(cli, refused, run_copy, tmp_path):
    """The same command may come again; another one has a folder of its own, or says that it replaces this one."""
    out, place = tmp_path / "out", tmp_path / "again.jsonl"
    kept, rows = out / "logits", out / "results.jsonl"
    words = ["evaluate", run_copy, "--resolutions", "8,24", *FEW, "--logits", "--out", out]
    code, said, _ = cli(*words)
    assert code == 0
    assert f"logits: {kept} " in said
    before = tree(kept)
    assert len(before) == 3
    shutil.move(run_copy, tmp_path / "gone")
    code, said, _ = cli("rescore", out, "--out", place, "--threads", 1)
    assert code == 0
    assert "24 px" in said
    assert sorted(map(repr, read_rows(place))) == sorted(map(repr, read_rows(rows)))
    code, said, _ = cli("rescore", kept / next(iter(before)), "--json")
    assert code == 0
    assert set(said.splitlines()) < set(rows.read_text().splitlines())
    refused("rescore", kept, "--out", place, says=["exists already", "--overwrite"])
    file = kept / next(iter(before))
    refused("rescore", kept, "--out", file, "--overwrite", says=["--out", file.name])
    refused("rescore", out / "logitss", says=["logitss", "'logits'"])
    refused("rescore", rows, says=["results.jsonl"])
    twice = shutil.copytree(kept, tmp_path / "twice", symlinks=True)
    shutil.copy(twice / file.name, twice / "again.npz")
    refused("rescore", twice, "--out", tmp_path / "twice.jsonl", says=[file.name, "again.npz"])
    assert not (tmp_path / "twice.jsonl").exists()
    shutil.move(tmp_path / "gone", run_copy)
    assert cli(*words)[0] == 0
    measured = rows.read_text()
    other = [*words[:2], "--resolutions", "8", "--images", 5, *words[6:]]
    refused(*other, says=[".npz", "--overwrite"])
    assert tree(kept).keys() == before.keys()
    assert rows.read_text() == measured
    assert cli(*other, "--overwrite")[0] == 0
    (tmp_path / "spare").mkdir()
    (tmp_path / "spare" / "logits").write_text("mine")
    refused(*words[:-1], tmp_path / "spare", says=["logits", "folder"])
    refused(*words[:-1], run_copy / "checkpoint", says=["--out", "checkpoint"])


def test_parts_of_another_processor_are_another_work(cli, run_copy, tmp_path, monkeypatch):
    works, work_folder = [], parts.work_folder

    def watched(out, model, about, *ranks):
        works.append(about())
        return work_folder(out, model, about, *ranks)

    monkeypatch.setattr("sightline.runs.evaluate.work_folder", watched)
    for number, name in enumerate(("one", "one", "another")):
        monkeypatch.setattr(machine, "processor", lambda name=name: (name, ""))
        assert cli("evaluate", run_copy, "--resolutions", "8", *FEW, "--out", tmp_path / f"{number}")[0] == 0
    first, again, other = works
    assert first == again
    assert {key for key in first if first[key] != other[key]} == {"processor"}


def test_data_without_a_test_or_minival(cli, refused, run_copy, tmp_path):
    """What is measured then is told of, and what is searched on is named with the way to have it."""
    data = pictures(tmp_path / "data", tuple("0123456789"), 2)
    shutil.rmtree(tmp_path / "data" / "test")
    words = ["evaluate", run_copy, "--data", data, "--resolutions", 16, "--out", tmp_path / "rows"]
    for option in ("--tune", "--temperature"):
        refused(*words, option, says=[f"--data {data},minival="])
    code, _, err = cli(*words)
    assert code == 0, err
    assert {row.split for row in read_rows(tmp_path / "rows" / "results.jsonl")} == {"train"}
    assert f"{data} has no split to test on" in err
    assert "to test on" not in cli(*words, "--split", "train")[2]
