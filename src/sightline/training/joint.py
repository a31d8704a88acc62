"""A step whose loss is of all of its images together, as that of pairs of images and texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.distributed.ranks import Ranks
from sightline.models import Model
from sightline.tasks.base import Task
from sightline.training.parallel import ParallelModel, black_image
from sightline.training.profiling import phase


def joint_backward(
    model: Model,
    task: Task,
    parallel: ParallelModel,
    parts: Sequence[Batch],
    precision: str,
    planned: int,
    ranks: Ranks,
) -> Tensor:
    """The gradients of the loss of all images of a step, divided by `planned`.

    Of several parts the outputs are computed first, without gradients; then the loss of all of them and its gradient by
    the outputs; then each part again, with that gradient (GradCache, Gao et al. 2021). It is the gradient of the large
    batch, in the memory of a part.

    Args:
        parts: this rank's images; on each rank as many, of which some may be empty.

    Returns:
        [2]: the sum of this rank's loss, and the number of its images.
    """
    filled = [batch if len(batch) else black_image(model) for batch in parts]
    counts = [len(batch) for batch in parts]
    if len(parts) == 1:
        with parallel.gradient_sync(True):
            with phase("forward"):
                outputs = _shown(parallel(filled[0], precision), counts[0])
                loss = task.joint_loss(model, outputs, [parts[0].targets], ranks)
            with phase("backward"):
                # Also where this rank has no image, every weight has a gradient.
                (loss / planned).backward()
        return torch.stack((loss.detach(), loss.new_tensor(float(counts[0]))))
    with phase("forward"), torch.no_grad():
        pairs = zip(filled, counts, strict=True)
        stored = [_shown(parallel(batch, precision), count) for batch, count in pairs]
    sides = list(zip(*stored, strict=True))
    leaves = [torch.cat(side).requires_grad_() for side in sides]
    with parallel.gradient_sync(False):
        loss = task.joint_loss(model, tuple(leaves), [batch.targets for batch in parts], ranks)
        (loss / planned).backward()
    # Each leaf has one: the loss reads them all.
    grads = [leaf.grad.split([len(one) for one in side]) for leaf, side in zip(leaves, sides, strict=True)]  # type: ignore[union-attr]
    singles = [one for one in model.parameters() if one.dim() == 0 and one.requires_grad]
    for number, (batch, count) in enumerate(zip(filled, counts, strict=True), start=1):
        with parallel.gradient_sync(number == len(filled)):
            with phase("forward"):
                outputs = _shown(parallel(batch, precision), count)
            with phase("backward"):
                products = [(out * grad[number - 1]).sum() for out, grad in zip(outputs, grads, strict=True)]
                # What the loss reads beside the outputs has its gradient already, for which wrappers wait.
                torch.stack([*products, *(0 * one for one in singles)]).sum().backward()
    return torch.stack((loss.detach(), loss.new_tensor(float(sum(counts)))))


def _shown(outputs: Sequence[Tensor], count: int) -> tuple[Tensor, ...]:
    """The outputs of a part's own images: none of those that stand in for none."""
    return tuple(outputs) if count else tuple(one[:0] for one in outputs)
