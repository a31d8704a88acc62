"""What forty strengths of a ridge regression on frozen features cost beside one.

    python benchmarks/features.py [--quick] [--threads N] [--out OUT]

Both make the matrix, its eigendecomposition and the weights of one strength, and name the classes of 1,000 images; of
forty it is chosen before on images that are held out, of which there are 1,000. Features are drawn, of 768 values as a
ViT-B's; 25 images a class of 100 classes are more than the values, 5 are fewer, and are solved by the images. The ratio
is the time of one over that of forty: at least .667 (1.5 times its time) is expected.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from measure import Parser, Work, clock, counted, interleave, print_table, row

from sightline.evaluation.features import Features
from sightline.evaluation.measures.few_shot import STRENGTHS, fitted, named

_DIM, _CLASSES, _HELD_OUT, _LEAST = 768, 100, 1000, 1 / 1.5
# Of which big_vision has its one.
_ONE = (2.0**10,)
_COLUMNS = ("shots", "classes", "values", "held_out", "strengths", "ratio", "interval", "wanted")


def drawn(images: int, classes: int, dim: int, seed: int) -> Features:
    """Features around a centre a class."""
    draws = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((classes, dim), np.float32)
    labels = np.arange(images) % classes
    return Features(centres[labels] + 2 * draws.standard_normal((images, dim), np.float32), labels)


def compare_strengths(shots: int, classes: int, dim: int, held_out: int, rounds: int) -> dict[str, Any]:
    """All strengths beside one, each from the features on."""
    images, others = drawn(shots * classes, classes, dim, 0), drawn(held_out, classes, dim, 1)
    measured = drawn(held_out, classes, dim, 2)

    def learned(strengths: tuple[float, ...]) -> None:
        named(fitted(images, strengths, others), measured)

    works: dict[str, Work] = {"forty": partial(learned, STRENGTHS), "one": partial(learned, _ONE)}
    times = interleave(works, rounds, by=clock())
    case = {"shots": shots, "classes": classes, "values": dim, "held_out": held_out, "strengths": len(STRENGTHS)}
    return row("features", "forty", "one", times, {}, **case, wanted=round(_LEAST, 3))


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("features", "a small matrix and few rounds, in seconds")
    asked = parser.begin()
    dim, classes, held_out, rounds = (96, 10, 50, 2) if asked.quick else (_DIM, _CLASSES, _HELD_OUT, 31)
    parts = [partial(compare_strengths, shots, classes, dim, held_out, rounds) for shots in (25, 5)]
    rows = []
    for part, said in counted(parts):
        rows.append(part())
        print(f"{said} {rows[-1]['shots']} shots", flush=True)
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
