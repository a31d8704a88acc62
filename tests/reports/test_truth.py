"""A page says what rows, configuration and log say: made-up runs of each kind, and sentences that must not stand."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from sightline.reports import differences, results_tables
from sightline.reports import figures as panels_of
from sightline.reports.content import Answers, Report, Sample, ValidationPoint
from sightline.reports.lines import lines_figure
from sightline.reports.results_page import render
from sightline.reports.seen import by_run, training_sizes
from sightline.reports.series import Study
from sightline.reports.words import TIMES
from sightline.results.predictions import Prediction
from sightline.results.rows import MetricValue
from tests.pages import Page
from tests.reports.synthetic import (
    CONFIGS,
    cells,
    page_of,
    picture,
    printed,
    row,
    run_of,
    texts,
)


def said(report: Report) -> str:
    return Page(render(report)).text


def compared(report: Report) -> dict[str, list[tuple[str, bool]]]:
    """Of the table of differences each line's numbers, and whether 0 is left out."""
    study = Study.of(report.rows, seen=by_run(report.runs, report.rows), chance=report.chance)
    table = differences.between_runs(study)
    return {} if table is None else {head.name: [(one.value, one.best) for one in some] for head, some in table.lines}


def test_sizes_of_training_are_those_of_the_configuration():
    seen = {kind: training_sizes(config, 4) for kind, config in CONFIGS.items()}
    assert seen["uniform"].one == 64
    assert (seen["packed"].low, seen["packed"].high, seen["packed"].one) == (32, 96, None)
    assert (seen["mixed"].low, seen["mixed"].high) == (16, 64)
    # 256 patches of 4 px are 64 x 64 px; nothing says how small images were.
    assert (seen["own"].low, seen["own"].high) == (None, 64)
    assert seen["dropped"].drop == "25\u00a0%"
    assert seen["tuned"].fine_tuned_from == "timm:vit_of_another"
    # No image has more patches than a step holds: 16 x 16 of them.
    packing = {"tokens": 256, "resolutions": [32, 96], "aspect": "native"}
    assert training_sizes({"resolution": 64, "packing": packing}, 4).high == 64


@pytest.mark.parametrize("kind", ["packed", "mixed", "dropped", "own"])
def test_a_run_of_many_sizes_was_not_trained_at_one(kind):
    text = said(page_of(kind))
    for untrue in (f"64 {TIMES} 64 px", ", as trained", "trained at 64 px", "the training size", "that size"):
        assert untrue not in text, untrue
    words = training_sizes(CONFIGS[kind], 4).words.replace("\xa0", " ")
    assert f"on images of {words}, 48,000 shown in all" in text


def test_larger_than_anything_begins_beyond_the_largest_size_seen():
    beyond = re.compile(r"right of (\d+) px is larger than anything")
    assert beyond.findall(said(page_of("uniform"))) == ["64"]
    assert beyond.findall(said(page_of("packed", "uniform"))) == ["96"]
    inside = page_of("packed")
    inside = dataclasses.replace(inside, rows=[one for one in inside.rows if one.resolution in (32, 64, 96)])
    for untrue in ("larger than", "never seen", "times the"):
        assert untrue not in said(inside), untrue
    assert f"64 {TIMES} 64" not in said(inside)


def test_runs_are_compared_beyond_what_each_of_them_saw():
    values = {"packed": (0.8, 0.9, 0.9, 0.8), "uniform": (0.6, 0.9, 0.2, 0.1)}
    # 96 px is not new to the packed run.
    assert compared(page_of("packed", "uniform", values=values)) == {"uniform minus packed": [("-70.0", True)]}


def test_own_sizes_have_no_beyond_but_the_limit():
    text = said(page_of("own"))
    assert "their own sizes, of at most 256 patches" in text
    assert "right of 64 px is larger" in text


def test_a_fine_tuned_run_has_seen_more_than_its_configuration_says():
    text = said(page_of("tuned"))
    assert "began with the weights of timm:vit_of_another" in text
    assert "never seen in training" not in text
    assert "larger than anything that a run saw in this training" in text


