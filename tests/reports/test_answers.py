"""What was said of each image, counted."""

from __future__ import annotations

from sightline.reports import answers
from sightline.reports.content import Answers
from sightline.results.predictions import Prediction


def test_found_38_all_that_a_class_was_taken_for_most_often_is_counted():
    """Of three that were as frequent two were named, as if there were no other."""
    made = [
        Prediction("test", "square", 64, index, f"{index}.png", "a", named, 0.5, False)
        for index, named in enumerate("bcdd")
    ]
    assert answers.by_class(Answers("run", "test", "64 px", made))[0][2] == "d (2)"
    assert answers.by_class(Answers("run", "test", "64 px", made[:3]))[0][2] == "b, c and 1 more (1)"
