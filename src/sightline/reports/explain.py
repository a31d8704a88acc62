"""Plain words for a reader who has never seen the project: what was trained, on what, and what an encoding does."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.reports.content import RunSummary
from sightline.reports.findings import TIMES
from sightline.results import ResultRow

# By name or by the family that a name starts with ("lookhere_90"). An encoding from elsewhere says it in
# `RunSummary.about`; one without either is shown without words.
_ENCODINGS = {
    "none": "Is told nothing about position: to it, an image is a bag of patches.",
    "learned_1d": "Adds a learned vector for each place to the patches; on another size the table of vectors is "
    "stretched like a picture.",
    "learned_2d": "Adds a learned vector for the row and one for the column to each patch.",
    "sincos_2d": "Adds fixed waves of many lengths, one set for the row and one for the column, to each patch.",
    "factorized": "Adds one embedding for the row and one for the column, so that unseen pairs of both still mean "
    "something.",
    "fourier": "Adds learned waves over the row and column of each patch.",
    "rpe_learned": "Learns a bonus or penalty for each displacement between two patches, added to attention.",
    "alibi_2d": "Every head pays less attention to a patch the farther away it is, in all directions alike.",
    "rope_axial": "Rotates queries and keys by angles that grow with row and column, so that attention depends on the "
    "displacement between two patches. It hides nothing: every head sees the whole image.",
    "rope_dinov3": "Rotates queries and keys by angles that go from edge to edge of the image, whatever its size. It "
    "hides nothing: every head sees the whole image.",
    "rope_mixed": "Rotates queries and keys by angles along directions that each head learns. Every head sees the "
    "whole image.",
    "lookhere": "Gives most heads one direction to look in: such a head sees only the patches on that side, and pays "
    "less attention to those farther away. The remaining heads look all around.",
}

_SCENES = (
    " The scenes are drawn by the program from a description, sharp at every resolution: a larger image shows the "
    "same kind of scene with more pixels, and nothing is ever upscaled."
)
_DATA = {
    "glyphs": "Each picture shows one of 24 letters and digits at some place and size, slightly turned, on a textured "
    "ground; the model has to name it. Many look alike (b d p q): it has to see where strokes lie relative to each "
    "other." + _SCENES,
    "pairs": "Each picture shows two different shapes out of disc, square, triangle and ring; the model has to say "
    "which two and whether one is left of, right of, above or below the other: 24 answers. Knowing the shapes but not "
    "their places gives 25 %." + _SCENES,
    "digits": "Each picture is a small handwritten digit; the model has to name it. Other resolutions are made by "
    "resampling the same pictures.",
}
_CLASSES = {"glyphs": 24, "pairs": 24, "digits": 10}


def encoding_words(name: str, runs: Sequence[RunSummary] = ()) -> str:
    """One line on what the encoding does: the run's own words if it has some; "" where nothing is known."""
    for run in runs:
        if run.encoding == name and run.about:
            return run.about
    parts = [_family_words(part.strip()) for part in name.split("+")]
    return " And: ".join(part for part in parts if part)


def _family_words(name: str) -> str:
    families = [family for family in _ENCODINGS if name == family or name.startswith(family + "_")]
    return _ENCODINGS[max(families, key=len)] if families else ""


def data_words(row: ResultRow) -> str:
    """What is seen in the images and what has to be said about them; for unknown data only its name."""
    return next((_DATA[kind] for kind in (row.task, row.data) if kind in _DATA), f"The images are those of {row.data}.")


def guessing(row: ResultRow) -> float | None:
    """The accuracy of guessing (a fraction) on data that is known here, else None."""
    return next((1 / _CLASSES[kind] for kind in (row.task, row.data) if kind in _CLASSES), None)


def introduction(runs: Sequence[RunSummary], rows: Sequence[ResultRow]) -> str:
    """What was trained and how it was tested, in a paragraph."""
    names = list(dict.fromkeys(row.run for row in rows))
    trained = sorted({row.train_resolution for row in rows})
    tested = sorted({row.resolution for row in rows if row.resolution})
    patches = sorted({row.resolution // row.grid[0] for row in rows if row.resolution and row.grid and row.grid[0]})
    known = [run for run in runs if run.name in names]
    sizes = sorted({run.parameters for run in known if run.parameters})
    seen = sorted({run.train_images for run in known if run.train_images})
    text = f"{_count(len(names))} vision transformer{'s' if len(names) > 1 else ''}"
    details = []
    if sizes:
        details.append(f"{_span([_millions(size) for size in sizes])} million parameters{' each' * (len(names) > 1)}")
    if len(patches) == 1:
        details.append(f"patches of {patches[0]} {TIMES} {patches[0]} px")
    text += f" ({', '.join(details)})" if details else ""
    text += " were" if len(names) > 1 else " was"
    text += f" trained on {_span([f'{count:,}' for count in seen])} images" if seen else " trained on images"
    text += f" of {_span([f'{size} {TIMES} {size}' for size in trained])} px"
    others = [size for size in tested if size not in trained]
    if others:
        text += f", and then tested, with no further training, on images of {_span([str(size) for size in tested])} px"
    else:
        text += ", and tested at that size"
    encodings = {row.encoding for row in rows}
    if len(encodings) > 1:
        text += (
            ". What is compared is their position encoding: the part of a transformer that tells it where in the image "
            "each patch stands"
        )
    else:
        text += f". Where in the image each patch stands is told by the position encoding {next(iter(encodings))}"
    if others:
        text += ". The question is how much of what was learned at one size still holds at sizes never seen in training"
    return text + "."


def span_of_seeds(rows: Sequence[ResultRow]) -> str:
    """What the standard errors do not cover: how much another training would differ."""
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(row.run, set()).add(row.seed)
    if max(map(len, seeds.values())) > 1:
        return "Runs that were trained with several seeds have a line for each, which shows how much trainings differ."
    return (
        "Each run was trained once. The standard errors say how precisely that one model was measured, not how much "
        "another training from another seed would differ."
    )


def _count(number: int) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    return words[number] if number < len(words) else str(number)


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.1f}" if parameters >= 1e5 else f"{parameters / 1e6:.3f}"


def _span(values: Sequence[str]) -> str:
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"
