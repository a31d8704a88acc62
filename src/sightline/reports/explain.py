"""Plain words for a reader who has never seen the project: what was trained, on what, and what an encoding does."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from sightline.reports import series
from sightline.reports.content import RunSummary, SeenSizes
from sightline.reports.words import TIMES, capital, quantity, span, title
from sightline.results import ResultRow


def encoding_words(name: str, runs: Sequence[RunSummary] = ()) -> str:
    """One line on what the encoding does: the run's own words if it has some; "" where nothing is known."""
    for run in runs:
        if run.encoding == name and run.about:
            return run.about
    parts = [_family_words(part.strip()) for part in name.split("+")]
    return " And: ".join(part for part in parts if part)


def _family_words(name: str) -> str:
    known = _about()["encodings"]
    families = [family for family in known if name == family or name.startswith(family + "_")]
    return known[max(families, key=len)] if families else ""


def data_words(row: ResultRow) -> str:
    """What is seen in the images and what has to be said about them; for unknown data only its name."""
    known = _about()["data"]
    said = [known[kind] for kind in dict.fromkeys((row.task, row.data)) if kind in known]
    return " ".join(said) or f"The images are those of {row.data}."


@functools.cache
def _about() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("sightline.reports").joinpath("about.toml").read_text("utf-8"))


def metric_words(metric: str) -> str:
    """A metric, and what it says where that is known here."""
    said = {"top5": ": the right answer is among the five that the model holds most likely"}
    return capital(title(metric)) + said.get(metric, "")


