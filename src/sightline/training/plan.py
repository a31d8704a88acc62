"""The plan of a run: which images each of its steps sees, and how far along it is."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sightline.data.augmentations import make_augmentations
from sightline.data.batch import Batch, CollatedTokens, collate_packed, collate_uniform
from sightline.data.config import PackingConfig, PatchSizes
from sightline.data.loader import Collator, SampleSpec, load_batches
from sightline.data.pack_plan import PackPlan, PlanPosition, epoch_order
from sightline.data.source import Source
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError
from sightline.models import ViTConfig
from sightline.models.flops import training_flops
from sightline.models.patch_size import resized_config
from sightline.tasks.base import Task
from sightline.tokens.patchify import ImagePatchifier
from sightline.training.config import DEFAULT_BATCH_SIZE, TrainConfig
from sightline.training.parallel import balanced_partition

DEFAULT_IMAGES = 48_000


@dataclass(frozen=True)
class EpochPlan:
    """The steps of a run over a data set of `length` images (None: endless): a pass may end with a smaller batch, and
    the run in the middle of a pass."""

    images: int
    batch_size: int
    length: int | None

    @classmethod
    def of(cls, config: TrainConfig, length: int | None) -> EpochPlan:
        """The plan of a configuration; raises InputError for epochs of an endless data set."""
        batch_size = config.batch_size or DEFAULT_BATCH_SIZE
        if config.epochs is not None:
            if length is None:
                raise InputError(f"epochs {config.epochs}: data {config.data!r} is endless, expected 'images' instead")
            return cls(max(1, round(config.epochs * length)), batch_size, length)
        return cls(config.images or DEFAULT_IMAGES, batch_size, length)

    @property
    def pass_images(self) -> int:
        return self.images if self.length is None else self.length

    @property
    def steps(self) -> int:
        passes, rest = divmod(self.images, self.pass_images)
        return passes * math.ceil(self.pass_images / self.batch_size) + math.ceil(rest / self.batch_size)

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, step within the epoch) of a step."""
        return divmod(step, math.ceil(self.pass_images / self.batch_size))

    def epoch_images(self, epoch: int) -> int:
        """How many images of a pass are shown."""
        return min(self.pass_images, self.images - epoch * self.pass_images)

    def images_seen(self, step: int) -> int:
        """Images shown before a step."""
        epoch, inside = self.locate(step)
        return min(self.images, epoch * self.pass_images + inside * self.batch_size)


class Cost(NamedTuple):
    """What a run has cost: images shown, tokens through the trunk (prefix tokens too), operations of training."""

    images: int = 0
    tokens: int = 0
    flops: int = 0

    def plus(self, config: ViTConfig, patches: Sequence[int]) -> Cost:
        """With a step on images of these lengths."""
        return Cost(
            self.images + len(patches),
            self.tokens + sum(patches) + len(patches) * config.num_prefix_tokens,
            self.flops + training_flops(config, patches),
        )


