"""Attacks on a classifier: images moved by its own gradient, no value of a pixel by more than epsilon; FGSM and PGD.

Values are those from 0 to 255 that enter the normalisation, after every resize and crop: an epsilon of 1/255 is one of
their steps, and what is read from files stays whole. They are moved through `Task.outputs`, the one way to a model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.batch import Batch, is_finite
from sightline.data.loader import SampleSpec
from sightline.data.rng import generator
from sightline.data.source import Source
from sightline.errors import NonFiniteError
from sightline.evaluation.measures.base import MeasureInput, ModelMeasure
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import read_split, to_cpu_float32
from sightline.metrics.accuracy import Accuracy
from sightline.models import Model
from sightline.models.model import eval_mode
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task
from sightline.tasks.classification import Loss, classification_loss
from sightline.tokens.patchify import Patchifier

EPSILONS = (1, 3)
"""In 255ths (LookHere section 4.1)."""
_MOST = 255.0
# Tokens of a batch whose activations are kept for its gradient: 2.5 GB of a ViT-B in float32.
_TOKENS_A_GRADIENT = 4096
# Of the random starts; another order of drawing is another number.
_STREAM = "evaluation/attacks/1"


@dataclass(frozen=True)
class Attack:
    """How images are moved: by the sign of the loss's gradient, again and again, back into the ball after each step.

    Attributes:
        name: of the rows; steps: how many; share: of epsilon that a step goes.
        random: it begins anywhere in the ball instead of at the image.
    """

    name: str
    steps: int = 1
    share: float = 1.0
    random: bool = False


def losses_of(model: Model) -> list[Loss]:
    """The softmax cross entropy, which attacks every classifier, and the binary one where sigmoids read its scores."""
    return ["ce", "bce"] if model.config.score_link == "sigmoid" else ["ce"]


def epsilon_ball(pixels: Tensor, epsilon: float, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The least and the greatest values that an attack may give: within epsilon of each, and from 0 to 255, exactly.

    Args:
        pixels: floats from 0 to 255 on the CPU; epsilon: in the same unit.
        there: bool, False where nothing may be moved (padding); it broadcasts.
    """
    least, most = (pixels.double() - epsilon).clamp(min=0), (pixels.double() + epsilon).clamp(max=_MOST)
    low, high = least.to(pixels.dtype), most.to(pixels.dtype)
    # What rounding put outside.
    low = torch.where(low.double() < least, torch.nextafter(low, pixels), low)
    high = torch.where(high.double() > most, torch.nextafter(high, pixels), high)
    if there is not None:
        low, high = torch.where(there, low, pixels), torch.where(there, high, pixels)
    return low, high


def gradient_of(model: Model, task: Task, batch: Batch, loss: Loss) -> Callable[[Tensor], Tensor]:
    """From pixels, shaped as `batch.inputs`, to the gradient of the loss by them, in their precision; of each image its
    own, as the loss is a sum over images.

    Args:
        batch: on the model's device.
    """

    def gradient(pixels: Tensor) -> Tensor:
        pixels = pixels.detach().requires_grad_()
        with torch.enable_grad():
            # Always in float32: a sign is that of rounding where the gradient is small.
            outputs = task.outputs(model, replace(batch, inputs=pixels), "float32")
            total = classification_loss(outputs, loss, 0.0, batch.targets["labels"])
            return torch.autograd.grad(total, pixels)[0]

    return gradient


