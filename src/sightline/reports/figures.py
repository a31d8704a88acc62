"""The figures of the results page as panels: a metric by size, by parts of the images, by how sure the model is, under
attack, beside a paper's, and what was measured in training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sightline.errors import InputError
from sightline.published import Paper
from sightline.reports import series, style, words
from sightline.reports.content import LossCurve, RunSummary, SeenSizes
from sightline.reports.lines import WHOLE, Line, Panel, Trained, measured_line, value_range
from sightline.reports.results_tables import ATTACK, titled
from sightline.reports.series import PlotLine, Study
from sightline.results.rows import ResultRow, Slices

RIGHT, SURE, BIN = "top1_in_bin", "confidence", "confidence_bin"
_ATTACKED = "_top1"
_MOST_LOSS_POINTS = 300
_IMAGES = "images seen in training"
_PUBLISHED: dict[str, Any] = {"color": style.FAINT, "linewidth": 1, "linestyle": (0, (4, 2)), "zorder": 1}


def look_of(line: PlotLine, order: Sequence[str]) -> dict[str, Any]:
    """How a line is drawn: dashed and with open marks where it has the default of a knob that was tuned too, thin and
    dotted where its images were downsampled."""
    dashed = (line.paired and not line.tuned) or line.shrunk is not None
    look = {**style.look(line.run, order), "linewidth": 2 if line.shrunk is None else 1.1, "markersize": 5.5}
    look["linestyle"] = "-" if not dashed else (0, (4, 2)) if line.shrunk is None else (0, (2, 2))
    return look | ({"markerfacecolor": style.PAGE} if dashed else {})


def guessing(chance: float | None) -> tuple[float, str] | None:
    """The level of guessing, a fraction, where it is known."""
    return None if chance is None else (100 * chance, f"guessing: {100 * chance:.1f} %")


def by_resolution(study: Study, *, fitted: bool = False) -> list[Panel]:
    """The main metric by test resolution (pixels, spaced by doublings), one line a run; none without squares.

    Where a run has both, its tuned knob is solid and its default dashed. `fitted` lets the axis of fractions begin and
    end where the numbers do.
    """
    chosen = [line for line in study.lines() if line.points]
    if not chosen:
        return []
    lines = _lines(study, [(line, line.points) for line in chosen])
    return [
        Panel(
            lines,
            x_label="test resolution (side of the image, px)",
            y_label=words.axis(study.main),
            x_scale="log2",
            x_ticks={size: str(size) for size in series.resolutions(chosen)},
            y_range=value_range(study.main, lines if fitted else None),
            level=guessing(study.chance),
            trained=_trainings(study, chosen),
            name_ends=True,
        )
    ]


def _lines(study: Study, points: Iterable[tuple[PlotLine, Any]]) -> list[Line]:
    """Each with points, by place on the x axis."""
    return [measured_line(one.label, look_of(one, study.order), some) for one, some in points if some]


def _trainings(study: Study, chosen: Sequence[PlotLine]) -> list[Trained]:
    """The sizes of training that lines differ in."""
    found: dict[tuple[float | None, ...], tuple[SeenSizes, list[str]]] = {}
    for line in chosen:
        key = line.seen.low, line.seen.high, line.seen.nominal
        found.setdefault(key, (line.seen, []))[1].append(line.run)
    made = []
    for sizes, some in found.values():
        runs = list(dict.fromkeys(some))
        whose = f"{', '.join(runs) if len(runs) < 3 else f'{len(runs)} runs'}: " if len(found) > 1 else ""
        colour = style.colour(runs[0], study.order) if whose and len(runs) == 1 else style.INK
        said = f"trained at {sizes.short}" if sizes.nominal is None else f"nominal size {sizes.nominal} px"
        made.append(Trained(f"{whose}{said}", colour, sizes.low or sizes.nominal, sizes.high or sizes.nominal))
    return made


def by_object_size(study: Study) -> list[Panel]:
    """The main metric by fifths of object size, at a resolution of training and at the largest."""
    parts = study.parts(study.main.metric).get("size_quintile", [])
    ticks = {fifth: titled("size_quintile", part) for fifth, part in enumerate(parts)}
    axes: dict[str, Any] = {"x_label": "object size, by fifths of the test images", "y_label": words.axis(study.main)}
    axes |= {"x_ticks": ticks, "y_range": value_range(study.main)}
    fifths = [{line.label: line for line in study.lines(slices=part)} for part in parts]
    chosen, panels = _distinct(line for some in fifths for line in some.values()), []
    for size in series.outer_resolutions(chosen):
        points = [(line, _by_place(fifths, line, size)) for line in chosen]
        panels.append(Panel(_lines(study, points), _tested_at(size, chosen), **axes))
    return panels


def _by_place(parts: Sequence[dict[str, PlotLine]], line: PlotLine, size: int) -> dict[int, ResultRow]:
    """What was measured of a line at a size in each part that has it, by the part's number."""
    own = {place: some[line.label].points for place, some in enumerate(parts) if line.label in some}
    return {place: points[size] for place, points in own.items() if size in points}


