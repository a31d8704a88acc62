"""`sightline.Run`: a notebook gets what the commands give."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import sightline
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.results.analysis import AnalysisRow
from sightline.results.rows import dump_rows, read_rows
from sightline.runs.classes import classes
from sightline.runs.options import AnalyseOptions, CascadeOptions, EvaluateOptions, PackOptions
from sightline.runs.packing import pack
from sightline.runs.table import summarise

FEW = ["--images", 6, "--threads", 1, "--device", "cpu"]


def lines(text, *but):
    """Rows as printed by `--json`, without what differs from run to run."""
    found = [json.loads(line) for line in text.splitlines()]
    return [{name: value for name, value in one.items() if name not in ("seconds", *but)} for one in found]


def test_evaluate_gives_the_rows_of_the_command(cli, run_copy, tmp_path):
    words = ["--resolutions", "8,tokens:9", "--split", "test,minival", "--out", tmp_path / "one"]
    code, said, err = cli("evaluate", run_copy, *words, *FEW, "--json")
    assert code == 0, err
    run = sightline.Run.open(run_copy, device="cpu")
    found = run.evaluate(resolutions=[8, "tokens:9"], split=["test", "minival"], images=6, out=tmp_path / "two")
    assert lines(found.path.read_text()) == lines(said)
    assert found.rows == read_rows(found.path)
    assert (found.path, found.predictions) == (tmp_path / "two/results.jsonl", tmp_path / "two/predictions.csv")
    frame = found.frame()
    assert list(frame["metric"]) == [row.metric for row in found.rows]
    assert list(frame["value"]) == [row.value for row in found.rows]
    assert set(frame["view"]) == {"8", "tokens:9"}


def test_a_frame_tells_every_row_apart(run_copy, tmp_path):
    run = sightline.Run.open(run_copy, device="cpu")
    frame = run.evaluate(resolutions=[8, 24, "tokens:9"], images=6, out=tmp_path / "rows").frame()
    assert list(frame.query("metric == 'top1'")["view"]) == ["8", "24", "24 shrunk to 16", "tokens:9"]
    *first, value = frame.columns[: list(frame.columns).index("value") + 1]
    assert (first[:2], value) == (["view", "metric"], "value")
    assert not frame.duplicated(first).any()


def test_evaluate_writes_into_the_folder_of_the_run(run_copy):
    before = read_rows(run_copy / "results.jsonl")
    found = sightline.Run.open(run_copy, device="cpu").evaluate(EvaluateOptions(images=4), resolutions=24)
    assert found.path == run_copy / "results.jsonl"
    assert read_rows(found.path) == before + found.rows
    assert found.predictions == run_copy / "predictions.csv"


def test_a_suite(cli, run_copy, tmp_path):
    words = ["--suite", "digits", "--resolutions", "8", "--images", 6, "--out", tmp_path / "one", "--threads", 1]
    code, said, err = cli("evaluate", run_copy, *words, "--json")
    assert code == 0, err
    run = sightline.Run.open(run_copy)
    found = run.evaluate(suite="digits", resolutions=[8], images=6, logits=True, out=tmp_path / "two")
    assert lines((tmp_path / "two" / "results.jsonl").read_text()) == lines(said)
    assert found.logits == tmp_path / "two" / "logits"


def test_predict_gives_the_answers_of_the_command(cli, run_copy, tmp_path):
    for number, size in enumerate([(20, 24), (40, 8)]):
        Image.new("RGB", size, (40 * number, 90, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_text("no picture")
    code, said, _ = cli("predict", run_copy, tmp_path, "--topk", 2, "--json", "--device", "cpu")
    assert code == 3
    run = sightline.Run.open(run_copy, device="cpu")
    assert json.loads(json.dumps(list(run.predict(tmp_path, topk=2)))) == [json.loads(one) for one in said.splitlines()]
    one = next(run.predict(tmp_path / "1.png", resolution="16"))
    assert one["seen_size"] == (16, 16)
    assert sum(entry["score"] for entry in one["top"]) <= 10


def test_predict_into_a_file_gives_the_file_of_the_command(cli, run_copy, tmp_path):
    for number in range(3):
        Image.new("RGB", (16, 20), (60 * number, 0, 9)).save(tmp_path / f"{number}.png")
    images = tmp_path / "*.png"
    assert cli("predict", run_copy, images, "--predictions", tmp_path / "one.jsonl", "--device", "cpu")[0] == 0
    run = sightline.Run.open(run_copy, device="cpu")
    said = list(run.predict(images, predictions=tmp_path / "two.jsonl"))
    assert (tmp_path / "two.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
    assert said == [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    with pytest.raises(InputError):
        run.predict(images, predictions=tmp_path / "two.jsonl")
    # Classification draws nothing.
    with pytest.raises(InputError):
        run.predict(images, out=tmp_path / "drawn")


def test_pack_gives_the_figures_of_the_command(cli):
    words = ["--resolutions", "64..256", "--images", 50, "--sequence-length", 512]
    said = json.loads(cli("pack", "stats", "scenes", *words, "--json")[1])
    found = pack("scenes", PackOptions(images=50), resolutions="64..256", sequence_length=512)
    assert found.figures == {name: said[name] for name in found.figures}
    assert len(found.lengths) == 50


def test_classes_gives_the_effects_of_the_command(cli, run_copy, tmp_path):
    run = sightline.Run.open(run_copy, device="cpu")
    run.evaluate(resolutions=[8, 24], images=40, logits=True)
    said = cli("classes", run_copy / "logits", "--json", "--threads", 1)[1]
    found = classes(run_copy / "logits", between=[8, 24], out=tmp_path / "study")
    assert dump_rows(found.effects) == said == (tmp_path / "study" / "class_effects.jsonl").read_text()
    assert len(found.frame()) == len(found.effects)


def test_summarise_gives_the_lines_of_the_command(cli, run_copy):
    said = cli("table", run_copy, "--split", "test", "--by", "seed", "--json")[1]
    assert summarise([run_copy], split="test", by="seed").dump() == said


def test_predict_needs_no_data(run_copy, tmp_path):
    sightline.save_model(sightline.load_model(run_copy), tmp_path / "model")
    Image.new("RGB", (16, 16)).save(tmp_path / "one.png")
    run = sightline.Run.open(tmp_path / "model", device="cpu")
    assert len(list(run.predict([tmp_path / "one.png"]))) == 1
    with pytest.raises(InputError):
        run.evaluate(resolutions=[16], out=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_analyse_gives_the_rows_and_the_folder_of_the_command(cli, run_copy, tmp_path):
    words = ["--data", "digits", "--measures", "entropy", "--images", 4, "--resolutions", "16", "--threads", 1]
    code, said, err = cli("analyse", run_copy, *words, "--out", tmp_path / "one", "--json")
    assert code == 0, err
    run = sightline.Run.open(run_copy, "digits")
    options = AnalyseOptions(measures=("entropy",), images=4, out=tmp_path / "two")
    found = run.analyse(options=options, resolutions=[16])
    assert lines((tmp_path / "two" / "analysis.jsonl").read_text()) == lines(said)
    assert found.rows == read_rows(tmp_path / "two" / "analysis.jsonl", AnalysisRow)
    first, second = (np.load(tmp_path / name / "tiny.entropy.npz") for name in ("one", "two"))
    assert all(np.array_equal(first[name], second[name]) for name in first.files if first[name].dtype.kind == "f")
    assert len(found.frame()) == len(found.rows)


def test_cascade_gives_the_rows_of_the_command(cli, run_copy, tmp_path):
    words = ["--tokens", "4,9", "--images", 8, "--threads", 1, "--device", "cpu"]
    code, said, err = cli("cascade", run_copy, *words, "--out", tmp_path / "one", "--json")
    assert code == 0, err
    run = sightline.Run.open(run_copy, device="cpu")
    found = run.cascade(CascadeOptions(images=8), tokens=[4, 9], out=tmp_path / "two")
    timed = ("milliseconds", "reading_milliseconds")
    assert lines((tmp_path / "two" / "cascade.jsonl").read_text(), *timed) == lines(said, *timed)
    assert found.path == tmp_path / "two"
    assert all(math.isfinite(row.top1) for row in found.rows)


def test_report_writes_the_page_of_the_command(cli, run_copy, tmp_path):
    assert cli("report", run_copy, "--out", tmp_path / "one.html")[0] == 0
    found = sightline.Run.open(run_copy, device="cpu").report(out=tmp_path / "two.html")
    assert found.path == tmp_path / "two.html"
    first, second = ((tmp_path / name).read_text() for name in ("one.html", "two.html"))
    assert len(first) == len(second)
    assert found._repr_html_() == second
    with pytest.raises(InputError):
        sightline.Run.open(run_copy, device="cpu").report(out=tmp_path / "two.html")


def test_an_option_that_there_is_not_is_named(run_copy):
    run = sightline.Run.open(run_copy, device="cpu")
    with pytest.raises(InputError, match="resolutions"):
        run.evaluate(resolution=[16])


def test_analyse_may_be_of_other_data(run_copy, tmp_path):
    """Which the page's command names, in the words of the command line."""
    run = sightline.Run.open(run_copy, device="cpu")
    assert run.data == "digits"
    found = run.analyse(data="scenes", measures=["entropy"], images=4, resolutions=[16, "8x16"], out=tmp_path / "a")
    assert {row.data for row in found.rows} == {"scenes"}
    page = (tmp_path / "a" / "analysis.html").read_text()
    assert "--data scenes --resolutions 16,8x16" in page
    again = run.analyse(measures="entropy", images=4, resolutions=16, out=tmp_path / "b")
    assert {row.data for row in again.rows} == {"digits"}
    assert "--data digits" in (tmp_path / "b" / "analysis.html").read_text()