def test_losses_of_different_kinds_have_their_own_axes(figures):
    kinds = ("uniform", "packed", "mixed")
    drawn = panels_of.loss([run_of(kind) for kind in kinds], kinds)
    assert {panel.title: [line.label for line in panel.lines] for panel in drawn} == {
        "binary cross entropy, summed over 24 classes": ["uniform", "mixed"],
        "cross entropy over 24 classes, labels smoothed by 0.1": ["packed"],
    }
    assert texts(lines_figure(drawn, columns=1, share_y=False)).count("training loss") == 2


def test_none_of_six_is_not_nothing_to_the_last_digit():
    report = page_of("uniform", values={"uniform": (0.0, 0.9, 0.0, 1.0)})
    report = dataclasses.replace(report, rows=[dataclasses.replace(one, count=6, stderr=0.0) for one in report.rows])
    text = said(report)
    assert "[0.0, 39.0]" in text
    assert "[61.0, 100.0]" in text
    assert "±" not in text
    assert "39.0" in printed(report.rows)


def test_the_interval_of_a_difference_is_newcombes():
    """His first example: 56 of 70 and 48 of 80."""
    one, other = (
        Study.of([row(name, right / count, 64, count=count)]).lines()[0]
        for name, right, count in (("a", 56, 70), ("b", 48, 80))
    )
    assert differences.difference(one, other, [64]) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    # Of several comparisons each has the wider interval, and none is both.
    assert differences.difference(one, other, [64], 4)[1] < 0.0524


@pytest.mark.parametrize("kinds", [("uniform", "packed"), ("uniform", "mixed", "tuned")])
def test_nothing_is_marked_where_no_difference_was_found(kinds):
    report = page_of(*kinds, values={kind: (0.8, 0.9, 0.7, 0.5 + 0.01 * place) for place, kind in enumerate(kinds)})
    found = compared(report)
    assert len(found) == len(kinds) - 1
    assert not any(marked for line in found.values() for _, marked in line)


@pytest.mark.parametrize("values", [(0.05, 0.06, 0.05, 0.04), (0.0, 0.0, 0.0, 0.0)])
def test_a_run_that_was_too_short_is_marked_as_near_guessing(values):
    both = page_of("uniform", "packed", values={"uniform": values, "packed": values})
    one = page_of("uniform", "packed", values={"uniform": values, "packed": (0.9, 0.9, 0.9, 0.9)})
    learned = page_of("uniform", values={"uniform": (0.9, 0.9, 0.9, 0.9)})
    assert [said(report).count("Near guessing") for report in (both, one, learned)] == [2, 1, 0]


def test_other_views_than_squares_have_their_own_table():
    shown = [
        row("packed", 0.612, view=kind, resolution=None, grid=None, patches=157.25)
        for kind in ("native", "tokens:256", "max:4096")
    ]
    report = page_of("packed")
    both = dataclasses.replace(report, rows=[*report.rows, *shown])
    text = said(both)
    for words in ("61.2 [56.3, 65.8]", "157.2 patches", "resized to at most 256 patches", "own size and aspect"):
        assert words in text, words
    assert Study.of(both.rows).lines()[0].points == Study.of(report.rows).lines()[0].points
    assert "61.2" in printed(both.rows)
    # A run that was tested in no other way.
    alone = said(dataclasses.replace(report, rows=shown))
    assert "61.2 [56.3, 65.8]" in alone
    assert "Accuracy by resolution" not in alone
    assert "61.2" in printed(shown)


def test_every_difference_of_a_page_is_one_of_its_rows():
    report = page_of("packed", "uniform")
    values = {(one.run, one.resolution): one.value for one in report.rows}
    (line,) = compared(report).values()
    # Beyond 96 px there is 128 alone.
    gap = 100 * abs(values["packed", 128] - values["uniform", 128])
    assert [value for value, _ in line] == [f"{-gap:.1f}"]