def is_calibrated(study: Study) -> bool:
    """Whether rows of the main split say how sure and how often right the answers of any bin are."""
    return all(BIN in study.parts(metric) for metric in (RIGHT, SURE))


def reliability(study: Study) -> list[Panel]:
    """The reliability diagram (Guo et al. 2017, figure 1): accuracy of each bin (percent) by its mean confidence, at a
    resolution of training and at the largest; one line a run."""
    bins: list[Slices] = study.parts(RIGHT).get(BIN, [])
    right, sure = (
        [{line.label: line for line in study.lines(metric, slices=part)} for part in bins] for metric in (RIGHT, SURE)
    )
    # The seldom bins are not there for every run.
    chosen, panels = _distinct(line for some in right for line in some.values()), []
    axes: dict[str, Any] = {"x_label": "mean confidence of the bin (%)", "y_label": f"{words.title(RIGHT)} (%)"}
    for size in series.outer_resolutions(chosen):
        points = []
        for line in chosen:
            own, at = _by_place(right, line, size), _by_place(sure, line, size)
            points.append((line, dict(sorted((100 * at[place].value, own[place]) for place in own if place in at))))
        title = _tested_at(size, chosen)
        panels.append(Panel(_lines(study, points), title, **axes, x_range=WHOLE, y_range=WHOLE, diagonal=True))
    return panels


def attack_metrics(study: Study) -> list[str]:
    """Names of the metrics under attack that were measured on the main split."""
    return [one.metric for one in study.metrics() if ATTACK in study.parts(one.metric)]


def under_attack(study: Study) -> list[Panel]:
    """Top-1 accuracy under attack by test resolution, for each attack, loss and epsilon that was measured on squares;
    one line a run."""
    parts = [(metric, part) for metric in attack_metrics(study) for part in study.parts(metric)[ATTACK]]
    shown = {}
    for metric, part in parts:
        lines = [line for line in study.lines(metric, slices=part) if line.points]
        if lines and metric.endswith(_ATTACKED):
            name = metric.removesuffix(_ATTACKED).upper()
            shown[f"{name} {part['epsilon']}, loss {part['loss']}"] = lines
    sizes = series.resolutions([line for lines in shown.values() for line in lines])
    axes: dict[str, Any] = {"x_label": "test resolution (px)", "y_label": "top-1 accuracy (%)", "x_scale": "log2"}
    axes |= {"x_ticks": {size: str(size) for size in sizes}, "y_range": WHOLE}
    return [Panel(_lines(study, [(one, one.points) for one in some]), title, **axes) for title, some in shown.items()]


def check_paper(study: Study, paper: Paper) -> None:
    """Refuse a paper whose numbers have no place beside what was measured.

    Raises:
        InputError: it has no curve by resolution, or it is of another metric.
    """
    if paper.curve is None:
        raise InputError(f"paper {paper.name}: its tables hold no curve by resolution")
    if paper.curve.metric != study.main.metric:
        raise InputError(f"paper {paper.name}: its curve is of {paper.curve.metric}, not of {study.main.metric}")


