"""Plain words for a reader who has never seen the project: what was trained, on what, and what an encoding does."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from sightline.hub.model_card import describe_encoding
from sightline.reports import series
from sightline.reports.content import RunSummary, SeenSizes
from sightline.reports.words import TIMES, capital, listed, span, title
from sightline.results.rows import ResultRow

_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def encoding_words(name: str, runs: Sequence[RunSummary] = ()) -> str:
    """One line on what the encoding does: the run's own words if it has some; "" where nothing is known."""
    for run in runs:
        if run.encoding == name and run.about:
            return run.about
    return describe_encoding(name)


def data_words(row: ResultRow) -> str:
    """What is seen in the images and what has to be said about them; for unknown data only its name."""
    about = _about()
    if row.metric in about["asked"]:
        if row.task in about["seen"]:
            return f"{about['seen'][row.task].strip()} {about['asked'][row.metric].strip()}"
        return f"The images are those of {row.data}. {about['asked_of_any'][row.metric]}"
    known = about["data"]
    said = [known[kind] for kind in dict.fromkeys((row.task, row.data)) if kind in known]
    return " ".join(said) or f"The {_shown([row])} are those of {row.data}."


def _shown(rows: Sequence[ResultRow]) -> str:
    """What a model was shown."""
    return "clips" if any(row.frames for row in rows) else "images"


def case_words(row: ResultRow) -> str:
    """What shrinking does to the images of a data set; "" where that is not known."""
    cases = _about()["case"]
    return next((cases[name].strip() for name in (row.task, row.data.split(":")[0]) if name in cases), "")


@functools.cache
def _about() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("sightline.reports").joinpath("about.toml").read_text("utf-8"))


def metric_words(metric: str) -> str:
    """A metric, and what it says where that is known here."""
    said = {
        "top5": ": the right answer is among the five that the model holds most likely",
        "ece": ": how far accuracy lies from confidence, in 15 bins of confidence, the mean over images (0 to 1)",
        "nll": ": what the probability of the right answer costs, - log p, the mean over images",
        "brier": ": the squared distance between all probabilities and the truth, the mean over images (0 to 2)",
        "aurc": ": the share of wrong answers among the surest images, the mean over all numbers of them",
        "few_shot_top1": ": of ridge regression on frozen features of so many images of each class",
        "knn_top1": ": of a vote of the training images with the most similar frozen features",
        "linear_probe_top1": ": of logistic regression on frozen features of training images",
        "throughput": ": images a second, of full batches whose pixels are at hand, on the machine that measured them",
        "latency": ": one image alone whose pixels are at hand, the median of many passes, on that machine",
        "peak_memory": ": the weights, and what a pass of a full batch takes beside them",
        "flops": ", by its matrix products, two for a multiplication with its addition",
        "top1_answered": ", where those that the model is least sure of are left unanswered",
    }
    return capital(title(metric)) + said.get(metric, "")


def introduction(
    runs: Sequence[RunSummary], rows: Sequence[ResultRow], seen: Mapping[str, SeenSizes]
) -> dict[str, object]:
    """What introduction.html says: what was trained and how it was tested.

    Args:
        seen: run -> the sizes of its training.
    """
    names = list(dict.fromkeys(row.run for row in rows))
    grids = series.grids(rows)
    squares = [(row.resolution, row.grid) for row in rows if row.shrunk is None]
    sides = {(size, grid[-1]) for size, grid in squares if size is not None and grid is not None}
    patches = sorted({size // cells for size, cells in sides if cells > 0 and size % cells == 0})
    known = {run.name: run for run in runs if run.name in names}
    sizes = sorted({run.parameters for run in known.values() if run.parameters})
    details = []
    if sizes:
        millions = span([f"{size / 1e6:.{1 if size >= 1e5 else 3}f}" for size in sizes])
        details.append(f"{millions} million parameters{' each' * (len(names) > 1)}")
    if len(patches) == 1:
        details.append(f"patches of {patches[0]} {TIMES} {patches[0]} px")
    trainings: dict[str, list[str]] = {}
    for name in names:
        words = f"on {_shown([row for row in rows if row.run == name])} of {seen[name].words}"
        if name in known and known[name].train_images:
            # Of a folder they are fewer, each shown several times.
            words += f", {known[name].train_images:,} shown in all"
        words += f", of each {seen[name].parts}" if seen[name].parts else ""
        words += f", tokens dropped: {seen[name].drop}" if seen[name].drop else ""
        trainings.setdefault(words, []).append(name)
    shown = [seen[name] for name in names]
    return {
        "names": names,
        "count": _COUNTS[len(names)] if len(names) < len(_COUNTS) else len(names),
        "details": details,
        "trainings": trainings,
        "tested": sorted(grids),
        "seen_sizes": shown,
        "seen": seen,
        "unseen": any(not any(sizes.holds(size) for sizes in shown) for size in grids)
        and all(sizes.low is not None and not sizes.fine_tuned_from for sizes in shown),
        "encodings": {row.encoding for row in rows},
        "kinds": sorted({run.kind for run in known.values() if run.kind}),
    }


def unlike(runs: Sequence[RunSummary]) -> str:
    """In what the trainings of the runs differ, which a comparison of their encodings or sizes does not take out."""
    words = {
        "images": {run.train_images for run in runs},
        "tokens": {run.train_tokens for run in runs},
        "operations": {run.train_flops for run in runs},
        "losses": {run.loss.kind for run in runs},
    }
    differ = [word for word, values in words.items() if len(values - {0, ""}) > 1]
    said = "The runs differ in {} of training (see Training): a difference between them may come from that."
    return said.format(listed(differ)) if differ else ""