def test_terminal_tables_mark_what_was_seen():
    report = page_of("packed")
    words = printed(report.rows, seen=by_run(report.runs)).split("In brackets")[0].split()
    # 32, 64 and 96 px, and not 128.
    assert words.count("seen") == 3
    assert "trained" not in printed(report.rows, seen=by_run(report.runs))
    assert "trained" in printed(page_of("uniform").rows)


def test_the_accuracy_axis_can_be_fitted(figures):
    rows = page_of("uniform", values={"uniform": (0.91, 0.92, 0.93, 0.94)}).rows
    assert "20" in texts(lines_figure(panels_of.by_resolution(Study.of(rows))))
    fitted = texts(lines_figure(panels_of.by_resolution(Study.of(rows), fitted=True)))
    assert "0" not in fitted
    assert "94" in fitted


def answers(classes: int = 3, **changes: object) -> Answers:
    made = []
    for index in range(4 * classes):
        label = f"class {index % classes}"
        # Of class 0 every second image is taken for class 1, the later with the higher score.
        wrong = index % classes == 0 and index % 2 == 0
        named = "class 1" if wrong else label
        made.append(
            Prediction("test", "square", 64, index, f"{index}.png", label, named, 0.5 + index / 100, named == label)
        )
    fields = {"run": "uniform", "split": "test", "shown": "64 px", "answers": made}
    return Answers(**{**fields, **changes})


def test_mistakes_are_shown_by_class_by_pair_and_by_picture():
    one = Sample(picture(64), "class 0, named class 1 (0.56)")
    text = said(page_of("uniform", answers=[answers(mistakes=[one])]))
    # Two of the four of class 0, of twelve in all.
    assert "uniform: 83.3 % [55.2, 95.3] of 12 images of split test named correctly at 64 px" in text
    assert "class 0 class 1 2 of 4 50.0 [15.0, 85.0]" in text
    assert "class 0 50.0 [15.0, 85.0] 4 class 1 (2)" in text
    assert "class 0, named class 1 (0.56)" in text
    assert "named as" in text
    assert "What is mistaken" not in said(page_of("uniform"))


def _rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def _luminance(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def test_the_worst_mistakes_are_those_with_the_highest_score():
    assert [one.index for one in results_tables.worst(answers().answers, 1)] == [6]


@pytest.mark.slow
def test_the_validation_curve_and_its_best_checkpoint(figures):
    shares = {10: 0.4, 20: 0.6, 30: 0.5}
    values = {at: MetricValue("top1", share, "fraction", 500) for at, share in shares.items()}
    points = [ValidationPoint(at, 32 * at, "minival", value) for at, value in values.items()]
    run = run_of("uniform", validation=points, best_step=20)
    text = said(page_of("uniform", runs=[run]))
    assert "on 500 images of split minival" in text
    assert "best checkpoint: uniform 60.0 % after 640 images" in text
    band, star = panels_of.validation([run], ["uniform"])[0].lines
    assert (band.band, list(band.x), star.x, star.y) == (True, [320, 640, 960], [640], [60])
    assert "best checkpoint" not in said(page_of("uniform", runs=[run_of("uniform", validation=points)]))
    assert "the band is where it lies" in text
    once = run_of("uniform", validation=points[:1])
    assert "the bar is where it lies" in said(page_of("uniform", runs=[once]))
    assert "the band or bar is" in said(page_of("uniform", runs=[run, dataclasses.replace(once, name="other")]))
    assert lines_figure(panels_of.validation([once], ["uniform"])).count("LineCollection") == 1


def test_all_that_a_class_was_taken_for_most_often_is_counted():
    """Of three that were as frequent two were named, as if there were no other."""
    made = [
        Prediction("test", "square", 64, index, f"{index}.png", "a", named, 0.5, False)
        for index, named in enumerate("bcdd")
    ]
    for some, taken in ((made, "d (2)"), (made[:3], "b, c and 1 more (1)")):
        table = results_tables.by_class(answers(answers=some))
        assert cells(table)["a", "most often taken for (images)"] == taken
