"""Tables of labels by the commands: checked, trained on, probed, and two runs paired on one page."""

from __future__ import annotations

import json

import pytest

from sightline.results.attributes import compare_attributes
from sightline.results.rows import read_rows, to_frame
from tests.attribute_data import RACES, fairface
from tests.pages import Page
from tests.tiny import MODEL, tiny_config, train

PROBE = ("--measures", "linear_probe", "--threads", 1)


@pytest.fixture
def faces(tmp_path):
    return f"csv:{fairface(tmp_path / 'faces', 60, 30)}"


def rows_of(folder, data, resolution=16):
    return [row for row in read_rows(folder / "results.jsonl") if (row.data, row.resolution) == (data, resolution)]


def table(page, begins):
    """The lines of the one table whose caption begins so: head -> texts of its cells."""
    (found,) = (lines for caption, lines in page.tables.items() if caption.startswith(begins))
    return {line[0]: line[1:] for line in found}


def test_a_class_of_a_table_is_checked_and_trained_on(cli, refused, faces, tmp_path):
    code, out, _ = cli("data", "check", f"{faces},label=race", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found["counts"]["train"]) == set(RACES)
    assert f"{faces},label=race" in found["next"]
    assert cli("data", "check", faces)[0] == 0
    # Of several columns one has to be chosen.
    small = (
        "--model", "vit_micro_patch4", "--resolution", 16, "--images", 60, "--workers", 0,
        *(word for name, value in MODEL.items() for word in (f"--model-options.{name}", value)),
    )  # fmt: skip
    refused("train", faces, *small, "--out", tmp_path / "none", says=["label"])
    code, *_ = cli("train", f"{faces},label=race", *small, "--out", tmp_path / "run")
    assert code == 0
    top1 = [row for row in read_rows(tmp_path / "run/results.jsonl") if row.metric == "top1" and not row.slices]
    assert {row.count for row in top1} == {30}


def test_two_runs_are_paired_on_a_page(cli, run_copy, faces, tmp_path):
    other = tmp_path / "other"
    train(tiny_config(seed=1, images=128), other)
    for run in (run_copy, other):
        words = ("evaluate", run, "--data", faces, "--resolutions", "16,20", *PROBE)
        code, out, errors = cli(*words)
        assert code == 0
        assert "not measured" in errors
        assert "gender by race" in out
    first, second = ([row for row in rows_of(run, faces) if row.right] for run in (run_copy, other))
    assert [row.slices for row in first] == [{"attribute": name} for name in ("age", "gender", "race")]
    pairs = compare_attributes(run_copy, other, data=faces, shown=("16 px", "16 px"))
    assert [pair.attribute for pair in pairs] == ["age", "gender", "race"]
    assert len(compare_attributes(run_copy, other)) == 6
    every = rows_of(run_copy, faces)
    assert to_frame(every)["value"].tolist() == [row.value for row in every]
    # Its tests are of attributes.
    assert cli("report", run_copy, "--paper", "navit", "--out", tmp_path / "other.html")[0] == 2
    code, out, _ = cli("report", run_copy, other, "--data", faces, "--paper", "navit", "--out", tmp_path / "page.html")
    assert code == 0
    page = Page((tmp_path / "page.html").read_text())
    assert "attributes" in page.sections
    assert page.text.count("3e-4") == 1
    accuracies, tests = (
        table(page, "Accuracy by attribute in %, 16"),
        table(page, f"{first[0].run} and {second[0].run}, 16"),
    )
    for one, two, pair in zip(first, second, pairs, strict=True):
        cells = accuracies[pair.attribute]
        assert [cell.split()[0] for cell in cells] == [
            f"{100 * one.value:.1f}",
            f"{100 * two.value:.1f}",
            str(one.count),
        ]
        assert tests[pair.attribute] == [*map(str, pair.alone), f"{pair.p:.2g}", f"{pair.adjusted:.2g}"]
    worst = table(page, "Worst group, and how far it lies below the best, in %, 16")
    for place, rows in enumerate((rows_of(run_copy, faces), rows_of(other, faces))):
        for row in (row for row in rows if row.metric in ("linear_probe_worst_group", "linear_probe_gap")):
            cell = worst[f"{row.slices['attribute']} by {row.slices['by']}"][2 * place + (row.metric.endswith("gap"))]
            assert cell.startswith(f"{100 * row.value:.1f}")
            assert cell.endswith(str(row.slices.get("group_value", "")))
    assert len(table(page, "Accuracy by attribute and group in %, 16")) == 1 + 5 + 7 + 6
    # People are not shown.
    assert "samples" not in page.sections


def test_on_other_images_two_runs_are_not_paired_and_the_page_says_so(cli, run_copy, faces, tmp_path):
    other = tmp_path / "other"
    train(tiny_config(seed=1), other)
    for run, images in ((run_copy, 30), (other, 20)):
        words = ("evaluate", run, "--data", faces, "--resolutions", "16", "--images", images, *PROBE)
        assert cli(*words)[0] == 0
    code, *_ = cli("report", run_copy, other, "--data", faces, "--out", tmp_path / "page.html")
    assert code == 0
    page = Page((tmp_path / "page.html").read_text())
    assert (
        len([caption for caption in page.tables if "16 px" in caption and caption.startswith("Accuracy by attr")]) == 2
    )
    assert not [caption for caption in page.tables if " and other, " in caption]
    assert f"other on {faces}/test at 16 px" in page.text


def test_measured_again_the_same_rows_take_the_place_of_the_first(cli, run_copy, faces):
    words = ("evaluate", run_copy, "--data", faces, "--resolutions", "16", *PROBE)
    assert cli(*words)[0] == 0
    first = rows_of(run_copy, faces)
    assert cli(*words)[0] == 0
    again = rows_of(run_copy, faces)
    assert [(row.metric, row.slices, row.value, row.right) for row in again] == [
        (row.metric, row.slices, row.value, row.right) for row in first
    ]
