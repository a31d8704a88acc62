"""Other metrics than accuracy by size on a page and in a terminal: attacks, speed, calibration, papers, errors."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.published import paper
from sightline.reports.content import RunSummary
from tests.reports.synthetic import accuracy_rows, at, page, printed, row

PAIR, SIZES = {"a": (0.75, 0.5), "b": (0.5, 0.25)}, (32, 64)
TOP1 = "Top-1 accuracy in %, split test"


def attacked():
    """Both runs at both sizes; 10 or 20 points less by epsilon, and by view."""
    rows = accuracy_rows(PAIR, SIZES)
    for run, values in PAIR.items():
        for size, value in zip(SIZES, values, strict=True):
            for loss in ("ce", "bce"):
                for epsilon in (1, 3):
                    part = {"loss": loss, "epsilon": f"{epsilon}/255"}
                    rows.append(row(run, value - epsilon / 20, size, metric="fgsm_top1", slices=part))
                    rows.append(row(run, value - epsilon / 25, size, metric="fgsm_top5", slices=part))
    part = {"loss": "ce", "epsilon": "1/255"}
    rows.append(row("a", 0.125, None, metric="fgsm_top1", slices=part, view="native", grid=None, patches=9.5))
    return rows


ATTACKED = "Top-1 accuracy under FGSM in %, loss ce, epsilon 1/255, split test"


def test_attacks_have_a_figure_and_every_number_of_it():
    shown = page(attacked())
    assert {"attacked"} == {"attacked", "parts"} & set(shown.sections)
    assert len([name for name in shown.tables if "FGSM" in name]) == 8
    part = shown.table(ATTACKED)
    assert part[at(32), "a"].startswith("70.0 ")
    assert part["native own size and aspect", "a"].endswith("9.5 patches")
    assert "attacked" not in page(accuracy_rows(PAIR, SIZES)).sections
    # Of views alone there are numbers and no figure.
    views = page([one for one in attacked() if not one.slices or one.view == "native"])
    assert views.figures == shown.figures - 1
    assert views.table(ATTACKED)["native own size and aspect", "a"].startswith("12.5 ")


def calibrated():
    """Both runs at both sizes; of run b one bin less."""
    rows = accuracy_rows(PAIR, SIZES)
    for run in PAIR:
        for size in SIZES:
            rows.append(row(run, 0.125, size, metric="ece", unit="", better="lower"))
            rows.append(row(run, 0.25, size, metric="ece_30", unit="", better="lower"))
            rows.append(row(run, 0.9, size, metric="top1_answered", slices={"coverage": 0.5}, count=200))
            for number in (5, 15) if run == "a" else (15,):
                part = {"slices": {"confidence_bin": number}, "count": 40}
                rows.append(row(run, 0.3 + number / 50, size, metric="top1_in_bin", **part))
                rows.append(row(run, (number - 0.5) / 15, size, metric="confidence", unit="", better="", **part))
    return rows


def test_calibration_has_a_figure_and_every_number_of_it():
    shown = page(calibrated())
    bins = shown.table("Top-1 accuracy in % by confidence, tested at 64 px")
    assert [bins["a", name].split()[0] for name in ("27 to 33 %", "93 to 100 %")] == ["40.0", "60.0"]
    assert shown.table("Expected calibration error, split test")["a", at(32)] == "0.125"
    assert any("surest 50%" in lines[0] for lines in shown.tables.values())
    # What the figure shows is no part of the images beside it, and no metric by resolution.
    assert {"sure"} == {"sure", "parts"} & set(shown.sections)
    assert "Confidence" not in shown.text
    assert "sure" not in page(accuracy_rows(PAIR, SIZES)).sections
    text = printed(calibrated())
    assert [word in text for word in (TOP1, "calibration", "30 bins", "onfidence", "surest")] == [True] * 2 + [
        False
    ] * 3


def test_a_fitted_temperature_stands_by_resolution_on_the_page():
    """What it was fitted on is no part of the images."""
    fitted = {"slices": {"fitted_on": "minival"}, "unit": ""}
    rows = accuracy_rows(PAIR, SIZES)
    for size in SIZES:
        rows.append(row("a", 1.0625 + size, size, metric="temperature", better="", count=30, **fitted))
        rows.append(row("a", 0.0625, size, metric="ece_tempered", better="lower", **fitted))
    shown = page(rows)
    assert "parts" not in shown.sections
    assert shown.table("Fitted temperature, split test")["a", at(64)] == "65.06"
    assert "33.06" not in printed(rows)
    assert "0.0625" in printed(rows)


def test_frozen_features_have_accuracies_and_the_page_their_strengths_too():
    rows = accuracy_rows(PAIR, SIZES)
    for run in PAIR:
        for size in SIZES:
            for shots, value in ((1, 0.31), (5, 0.62)):
                rows.append(row(run, value, size, metric="few_shot_top1", slices={"shots": shots}))
                l2 = {"metric": "few_shot_l2", "unit": "", "slices": {"shots": shots}, "better": ""}
                rows.append(row(run, 2.0**shots, size, **l2))
            rows += [row(run, 0.4 + k / 1000, size, metric="knn_top1", slices={"k": k}) for k in (10, 20)]
            rows.append(row(run, 1297.0, size, metric="knn_train_images", unit="", better=""))
    shots, text, shown = (
        "Top-1 accuracy of a few shots in % by shots, tested at 32 px, as trained",
        printed(rows),
        page(rows, [RunSummary(run, run) for run in PAIR]),
    )
    assert [words in text for words in (shots, "62.0", "42.0", "l2", "1297")] == [True] * 3 + [False] * 2
    assert shown.table(shots)["a", "5"].startswith("62.0 ")
    assert any(name.startswith("L2 ") for name in shown.tables)
    assert "1297" in shown.text


def error(run, value, size=32, **changes):
    given = {"metric": "corner_error", "unit": "px", "count": 4096, "counted": "corners", "stderr": 0.25}
    return row(run, value, size, **{**given, "better": "lower", "task": "corners", "data": "houses", **changes})


def errors(**changes):
    values = {"near": (2.5, 3.25, 4.0), "far": (2.75, 6.5, 12.125)}
    return [error(run, value, size, **changes) for run, line in values.items()
            for size, value in zip((32, 64, 128), line, strict=True)]  # fmt: skip


def published(**changes):
    """Two runs of encodings of which papers print numbers, and one of which none does."""
    names = {"looker": "lookhere_90", "adder": "learned_1d", "own": "rope_dinov3"}
    return [
        row(run, 0.875 - size / 400, size, encoding=encoding, **changes)
        for run, encoding in names.items()
        for size in (32, 64, 128)
    ]


def test_every_number_of_a_papers_curve_and_what_it_is_of():
    shown = page(published(), papers=["lookhere", "rope_vit"])
    assert {"lookhere", "rope_vit"} <= set(shown.sections)
    assert "#rope_vit" in shown.links
    for name in ("lookhere", "rope_vit"):
        one = paper(name)
        assert one.title in shown.text
        assert one.curve is not None
        numbers = {line.split()[0] for table, lines in shown.tables.items() if table.startswith("Published")
                   for line, *_ in lines}  # fmt: skip
        for method, (_, points) in one.lines().items():
            assert method.split()[0] in numbers
            assert all(point.value in shown.text for point in points.values())
    assert "lookhere" not in page(published()).sections
    with pytest.raises(InputError, match="vit: its tables"):
        page(published(), papers=["vit"])
    with pytest.raises(InputError, match="corner_error"):
        page(published(metric="corner_error", unit="px", better="lower"), papers=["lookhere"])
