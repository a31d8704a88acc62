"""A step of a run on several ranks: who sees which images, and one gradient of them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sightline.analysis.flops import training_flops
from sightline.data.batch import Batch
from sightline.data.loader import Planned
from sightline.layout import TokenLayout
from sightline.models import Model, ViTConfig
from sightline.ranks import Ranks
from sightline.tasks.base import outputs_of


def dealt(planned: Sequence[Planned], parts: int, model: ViTConfig) -> list[list[Planned]]:
    """The images of a step in so many parts of about equal cost: the dearest first, each to the part that has cost the
    least (Graham 1969, longest processing time first); inside a part the order is the step's.

    Some are empty where there are fewer images than parts.
    """
    if parts == 1:
        return [list(planned)]
    costs = [training_flops(model, [one.tokens]) for one in planned]
    spent, chosen = [0.0] * parts, [[] for _ in range(parts)]
    for place in sorted(range(len(planned)), key=lambda place: (-costs[place], place)):
        part = min(range(parts), key=lambda part: (spent[part], len(chosen[part]), part))
        spent[part] += costs[place]
        chosen[part].append(place)
    return [[planned[place] for place in sorted(places)] for places in chosen]


class _Outputs(nn.Module):
    """A model's outputs of a batch as a `forward`, which is what wrappers wrap."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, precision: str) -> Any:
        return outputs_of(self.model, batch, precision)


def wrapped(model: Model, ranks: Ranks) -> Callable[[Batch, str], Any]:
    """What gives the outputs of a batch, whose gradients are summed over the ranks in the backward pass
    (`DistributedDataParallel`); every rank calls it in every step.

    The sum, and no mean: the loss of each is divided by the units of all.
    """
    return summing(_Outputs(model), ranks)


def summing(inner: nn.Module, ranks: Ranks) -> nn.Module:
    """A module whose parameters' gradients are summed over the ranks in the backward pass."""
    if ranks.size == 1:
        return inner
    from torch.nn.parallel import DistributedDataParallel

    # Not in each forward pass, which a rank without an image may not have; the name of that is one of torch 2.13.
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {name: False}
    parallel = DistributedDataParallel(inner, gradient_as_bucket_view=True, **options)
    parallel.register_comm_hook(None, _sum)
    return parallel


def _sum(_, bucket):  # torch compares annotations by identity
    """A bucket's gradients summed; without a hook they are averaged."""
    import torch.distributed as dist

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda told: told.value()[0])


def idle_batch(model: Model) -> Batch:
    """One black image, for a rank that has none in a step: what it gives counts nothing (`nothing`)."""
    cutter, grid = model.patch_embed.cutter, model.config.train_grid
    layout = TokenLayout.packed([grid], num_prefix_tokens=model.num_prefix_tokens)
    inputs = torch.zeros((1, grid.cells, cutter.values), dtype=torch.uint8)
    indices = torch.zeros(0, dtype=torch.int64)
    return Batch(inputs, layout, targets={}, indices=indices, names=[], slices=[]).to(model.anchor.device)


def nothing(outputs: Any) -> Tensor:
    """A loss of 0 that hangs on every output, so that each parameter has a gradient of 0."""
    if isinstance(outputs, Tensor):
        return outputs.float().sum() * 0
    inner = outputs.values() if isinstance(outputs, dict) else outputs
    return torch.stack([nothing(one) for one in inner]).sum()