class DataState(NamedTuple):
    """Where a packed run stood when it looked ahead last, so that it goes on without planning its passes again: the
    place in its plan, the number of the first step after that, and what was spent before it."""

    place: PlanPosition
    number: int
    spent: Cost

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {"seen": self.place.seen, "waiting": [*self.place.waiting], "step": self.number, **self.spent._asdict()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> DataState:
        """The inverse of `as_record`."""
        place = PlanPosition(record["seen"], tuple(record["waiting"]))
        return cls(place, record["step"], Cost(record["images"], record["tokens"], record["flops"]))


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step, known before an image is read.

    Attributes:
        number: from 0.
        epoch: the pass over the data in which its first image is.
        before, after: what the run has cost.
        begins, ends: how much of the run lies before it and at its end, from 0 to 1.
        position: of a packed run, before this step.
    """

    number: int
    epoch: int
    before: Cost
    after: Cost
    begins: float
    ends: float
    position: DataState | None = None

    @property
    def last(self) -> bool:
        return self.ends >= 1


class TrainingPlan(ABC):
    """All steps of a run: functions of the configuration alone, so that a run goes on where it was killed.

    Attributes:
        source: as its images are shown; arrange: how those of a step become one batch.
    """

    arrange: Callable[..., CollatedTokens]

    def __init__(self, config: TrainConfig, model: ViTConfig, source: Source) -> None:
        self.config, self.model, self.source = config, model, source

    @abstractmethod
    def steps(self, first: int, position: DataState | None = None) -> Iterator[tuple[StepSpec, list[SampleSpec]]]:
        """The steps `first` and later with their images; sizes are read, and no pixel.

        Args:
            position: of a packed run, at or before that step; None plans from the beginning, with the same outcome.
        """

    def batches(
        self,
        rows: ImagePatchifier,
        task: Task,
        first: int = 0,
        *,
        position: DataState | None = None,
        pin: bool = False,
        ranks: Ranks = SINGLE_RANK,
    ) -> Generator[tuple[StepSpec, Sequence[Batch]]]:
        """The steps with this process's batches, one after the other, which may be empty.

        Args:
            rows: the half of the model's embedder that workers run; task: on the source.
            first, position: as `steps`.
            pin: for a GPU.
            ranks: of which this process is one.
        """
        config, prefix = self.config, self.model.num_prefix_tokens
        own = slice(ranks.rank * config.accumulate, (ranks.rank + 1) * config.accumulate)
        shown = config.mixing, make_augmentations(config.augment)
        make = Collator(self.source, "train", rows, task.targets, self.arrange, prefix, config.seed, *shown)
        # Workers take batches ahead of the step that is done: its twin keeps their steps.
        steps, ahead = itertools.tee(self.steps(first, position))
        parts = (balanced_partition(images, ranks.size * config.accumulate, self.model)[own] for _, images in ahead)
        planned = itertools.chain.from_iterable(parts)
        batches = load_batches(make, planned, workers=config.workers, pin=pin)
        yield from zip((step for step, _ in steps), zip(*[batches] * config.accumulate, strict=True), strict=True)


def completed_parts(parts: int, share: float) -> int:
    """How many of so many equal parts of a run are done, where this share of it is: of 150, of which 55 are done,
    150 times the share is 54.99999999999999."""
    return math.floor(parts * share + 1e-9)


def training_plan(config: TrainConfig, model: ViTConfig, source: Source) -> TrainingPlan:
    """The plan of a resolved configuration."""
    return PackedPlan(config, model, source, config.packing) if config.packing else UniformPlan(config, model, source)


def as_trained_on(source: Source, config: TrainConfig) -> Source:
    """A data set as a run shows it: images up to its `max_pixels`, those of training by `parts`, `flip` and
    `interpolation`.

    Raises:
        InputError: its training images are shown in another way.
    """
    shown = {"parts": config.parts, "flip": config.flip, "interpolation": config.interpolation}
    return source.with_view(max_pixels=config.max_pixels, **shown)


def training_view(config: TrainConfig, source: Source) -> dict[str, Any]:
    """`parts`, `flip` and `interpolation` as they are in a run: those of the data where the configuration has none."""
    one = as_trained_on(source, config).transform
    return {} if one is None else {name: getattr(one, name) for name in ("parts", "flip", "interpolation")}


class ShownSize(NamedTuple):
    """How a step shows its images: side in pixels, patch size where it is drawn, patches, and what one image takes."""

    side: int
    patch_size: int | None
    cells: int
    cost: Cost


@dataclass(frozen=True)
class SizeSchedule:
    """The sizes of the images of a run whose steps each have one, and of their patches.

    Attributes:
        parts: of the run, equal in steps, each with another side.
        shown: by each of them; where patch sizes are drawn, an entry for each of these, part after part.
        drawn, seed: the patch sizes, of which a step has one; None for the model's own.
    """

    parts: int
    shown: tuple[ShownSize, ...]
    drawn: PatchSizes | None = None
    seed: int = 0

    @classmethod
    def of(cls, config: TrainConfig, model: ViTConfig) -> SizeSchedule:
        """Of a resolved configuration; raises InputError for a side that patches do not divide."""
        assert config.resolution is not None
        sides, models = (*config.progressive, config.resolution), with_patch_sizes(config, model)
        sizes = (None,) if config.patch_sizes is None else config.patch_sizes.sizes
        try:
            cells = [one.grid_of(side).cells for side in sides for one in models]
        except InputError as error:
            if not config.progressive:
                raise
            raise InputError(f"progressive: {error}") from None
        each = zip(itertools.product(sides, zip(sizes, models, strict=True)), cells, strict=True)
        shown = (ShownSize(side, size, count, Cost().plus(one, [count])) for (side, (size, one)), count in each)
        return cls(len(sides), tuple(shown), config.patch_sizes, config.seed)

    def begins(self, steps: int) -> list[int]:
        """The first step of each part of so many; and behind the last."""
        return [-(-part * steps // self.parts) for part in range(self.parts + 1)]

    def place(self, begins: Sequence[int], step: int) -> int:
        """The place in `shown` of a step, where the parts begin so."""
        part = bisect.bisect_right(begins, step, hi=self.parts) - 1
        return part if self.drawn is None else part * len(self.drawn.sizes) + self.drawn.at_step(self.seed, step)

    def spent(self, plan: EpochPlan, step: int) -> Cost:
        """What a run has cost before a step."""
        begins, images = self.begins(plan.steps), [0] * len(self.shown)
        if self.drawn is None:
            seen = [plan.images_seen(min(step, begin)) for begin in begins]
            images = [after - before for before, after in itertools.pairwise(seen)]
        else:
            for number in range(min(step, plan.steps)):
                images[self.place(begins, number)] += plan.images_seen(number + 1) - plan.images_seen(number)
        parts = list(zip(images, self.shown, strict=True))
        return Cost(*(sum(count * one.cost[kind] for count, one in parts) for kind in range(3)))

    def mean(self, kind: int) -> float:
        """What an image takes on average, of tokens (1) or operations (2)."""
        shares = (1.0,) if self.drawn is None else self.drawn.shares
        weighed = zip(shares * self.parts, self.shown, strict=True)
        return sum(share * one.cost[kind] for share, one in weighed) / self.parts


def with_patch_sizes(config: TrainConfig, model: ViTConfig) -> tuple[ViTConfig, ...]:
    """What the model of a run is with each of its patch sizes; as it is, where there are none.

    Raises:
        InputError: its embedder has patches of one size, its head reads them, or one does not divide its images.
    """
    if config.patch_sizes is None:
        return (model,)
    if model.embedder != "flexible":
        raise InputError(
            f"patch_sizes: embedder {model.embedder} has patches of one size (expected model_options.embedder flexible)"
        )
    if not model.has_classifier:
        raise InputError(f"patch_sizes: head {model.head} reads patches of one size (expected a classifier, or null)")
    allowed = model.embedder_options.get("sizes") or config.patch_sizes.sizes
    for one in config.patch_sizes.sizes:
        if one not in allowed:
            raise InputError(f"patch_sizes.sizes {one}: is none of the model's embedder_options.sizes {list(allowed)}")
    try:
        if config.packing is None:
            return tuple(resized_config(model, one) for one in config.patch_sizes.sizes)
        # Packs show images at multiples of their patch.
        return tuple(model.replace(patch_size=one, fit="pad") for one in config.patch_sizes.sizes)
    except InputError as error:
        raise InputError(f"patch_sizes: {error}") from None


def resolve_length(config: TrainConfig, model: ViTConfig, length: int | None) -> EpochPlan:
    """The images of a run whose steps each have one size, from whichever budget it was given."""
    stages = SizeSchedule.of(config, model)
    for budget, kind in ((config.tokens, 1), (config.flops, 2)):
        if budget is not None:
            return EpochPlan(max(int(budget // stages.mean(kind)), 1), config.batch_size or DEFAULT_BATCH_SIZE, length)
    return EpochPlan.of(config, length)


class UniformPlan(TrainingPlan):
    """Batches of one size each."""

    arrange = staticmethod(collate_uniform)

    def steps(self, first: int, position: DataState | None = None) -> Iterator[tuple[StepSpec, list[SampleSpec]]]:
        config, plan = self.config, EpochPlan.of(self.config, self.source.length("train"))
        stages, size = SizeSchedule.of(config, self.model), plan.batch_size
        begins, spent = stages.begins(plan.steps), stages.spent(plan, first)
        for number in range(first, plan.steps):
            side, patch, cells, cost = stages.shown[stages.place(begins, number)]
            epoch, inside = plan.locate(number)
            places = range(inside * size, min((inside + 1) * size, plan.epoch_images(epoch)))
            every = range(places.stop) if plan.length is None else epoch_order(plan.length, config.seed, epoch)
            after = Cost(*(before + len(places) * one for before, one in zip(spent, cost, strict=True)))
            step = StepSpec(number, epoch, spent, after, number / plan.steps, (number + 1) / plan.steps)
            # Each time with draws of its own, as in a pass of its own; images of a pass begin anew in the next.
            shown = [(one // config.repeats, epoch * config.repeats + one % config.repeats) for one in places]
            yield (
                step,
                [SampleSpec(int(every[one]), draws, (side, side), cells, patch_size=patch) for one, draws in shown],
            )
            spent = after


class PackedPlan(TrainingPlan):
    """Images of drawn sizes, a pack a step, until the budget is spent."""

    def __init__(self, config: TrainConfig, model: ViTConfig, source: Source, packing: PackingConfig) -> None:
        super().__init__(config, model, source.with_view(aspect=(1.0, 1.0)) if packing.aspect == "native" else source)
        self.packing = packing
        self.arrange = functools.partial(collate_packed, padded=packing.padded)

    def steps(self, first: int, position: DataState | None = None) -> Iterator[tuple[StepSpec, list[SampleSpec]]]:
        config, packing, begin = self.config, self.packing, position or DataState(PlanPosition(), 0, Cost())
        prefix = self.model.num_prefix_tokens
        plan = PackPlan(
            self.source,
            "train",
            packing.sampler(self.model.patch_size, prefix, self.model.tubelet),
            packing.tokens,
            how=packing.algorithm,
            most_images=packing.most_images,
            # With a budget of images the plan ends by itself, with what is left over in the last pack.
            images=config.images,
            num_prefix_tokens=prefix,
            seed=config.seed,
            patch_sizes=config.patch_sizes,
        )
        models = {one.patch_size: one for one in with_patch_sizes(config, self.model)}
        number, spent = begin.number, begin.spent
        for place, packs in plan.windows(begin.place):
            position = DataState(place, number, spent)
            for pack in packs:
                model = models[pack[0].patch_size or self.model.patch_size]
                after = spent.plus(model, [one.tokens for one in pack])
                share = self._share(spent), self._share(after)
                step = StepSpec(number, pack[0].epoch, spent, after, *share, position)
                if number >= first:
                    yield step, pack
                if step.last:
                    return
                number, spent = number + 1, after

    def _share(self, spent: Cost) -> float:
        # A resolved configuration has one of them.
        budgets = self.config.images, self.config.tokens, self.config.flops
        return next(min(done / whole, 1.0) for done, whole in zip(spent, budgets, strict=True) if whole is not None)
