"""The sentences that are computed from synthetic rows."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.reports.content import Report
from sightline.reports.explain import data_words, encoding_words
from sightline.reports.findings import headline, shrinking
from sightline.reports.html import render
from sightline.reports.series import Study
from sightline.reports.words import duration
from tests.reports.synthetic import accuracy_rows, row, run_summary
from tests.reports.test_html import Page


def said(rows) -> tuple[str, str]:
    first, second = headline(Study.of(rows))
    return first.replace("\xa0", " "), second.replace("\xa0", " ")


def test_the_best_beyond_training_is_named_with_its_numbers():
    first, second = said(accuracy_rows())
    assert first.startswith("looker holds up best")
    assert "89.5 % [86.1, 92.1] at 148 px, 4.6 times the size of training" in first
    assert "after 93.8 % at 32 px" in first
    # means over 64 and 148 px
    assert "looker 92.7 %, adder 51.1 % and turner 18.1 %" in second
    assert "looker less adder: +41.5 points [+35.2, +47.5]" in second


def test_the_best_follows_the_numbers_and_not_the_order():
    first, _ = said(accuracy_rows({"a": [0.9, 0.2], "b": [0.5, 0.4]}, [32, 64]))
    assert first.startswith("b holds up best")


def test_what_the_errors_cannot_tell_apart_is_not_called_better():
    first, _ = said(accuracy_rows({"a": [0.9, 0.50], "b": [0.5, 0.51], "c": [0.5, 0.1]}, [32, 64]))
    assert "no difference was found between b and a" in first
    assert "best" not in first


def test_only_resolutions_that_all_runs_share_are_compared():
    rows = [*accuracy_rows({"a": [0.9, 0.6], "b": [0.9, 0.3]}, [32, 64]), row("b", 1.0, 148)]
    first, _ = said(rows)
    assert first.startswith("a holds up best")
    assert "at 64 px" in first


def test_defaults_are_compared_where_only_some_runs_were_tuned():
    rows = [row("a", 0.4, 64, knob=1.0), row("a", 0.9, 64, knob=0.5, tuned=True), row("b", 0.6, 64)]
    first, second = said(rows)
    assert first.startswith("b holds up best")
    assert "default knob" in second


def test_one_run_and_one_resolution():
    first, _ = said(accuracy_rows({"a": [0.5, 0.4]}, [32, 64]))
    assert first == (
        "a reaches 50.0 % [45.1, 54.9] at 32 px, as trained, and 40.0 % [35.3, 44.9] at 64 px, 2.0 times the size of "
        "training."
    )
    first, second = said(accuracy_rows({"a": [0.5], "b": [0.6]}, [32]))
    assert first == "At 32 px, b reaches the highest accuracy: 60.0 % [55.1, 64.7]."
    assert "No size beyond those that every run saw in training was measured" in second


def test_headline_refuses_no_rows():
    with pytest.raises(InputError):
        headline(Study.of([]))


def opening(runs, rows) -> str:
    return Page(render(Report("title", "", runs, rows))).text.split("title ")[-1]


@pytest.mark.slow
def test_introduction_says_what_was_trained_and_tested():
    runs, rows = [run_summary(name) for name in ("looker", "turner", "adder")], accuracy_rows()
    text = opening(runs, rows)
    assert text.startswith("Three vision transformers (1.8 million parameters each, patches of 4")
    assert "48,000 shown in all" in text
    assert "20 to 148 px" in text
    assert "position encoding" in text
    assert opening([], [row("a")]).startswith("One vision transformer ")


def test_encodings_are_explained_by_family_by_pair_or_by_the_run():
    assert encoding_words("lookhere_90") == encoding_words("lookhere")
    assert encoding_words("learned_1d") != encoding_words("learned_2d")
    pair = encoding_words("rope_mixed+learned_1d")
    assert encoding_words("rope_mixed") in pair
    assert encoding_words("learned_1d") in pair
    assert encoding_words("of_tomorrow") == ""
    assert encoding_words("looker", [run_summary("looker")]) == "Synthetic words about looker."


def test_data_is_described():
    assert data_words(row(task="imagefolder", data="photos")) == "The images are those of photos."


def test_seeds_are_accounted_for():
    assert "trained once" in opening([], [row(seed=0), row("b", seed=1)])
    assert "several seeds" in opening([], [row(seed=0), row(seed=1)])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "\u2013"), (0.44, "0.4 s"), (12.2, "12 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_durations(seconds, text):
    assert duration(seconds).replace("\xa0", " ") == text


def test_what_is_asked_of_data_that_nobody_knows_is_said_without_them() -> None:
    """ "Which of them" needs a sentence before it that names them."""
    for metric, words in (("miou", "of each pixel which class it belongs to"), ("box_ap", "where each object is")):
        known = data_words(row(metric=metric, data="scenes:pairs", task="pairs"))
        unknown = data_words(row(metric=metric, data="masks:mine", task="segmentation"))
        assert " of them" in known
        assert unknown.startswith("The images are those of masks:mine. ")
        assert words in unknown
        assert "them" not in unknown


@pytest.mark.parametrize("metric", ["patch_loss", "patch_accuracy", "patch_mse"])
def test_a_model_without_labels_names_nothing(metric: str) -> None:
    for data, task in (("scenes", "glyphs"), ("images:DIR", "masked_patches")):
        said = data_words(row(metric=metric, data=data, task=task))
        assert "name it" not in said
        assert "hidden" in said


def shown_shrunk(run: str = "a", value: float = 0.5, **changes):
    """What a run reaches at 64 px with images that are shrunk to 32 px."""
    return row(run, value, 64, shrunk=32, **{"knob": 1.0, **changes})


def shrunk_said(*rows) -> list[str]:
    return [line.replace("\xa0", " ") for line in shrinking(Study.of(list(rows)))]


def test_a_run_whose_rows_are_all_tuned_is_compared_with_its_shrunk_images():
    tuned = row("a", 0.9, 64, knob=0.5, tuned=True)
    plain = [row("b", 0.3, 64), shown_shrunk("b", knob=None)]
    assert shrunk_said(tuned, shown_shrunk(), *plain) == [
        "a (tuned knob): does better with images as they are at 64 px (shrunk ones with its default knob).",
        "b: does better with images shrunk at 64 px.",
    ]


def test_the_tuned_line_stands_beside_the_default_one():
    rows = [row("a", 0.2, 64, knob=1.0), row("a", 0.9, 64, knob=0.5, tuned=True), shown_shrunk()]
    assert shrunk_said(*rows) == [
        "a: does better with images shrunk at 64 px.",
        "a (tuned knob): does better with images as they are at 64 px (shrunk ones with its default knob).",
    ]
    # What was tuned was the rule for tables.
    rule = {"what": "rule", "chosen": "bicubic", "split": "minival", "images": 9, "metric": "top1", "tried": {}}
    (_, tuned) = shrunk_said(rows[0], row("a", 0.5, 64, knob=0.5, tuned=True, tuning=(rule,)), shown_shrunk())
    assert tuned == "a (tuned rule): no clear difference at 64 px (shrunk ones with its default rule)."


def test_each_seed_and_each_fixed_knob_stands_beside_its_own_shrunk_images():
    seeds = [(row("a", high, 64, seed=seed, knob=1.0), shown_shrunk(seed=seed)) for seed, high in ((1, 0.9), (2, 0.1))]
    assert shrunk_said(*(one for pair in seeds for one in pair)) == [
        "a (seed 1): does better with images as they are at 64 px.",
        "a (seed 2): does better with images shrunk at 64 px.",
    ]
    knobs = [row("a", 0.9, 64, knob=0.5), row("a", 0.1, 64, knob=2.0), shown_shrunk(knob=2.0)]
    assert shrunk_said(*knobs) == ["a (knob 2): does better with images shrunk at 64 px."]