def attacked(
    attack: Attack,
    pixels: Tensor,
    epsilon: float,
    limits: tuple[Tensor, Tensor],
    gradient: Callable[[Tensor], Tensor],
    start: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """The images moved, in the shape of `pixels`.

    FGSM (Goodfellow et al. 2015, section 4) is x + epsilon sign(gradient); PGD (Madry et al. 2018, section 2.1) takes
    steps, each followed by the nearest point of the ball, of which the last is what counts.

    Args:
        pixels, epsilon: as `ball`, which gives `limits`.
        start: from -1 to 1 in the shape of `pixels`, where in the ball a random attack begins.
        first: the gradient at `pixels`, where it is known.
    """
    low, high = limits
    moved = pixels if start is None else (pixels + epsilon * start).clamp(low, high)
    for number in range(attack.steps):
        slope = gradient(moved) if number or first is None else first
        moved = (moved + attack.share * epsilon * slope.sign()).clamp(low, high)
    return moved


def random_start(batch: Batch) -> Tensor:
    """float32 from -1 to 1 in the shape of `batch.inputs`: of each image by its index alone, 0 in slots of padding."""
    rows, slots, values = batch.inputs.shape
    patches = [segment.patches for segment in batch.layout.segments] * batch.layout.rows
    drawn = [
        torch.from_numpy(generator(_STREAM, 0, index).random((count, values), dtype="float32"))
        for index, count in zip(batch.indices.tolist(), patches, strict=True)
    ]
    start = 2 * torch.cat(drawn) - 1
    return F.pad(start, (0, 0, 0, rows * slots - len(start))).reshape(batch.inputs.shape)


def pixel_mask(patchifier: Patchifier, image_size: tuple[int, int]) -> Tensor:
    """bool [1, cells, values]: what of the rows of such an image, (height, width) in pixels, is its own, no padding."""
    return patchifier(torch.ones(1, patchifier.channels, *image_size))[0] > 0.5


@contextlib.contextmanager
def input_gradients_only(model: Model, *, recomputes: bool) -> Iterator[None]:
    """Inside, a gradient is that of the inputs and keeps what that needs alone; afterwards the model is as it was.

    Args:
        recomputes: keep no activations of blocks.
    """
    learnt = [one for one in model.parameters() if one.requires_grad]
    before = model.blocks.activation_checkpointing
    try:
        for one in learnt:
            one.requires_grad_(False)
        model.blocks.activation_checkpointing = before or recomputes
        with eval_mode(model):
            yield
    finally:
        model.blocks.activation_checkpointing = before
        for one in learnt:
            one.requires_grad_(True)


Said = list[tuple[str, int, Any]]


class AttackMeasure(ModelMeasure):
    """Top-1 and top-5 accuracy under an attack, by the loss that it raises and by epsilon.

    Attributes:
        attack: what it does.
        cost: how many times the time of an image's answer it takes, about, for the bar.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    attack: ClassVar[Attack]
    cost: ClassVar[int]

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        return cls.cost * count

    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        planned = _in_fewer(subject.planned())

        def made(numbers: Sequence[int]) -> Iterator[Said]:
            mine = [planned[number] for number in numbers]
            of = subject.model, subject.task, subject.source, subject.split
            batches = read_split(*of, mine, subject.view, workers=subject.workers)
            for plan, batch in zip(mine, batches, strict=True):
                yield self._part(subject, plan, batch) if len(batch) else []

        found = parts.gather(work, [self.cost * len(one) for one in planned], made, advance)
        return [] if found is None else self._together(subject.task, found.values)

    def _part(self, subject: MeasureInput, plan: Sequence[SampleSpec], batch: Batch) -> Said:
        """What `Accuracy` keeps of a batch, by loss and epsilon."""
        model, task, attack = subject.model, subject.task, self.attack
        device, said = model.anchor.device, []
        # Fitted, a value may be rounded to beyond 255.
        pixels = batch.inputs.float().clamp(0, _MOST)
        there = pixel_mask(model.patch_embed.patchifier, plan[0].image_size)
        start = random_start(batch).to(device) if attack.random else None
        shown, here = batch.to(device), pixels.to(device)
        tokens = batch.layout.rows * batch.layout.slots
        with input_gradients_only(model, recomputes=tokens > _TOKENS_A_GRADIENT):
            for loss in losses_of(model):
                gradient = gradient_of(model, task, shown, loss)
                first = None if attack.random else gradient(here)
                for epsilon in EPSILONS:
                    low, high = epsilon_ball(pixels, epsilon, there)
                    limits = low.to(device), high.to(device)
                    moved = attacked(attack, here, epsilon, limits, gradient, start, first)
                    with torch.no_grad():
                        outputs = to_cpu_float32(task.outputs(model, replace(shown, inputs=moved), subject.precision))
                    if not is_finite(outputs):
                        which = next(number for number, one in enumerate(outputs) if not is_finite(one))
                        raise NonFiniteError(f"{batch.names[which]} under {attack.name}: the logits are not finite")
                    seen = Accuracy(task)
                    seen.update(outputs, batch)
                    said.append((loss, epsilon, seen.state()))
        return said

    def _together(self, task: Task, parts: Sequence[Said]) -> list[MetricValue]:
        whole: dict[tuple[str, int], Accuracy] = {}
        for loss, epsilon, state in (said for part in parts for said in part):
            seen = Accuracy(task)
            seen.restore(state)
            whole.setdefault((loss, epsilon), Accuracy(task)).merge(seen)
        return [
            replace(row, metric=f"{self.attack.name}_{row.metric}", slices={"loss": loss, "epsilon": f"{epsilon}/255"})
            for (loss, epsilon), seen in whole.items()
            for row in seen.rows()
            if row.metric in ("top1", "top5") and not row.slices
        ]


def _in_fewer(planned: Sequence[Sequence[SampleSpec]]) -> list[Sequence[SampleSpec]]:
    """The same images in batches whose activations can be kept."""
    sizes = [max(1, _TOKENS_A_GRADIENT // batch[0].tokens) for batch in planned]
    return [
        batch[begin : begin + images]
        for batch, images in zip(planned, sizes, strict=True)
        for begin in range(0, len(batch), images)
    ]


class FGSM(AttackMeasure):
    """`fgsm_top1` and `fgsm_top5` (Goodfellow et al. 2015, section 4), as LookHere's section 4.1 measures them: the
    fast gradient sign method, one step to the edge of the ball."""

    name: ClassVar[str] = "fgsm"
    attack: ClassVar[Attack] = Attack("fgsm")
    cost: ClassVar[int] = 5


class PGD(AttackMeasure):
    """`pgd_top1` and `pgd_top5` (Madry et al. 2018, section 2.1): projected gradient descent from one random start of
    each image, and 10 steps of a quarter of epsilon, so that any point of the ball is within reach; the last point
    counts, whatever came before."""

    name: ClassVar[str] = "pgd"
    attack: ClassVar[Attack] = Attack("pgd", steps=10, share=0.25, random=True)
    cost: ClassVar[int] = 62
