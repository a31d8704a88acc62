"""The paragraphs of a page that say what was trained, on what, and what an encoding does."""

from __future__ import annotations

import pytest

from sightline.reports.content import Report
from sightline.reports.explain import data_words, encoding_words
from sightline.reports.html import render
from sightline.reports.words import duration
from tests.reports.synthetic import accuracy_rows, row, run_summary
from tests.reports.test_html import Page


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
