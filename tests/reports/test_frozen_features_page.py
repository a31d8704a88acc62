"""What a page and a table say of what was learned from frozen features."""

from __future__ import annotations

from sightline.reports.content import Report
from sightline.reports.html import render
from tests.reports.synthetic import accuracy_rows, row
from tests.reports.test_html import Page
from tests.reports.test_tables import printed

VALUES = {"a": (0.75, 0.5), "b": (0.5, 0.25)}


def learned():
    rows = accuracy_rows(VALUES, (32, 64))
    for run in VALUES:
        for size in (32, 64):
            for shots, value in ((1, 0.31), (5, 0.62)):
                rows.append(row(run, value, size, metric="few_shot_top1", slices={"shots": shots}))
                rows.append(
                    row(run, 2.0**shots, size, metric="few_shot_l2", unit="", slices={"shots": shots}, better="")
                )
            rows.append(row(run, 7.0, size, metric="few_shot_smallest_class", unit="", better=""))
            rows += [row(run, 0.4 + k / 1000, size, metric="knn_top1", slices={"k": k}) for k in (10, 20)]
            rows.append(row(run, 1297.0, size, metric="knn_train_images", unit="", better=""))
            rows.append(row(run, 0.81, size, metric="linear_probe_top1"))
            rows.append(row(run, 0.001, size, metric="linear_probe_l2", unit="", better=""))
    return rows


def test_the_terminal_has_accuracies_and_what_was_left_out():
    text = printed(learned())
    for words in (
        "Top-1 accuracy of a few shots in % by shots, tested at 32 px, as trained",
        "Top-1 accuracy of nearest neighbours in % by k, tested at 64 px",
        "Top-1 accuracy of a linear probe in %, split test",
        "Images of the smallest class to take shots of, split test",
    ):
        assert words in text
    for absent in ("l2 of", "neighbours among"):
        assert absent not in text


def test_the_page_has_the_strengths_too():
    page = Page(render(Report("t", "c", [], learned())))
    for words in (
        "ridge regression on frozen features", "most similar frozen features", "logistic regression on frozen features",
        "L2 of a few shots by shots", "L2 of the linear probe", "1297", "0.001", "62.0", "42.0", "81.0",
    ):  # fmt: skip
        assert words in page.text, words