@pytest.mark.parametrize("command", ["evaluate", "evaluate --suite", "cascade", "analyse"])
def test_weights_of_timm_are_never_written_over(command, refused, tmp_path):
    import_timm()
    import timm

    weights = tmp_path / "w" / "w.safetensors"
    weights.parent.mkdir()
    save_file(timm.create_model("vit_tiny_patch16_224", num_classes=10).state_dict(), weights)
    before = weights.read_bytes()
    name = command.partition(" ")[0]
    words = {
        "evaluate": ["--data", "digits", "--out", weights, "--overwrite"],
        "evaluate --suite": ["--suite", "digits", "--out", weights],
        "cascade": ["digits", "--out", weights, "--overwrite"],
        "analyse": ["--data", "digits", "--out", weights.parent, "--overwrite"],
    }[command]
    refused(name, "timm:vit_tiny_patch16_224", "--weights", weights, *words, says=[str(weights.parent)])
    assert weights.read_bytes() == before


def test_predict_takes_what_timm_builds(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "one.png")
    import_timm()
    import timm

    runs = []
    for name in ("other", "w"):
        file = tmp_path / f"{name}.safetensors"
        save_file(timm.create_model("vit_tiny_patch16_224", num_classes=10).state_dict(), file)
        runs += [sightline.Run.open("timm:vit_tiny_patch16_224", weights=file, device="cpu") for _ in range(2)]
    # Their rows are told apart by what the weights are, not by what the file is called.
    assert len({run.weights for run in runs}) == 2
    assert runs[0].weights == runs[1].weights
    run = runs[-1]
    (said,) = run.predict(tmp_path / "one.png", topk=1)
    assert said["size"] == (30, 40)
    with pytest.raises(InputError):
        run.evaluate(resolutions=[224], out=tmp_path / "rows")
    with pytest.raises(InputError):
        run.predict(tmp_path / "one.png", topk=0)