def beside_paper(study: Study, paper: Paper) -> list[Panel]:
    """The main metric by the side of the test images over that of the training images: what was measured, and what the
    paper printed, dashed, in the colour of the run of the same encoding where there is one.

    Raises:
        InputError: as `check_paper`.
    """
    check_paper(study, paper)
    assert paper.curve is not None
    chosen = [line for line in study.lines() if line.points and line.shrunk is None]
    runs, lines = {line.encoding: line.run for line in reversed(chosen)}, []
    for line in chosen:
        points = {size / point.train_resolution: point for size, point in line.points.items()}
        lines.append(measured_line(f"{style.short(line.label)}, measured", look_of(line, study.order), points))
    for method, (encoding, printed) in sorted(paper.lines().items(), key=lambda item: item[1][0] not in runs):
        look, name = _PUBLISHED, "others, published"
        if encoding in runs:
            own = {"color": style.colour(runs[encoding], study.order), "linewidth": 1.8, "zorder": 2}
            look, name = {**_PUBLISHED, **own}, f"{method}, published"
        times = [side / paper.curve.trained for side in printed]
        lines.append(Line(name, look, times, [one.number for one in printed.values()]))
    places = [place for line in lines for place in line.x]
    doublings = range(math.ceil(math.log2(min(places))), math.floor(math.log2(max(places))) + 1)
    ticks = {2.0**power: f"{2.0**power:g}{words.TIMES}" for power in doublings}
    axes: dict[str, Any] = {"y_label": words.axis(study.main), "y_range": value_range(study.main), "x_scale": "log2"}
    return [Panel(lines, x_label="test side in training sides (px / px)", x_ticks=ticks, **axes)]


def loss(runs: Sequence[RunSummary], order: Sequence[str]) -> list[Panel]:
    """Training loss by images seen, one line a run; long curves are averaged to 300 points. Losses of different kinds
    have a panel each: their numbers cannot be compared."""
    lines: dict[str, list[Line]] = {}
    for run in runs:
        x, y = averaged(run.loss)
        if len(x):
            mark = {"marker": "o" if len(x) == 1 else "", "markersize": 5}
            look = {"color": style.colour(run.name, order), "linewidth": 1.6, **mark}
            lines.setdefault(run.loss.kind, []).append(Line(run.name, look, x.tolist(), y.tolist()))
    panels = []
    for kind, some in lines.items():
        values = [value for line in some for value in line.y]
        axes = {"x_range": _seen_images(some), "y_range": (min(0.0, *values), 1.05 * max(values) or 1)}
        panels.append(Panel(some, kind, _IMAGES, "training loss", **axes))
    return panels


def _seen_images(lines: Sequence[Line]) -> tuple[float, float]:
    return 0, 1.05 * max(place for line in lines for place in line.x) or 1


def averaged(curve: LossCurve) -> tuple[np.ndarray, np.ndarray]:
    """The curve's finite points as float64 arrays, means of neighbours where there are more than can be seen."""
    points = np.array([curve.images, curve.loss], np.float64)
    points = points[:, np.isfinite(points).all(0)]
    parts = np.array_split(points, min(_MOST_LOSS_POINTS, points.shape[1]) or 1, axis=1)
    x, y = np.array([part.mean(1) for part in parts if part.size]).reshape(-1, 2).T
    return x, y


def validation(runs: Sequence[RunSummary], order: Sequence[str]) -> list[Panel]:
    """A metric on images held out from training by images seen, one line a run with the band of its 95 % intervals; a
    star stands at the best checkpoint."""
    lines, stars = [], []
    for run in runs:
        if run.validation:
            look = {**style.look(run.name, order), "linewidth": 1.8, "markersize": 4}
            points = {one.images: one.measured for one in run.validation}
            best = {one.images: one.measured for one in run.validation if one.step == run.best_step}
            lines.append(measured_line(run.name, look, points, band=True))
            star = {"color": look["color"], "marker": "*", "markersize": 14, "markeredgecolor": style.PAGE, "zorder": 4}
            stars += [Line("", star, one.x, one.y) for one in [measured_line("", star, best)] if best]
    if not lines:
        return []
    first = next(run.validation[0].measured for run in runs if run.validation)
    axes: dict[str, Any] = {"x_range": _seen_images(lines), "y_range": value_range(first, lines)}
    return [Panel([*lines, *stars], "", _IMAGES, words.axis(first), **axes)]


def _distinct(lines: Iterable[PlotLine]) -> list[PlotLine]:
    """Lines with points, one of each label."""
    return list({line.label: line for line in lines if line.points}.values())


def _tested_at(size: int, chosen: Sequence[PlotLine]) -> str:
    return f"tested at {size} px{' (as trained)' if series.seen_at(size, chosen) == 'trained' else ''}"
