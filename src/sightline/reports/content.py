"""What a report is made of: plain records that a caller fills. Nothing is measured or drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sightline.results.analysis import AnalysisRow
from sightline.results.predictions import Prediction
from sightline.results.rows import MetricValue, ResultRow


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Training loss: `loss[i]` was measured when `images[i]` images had been seen. Same length; both may be empty.

    `kind` says what was summed or averaged: curves of different kinds share no axis.
    """

    images: Sequence[int] = ()
    loss: Sequence[float] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ValidationPoint:
    """What was measured on `split` when `images` images had been seen in training, after a step."""

    step: int
    images: int
    split: str
    measured: MetricValue


@dataclass(frozen=True, slots=True)
class SeenSizes:
    """The sizes of the images that a run saw in training.

    Attributes:
        low, high: sides in pixels, of a square with as many pixels where an image kept its aspect; None where the run's
            configuration leaves it to the images.
        words: says it in full ("16 to 32 px, cut to squares").
        drop: which share of the tokens was left out, "" where none.
        parts: which part of each image was shown.
        fine_tuned_from: the model that the run began with, whose own training is not counted here; "" where none.
        nominal: the side that a model's configuration names, where no run says what was seen; else None.
    """

    low: float | None
    high: float | None
    words: str
    drop: str = ""
    fine_tuned_from: str = ""
    parts: str = ""
    nominal: int | None = None

    @classmethod
    def of_one(cls, side: int) -> SeenSizes:
        """All images were squares of `side` px."""
        return cls(side, side, f"{side}\u00a0\N{MULTIPLICATION SIGN}\u00a0{side}\u00a0px")

    @classmethod
    def unknown(cls, side: int) -> SeenSizes:
        """No run says what they were; the model's configuration names `side` px."""
        return cls(None, None, f"{side}\u00a0\N{MULTIPLICATION SIGN}\u00a0{side}\u00a0px (nominal)", nominal=side)

    @property
    def one(self) -> int | None:
        """The side that all images had, in pixels; None where they had several."""
        return round(self.low) if self.low is not None and self.low == self.high else None

    @property
    def short(self) -> str:
        """ "32 px", "16 to 32 px" or "the images' own sizes"."""
        if self.low is None or self.high is None:
            return "the images' own sizes"
        return f"{self.one} px" if self.one is not None else f"{self.low:.0f} to {self.high:.0f} px"

    def holds(self, side: int) -> bool:
        """Whether images of so many pixels are known to have been among them."""
        return self.low is not None and self.high is not None and self.low <= side <= self.high

    def main_of(self, sizes: Sequence[int]) -> int | None:
        """Of some sizes the one that speaks for a model: the largest that was seen, else the nominal one, else the
        largest; None of none."""
        known = [side for side in sizes if self.holds(side)] or [side for side in sizes if side == self.nominal]
        return max(known or sizes, default=None)

    def is_exceeded_by(self, side: int) -> bool:
        """Whether an image of that side is larger than all of them."""
        return self.high is not None and side > self.high


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One training run; what is 0, "" or None is not known, or not there.

    Attributes:
        name: the `run` of its rows.
        encoding: the registered name.
        knob: the value that the encoding's parameter was trained with.
        knob_default: the encoding's own.
        train_images, train_tokens, train_flops: what was seen in training.
        train_seconds, evaluate_seconds: times.
        config: the resolved configuration, in the order in which it should be read.
        about: one line that says what the encoding does.
        empty: the report's own words, where it has some.
        seen: the sizes of training; None: the one that its rows name.
        validation: the curve while training.
        best_step: of the best checkpoint, where one was kept.
        kind: the architecture and the embedder ("swin, patches").
    """

    name: str
    encoding: str
    knob: float | None = None
    knob_name: str | None = None
    knob_default: float | None = None
    parameters: int = 0
    train_images: int = 0
    train_tokens: int = 0
    train_flops: int = 0
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    precision: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    loss: LossCurve = field(default_factory=LossCurve)
    about: str = ""
    seen: SeenSizes | None = None
    validation: Sequence[ValidationPoint] = ()
    best_step: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One picture: `image` uint8 [height, width, 3] in RGB, and what is written under it."""

    image: NDArray[np.uint8]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a run said of the images of a split, all shown in the way that `shown` says ("64 px"); `mistakes` are
    pictures of the worst of them, where they can be drawn."""

    run: str
    split: str
    shown: str
    answers: Sequence[Prediction]
    mistakes: Sequence[Sample] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FieldsOfViewFigure:
    """What the query at the centre of the grid may attend to, before the content of the image has a say.

    Attributes:
        layer: counts from 0.
        run: whose model it is.
        grid: (rows, cols); the centre is cell (rows // 2, cols // 2).
        weight: float32 [heads, rows, cols] in [0, 1]: exp(bias), and exactly 0 where the cell is masked.
    """

    encoding: str
    layer: int
    grid: tuple[int, int]
    weight: NDArray[np.float32]
    run: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `write_report` shows. Only `rows` must not be empty; a section without content is left out.

    Attributes:
        command: reproduces the report.
        other_commands: further lines worth running.
        samples: pictures by test resolution (a square side in pixels).
        pictures: of the models' answers.
        created: shown as given, so that equal content makes an equal file.
        links: other pages, as (address, words).
        cut: whether squares are the centres of images, whose edges are cut off.
        chance: what guessing gives of the first metric (a fraction), where known.
        papers: names of `published.papers`, whose curves are drawn beside those of the rows.
        inside: what was measured inside the models of some of the runs.
        alike: error consistency of each two runs on the suite model-vs-human, by test resolution.
    """

    title: str
    command: str
    runs: Sequence[RunSummary]
    rows: Sequence[ResultRow]
    samples: Mapping[int, Sequence[Sample]] = field(default_factory=dict)
    fields: Sequence[FieldsOfViewFigure] = ()
    answers: Sequence[Answers] = ()
    pictures: Sequence[Sample] = ()
    seconds_total: float = 0.0
    hardware: str = ""
    commit: str = ""
    created: str = ""
    notes: Sequence[str] = ()
    other_commands: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()
    cut: bool = False
    chance: float | None = None
    papers: Sequence[str] = ()
    inside: Sequence[AnalysisRow] = ()
    alike: Mapping[tuple[str, str], Mapping[int, MetricValue]] = field(default_factory=dict)