def introduction(runs: Sequence[RunSummary], rows: Sequence[ResultRow], seen: Mapping[str, SeenSizes]) -> str:
    """What was trained and how it was tested, in a paragraph.

    Args:
        seen: run -> the sizes of its training.
    """
    names = list(dict.fromkeys(row.run for row in rows))
    grids = series.grids(rows)
    patches = sorted({size // grid[0] for size, grid in grids.items() if grid[0] > 0 and size % grid[0] == 0})
    known = [run for run in runs if run.name in names]
    sizes = sorted({run.parameters for run in known if run.parameters})
    many = len(names) > 1
    text = f"{_count(len(names))} vision transformer{'s' if many else ''}"
    details = []
    if sizes:
        details.append(f"{span([_millions(size) for size in sizes])} million parameters{' each' * many}")
    if len(patches) == 1:
        details.append(f"patches of {patches[0]} {TIMES} {patches[0]} px")
    text += f" ({', '.join(details)})" if details else ""
    text += (" were trained" if many else " was trained") + _trainings(names, known, seen)
    text += _tests(sorted(grids), [seen[name] for name in names if name in seen])
    encodings = {row.encoding for row in rows}
    if len(encodings) > 1:
        text += (
            " What is compared is their position encoding: the part of a transformer that tells it where in the image "
            "each patch stands."
        )
    else:
        text += f" Where in the image each patch stands is told by the position encoding {next(iter(encodings))}."
    for name in names:
        if name in seen and seen[name].fine_tuned_from:
            text += (
                f" {name} began with the weights of {seen[name].fine_tuned_from}; what those were trained on before is "
                "not counted here."
            )
    return text


def _trainings(names: Sequence[str], known: Sequence[RunSummary], seen: Mapping[str, SeenSizes]) -> str:
    """ " on images of 32 px, 48,000 shown in all", and where runs differ what each of them saw."""
    said: dict[str, list[str]] = {}
    for name in names:
        run = next((run for run in known if run.name == name), None)
        words = f"on images of {seen[name].words}" if name in seen else "on images"
        if run is not None and run.train_images:
            # Of a folder they are fewer, each shown several times.
            words += f", {run.train_images:,} shown in all"
        if name in seen and seen[name].parts:
            words += f", of each {seen[name].parts}"
        if name in seen and seen[name].drop:
            words += f", tokens dropped: {seen[name].drop}"
        said.setdefault(words, []).append(name)
    if len(said) == 1:
        return " " + next(iter(said))
    return ": " + "; ".join(f"{', '.join(whose)} {words}" for words, whose in said.items())


def _tests(tested: Sequence[int], seen: Sequence[SeenSizes]) -> str:
    """At what sizes the runs were tested, and what that asks."""
    if not tested:
        return ", and tested in other ways than on squares."
    shown = f"{tested[0]} px" if len(tested) == 1 else f"{tested[0]} to {tested[-1]} px"
    one = {sizes.one for sizes in seen}
    if len(tested) == 1 and one == {tested[0]}:
        return ", and tested at that size."
    text = f"; they were then tested, with no further training, on squares of {shown}."
    if len(seen) == 1:
        text = text.replace("they were", "it was")
    new = [size for size in tested if not any(sizes.holds(size) for sizes in seen)]
    if new and all(sizes.low is not None for sizes in seen) and not any(sizes.fine_tuned_from for sizes in seen):
        text += " The question is how much of what was learned still holds at sizes never seen in training."
    return text


def curve_words(chosen: Sequence[series.Line]) -> str:
    """What the marks of the curve over resolutions say, and what lies beyond them."""
    if not chosen:
        return ""
    sizes = [line.seen for line in chosen]
    one, band = any(size.one is not None for size in sizes), any(size.one is None and size.low for size in sizes)
    marks = []
    if one:
        marks.append("A triangle and a dotted line mark the one size that a run was trained on.")
    if band:
        marks.append("A bar above the axes, and the tint below it, cover the sizes that a run saw in training.")
    if any(size.fine_tuned_from for size in sizes):
        marks.append("Sizes of the training that a run began with are not marked.")
    highs = [size.high for size in sizes]
    beyond = max((high for high in highs if high is not None), default=0.0)
    if None not in highs and series.resolutions(chosen)[-1] > beyond:
        of_this = " in this training" if any(size.fine_tuned_from for size in sizes) else " in training"
        marks.append(f"What stands to the right of {beyond:.0f} px is larger than anything that a run saw{of_this}.")
    return " ".join(marks)


def unlike(runs: Sequence[RunSummary]) -> str:
    """In what the trainings of the runs differ, which a comparison of their encodings or sizes does not take out."""
    words = {
        "images": {run.train_images for run in runs},
        "tokens": {run.train_tokens for run in runs},
        "operations": {run.train_flops for run in runs},
        "losses": {run.loss.kind for run in runs},
    }
    differ = [word for word, values in words.items() if len(values - {0, ""}) > 1]
    if not differ:
        return ""
    listed = differ[0] if len(differ) == 1 else f"{', '.join(differ[:-1])} and {differ[-1]}"
    return f"The runs differ in {listed} of training (see Training): a difference between them may come from that."


def validation_words(runs: Sequence[RunSummary]) -> str:
    """What the curve of validation shows."""
    points = [point for run in runs for point in run.validation]
    if not points:
        return ""
    counts = sorted({point.measured.count for point in points})
    splits = ", ".join(sorted({point.split for point in points}))
    # A run that was validated once has no curve.
    drawn = {"bar" if len(run.validation) == 1 else "band" for run in runs if run.validation}
    text = (
        f"{capital(title(points[0].measured.metric))} while training, on {span([f'{count:,}' for count in counts])} "
        f"{points[0].measured.counted} of split {splits}"
    )
    known = any(point.measured.limits() for point in points)
    text += f"; the {' or '.join(sorted(drawn))} is where it lies with 95 %." if known else "."
    best = [
        f"{run.name} {quantity(point.measured.value, point.measured.unit)} after {point.images:,} images"
        for run in runs
        for point in run.validation
        if point.step == run.best_step
    ]
    return text + (f" A star marks the best checkpoint: {'; '.join(best)}." if best else "")


def span_of_seeds(rows: Sequence[ResultRow]) -> str:
    """What the standard errors do not cover: how much another training would differ."""
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(row.run, set()).add(row.seed)
    if max(map(len, seeds.values())) > 1:
        return "Runs that were trained with several seeds have a line for each, which shows how much trainings differ."
    return (
        "Each run was trained once. The intervals say how precisely that one model was measured, not how much "
        "another training from another seed would differ."
    )


def _count(number: int) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    return words[number] if number < len(words) else str(number)


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.1f}" if parameters >= 1e5 else f"{parameters / 1e6:.3f}"
