"""What a measure of a model is: it needs the model itself, not its answers alone, and gives rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

from sightline import registry
from sightline.data.loader import SampleSpec
from sightline.data.sizes import View
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.parts import Gathered, WorkFolder
from sightline.evaluation.predict import BatchOutputs, plan_split, predict_split
from sightline.models import Model
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task


@dataclass(frozen=True, eq=False)
class MeasureInput:
    """What is measured: a model, its knob as it stands, on some images shown in one way.

    Attributes:
        task: on the source; indices: of images of the split.
        view: a square side in pixels, or how images are shown at their own aspect.
        precision: of the matrix products, `float32` or `bfloat16`; workers: processes that read ahead.
    """

    model: Model
    task: Task
    source: Source
    split: str
    indices: Sequence[int]
    view: int | View
    precision: str
    workers: int = 0

    def planned(self) -> list[list[SampleSpec]]:
        """As `plan_split`."""
        return plan_split(self.model, self.source, self.split, self.indices, self.view)

    def outputs(self, planned: Sequence[Sequence[SampleSpec]]) -> Iterator[BatchOutputs]:
        """Of some planned batches, as `predict_split`."""
        return predict_split(
            self.model, self.task, self.source, self.split, self.indices, self.view, precision=self.precision,
            workers=self.workers, planned=planned,
        )  # fmt: skip

    def gather(
        self,
        work: WorkFolder,
        key: str,
        make: Callable[[BatchOutputs], Any],
        advance: Callable[[int], None] | None = None,
    ) -> Gathered | None:
        """What `make` gives of each batch, by all ranks together, as `WorkFolder.gather`. Images that could not be read
        are counted, those of other ranks and sessions too."""
        planned = self.planned()

        def made(numbers: Sequence[int]) -> Iterator[tuple[list[Any], Any]]:
            for one in self.outputs([planned[number] for number in numbers]):
                yield [astuple(image) for image in one.batch.left_out], make(one)

        found = work.gather(key, [len(one) for one in planned], made, advance)
        if found is None:
            return None
        for left_out, _ in found.values:
            if self.source.allowance is not None:
                self.source.allowance.add(self.split, (Unreadable(*image) for image in left_out))
        return replace(found, values=[value for _, value in found.values])


class ModelMeasure(ABC):
    """Something that is measured of a model at one size or view, in a file of its own.

    Attributes:
        name: as it is asked for (`--measures`).
        tasks: names of the tasks that it is for.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]

    @classmethod
    def check(cls, model: Model, task: Task, source: Source, splits: Sequence[str]) -> None:
        """Refuse, before anything is measured, a model or data of which it cannot be.

        Raises:
            InputError: says what is missing.
        """
        if task.name not in cls.tasks:
            raise InputError(f"measures: {cls.name} is not for task {task.name} (expected {' or '.join(cls.tasks)})")

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        """How many images pass through the model to measure `count` images of a split, for the bar."""
        return count

    @classmethod
    def reads(cls, source: Source, split: str) -> tuple[str, ...]:
        """The splits that it reads beside the one that is measured."""
        return ()

    @abstractmethod
    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        """What was measured; of several ranks each must call it, and what the first gives counts.

        Args:
            parts: what is finished of it, and the ranks that share it (`WorkFolder.gather`, `WorkFolder.once`).
            work: the beginning of the keys of its items.
            advance: called with the number of images that passed.

        Raises:
            SightlineError: as `predict_split`.
        """


def measure_class(name: str) -> type[ModelMeasure]:
    """The class of a measure, from its file in `evaluation/measures/` or a plug-in.

    Raises:
        InputError: there is none of that name.
    """
    return registry.find(ModelMeasure, __package__ or "", "measure", name)


def check_measures(
    names: Sequence[str], model: Model, task: Task, source: Source, splits: Sequence[str]
) -> list[ModelMeasure]:
    """Measures by name, each fit for a model and its data.

    Raises:
        InputError: there is none of a name, or it is not for this model, task or data.
    """
    kinds = [measure_class(name) for name in names]
    for kind in kinds:
        kind.check(model, task, source, splits)
    return [kind() for kind in kinds]
