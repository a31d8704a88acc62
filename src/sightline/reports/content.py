"""What a report is made of: plain records that a caller fills. Nothing is measured or drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sightline.results import ResultRow


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Training loss: `loss[i]` was measured when `images[i]` images had been seen. Same length; both may be empty."""

    images: Sequence[int] = ()
    loss: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One training run.

    `name` is the `run` of its rows; `encoding` the registered name. `knob` is the value it was trained with and
    `knob_default` the encoding's own; all three knob fields are None where the encoding has no knob. `parameters`
    counts the model's parameters, `train_images` the images seen in training (0: not trained here), the times are in
    seconds, `precision` as in "bf16". `config` is the resolved configuration, in the order in which it should be read.
    `about` is one line that says what the encoding does; empty: the report's own words, where it has some.
    """

    name: str
    encoding: str
    knob: float | None = None
    knob_name: str | None = None
    knob_default: float | None = None
    parameters: int = 0
    train_images: int = 0
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    precision: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    loss: LossCurve = field(default_factory=LossCurve)
    about: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One picture: `image` uint8 [height, width, 3] in RGB, and what is written under it."""

    image: NDArray[np.uint8]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Pictures at one test resolution (a square side in pixels)."""

    resolution: int
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True, eq=False)
class FieldsOfView:
    """What the query at the centre of the grid may attend to, before the content of the image has a say.

    `weight` is float32 [heads, rows, cols] in [0, 1]: exp(bias), and exactly 0 where the cell is masked. The centre is
    cell (rows // 2, cols // 2). `grid` is (rows, cols); `layer` counts from 0.
    """

    encoding: str
    layer: int
    grid: tuple[int, int]
    weight: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `write_report` shows. Only `rows` must not be empty; a section without content is left out.

    `command` reproduces the report; `other_commands` are further lines worth running. `created` is shown as given, so
    that equal content makes an equal file. `chance` is the accuracy of guessing (a fraction), drawn where known.
    """

    title: str
    command: str
    runs: Sequence[RunSummary]
    rows: Sequence[ResultRow]
    samples: Sequence[SampleRow] = ()
    fields: Sequence[FieldsOfView] = ()
    seconds_total: float = 0.0
    hardware: str = ""
    commit: str = ""
    created: str = ""
    notes: Sequence[str] = ()
    other_commands: Sequence[str] = ()
    chance: float | None = None
