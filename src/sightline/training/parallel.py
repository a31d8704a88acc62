"""A step of a run on several ranks: who sees which images, and one gradient of them all."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.batch import Batch
from sightline.data.loader import SampleSpec
from sightline.distributed.ranks import Ranks
from sightline.models import Model, ViTConfig
from sightline.models.flops import training_flops
from sightline.tasks.base import predict_batch
from sightline.tokens.layout import TokenLayout
from sightline.training.batch_norm import JointBatchNorms
from sightline.training.config import Sharing


def balanced_partition(planned: Sequence[SampleSpec], parts: int, model: ViTConfig) -> list[list[SampleSpec]]:
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
        return predict_batch(self.model, batch, precision)


class ParallelModel:
    """A model as a rank holds it: it gives outputs of a batch, whose gradients are those of all ranks after the last
    part of a step. This one is held by a process that is alone.

    The sum over the ranks, and no mean: the loss of each is divided by the units of all.

    Attributes:
        norms: of the model's batches, whose statistics are those of all ranks; None where a process is alone.
    """

    def __init__(self, forward: nn.Module, norms: JointBatchNorms | None = None) -> None:
        self.forward, self.norms = forward, norms

    def __call__(self, batch: Batch, precision: str) -> Any:
        return self.forward(batch, precision)

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around the forward and backward pass of a part of a step."""
        return contextlib.nullcontext()

    def waits_for(self, last: bool) -> bool:
        """Whether other ranks wait for this one in a part of a step in which it has no image."""
        return self.norms is not None and (last or bool(self.norms))

    def empty_loss(self, precision: str) -> Tensor:
        """The loss of a part without an image, from the outputs of a black one: 0, with a gradient of 0 everywhere."""
        with contextlib.nullcontext() if self.norms is None else self.norms.uncounted():
            model = _model_in(self.forward)
            # Single numbers are read by the loss, beside the outputs.
            return _nothing(
                [self(black_image(model), precision), *(one for one in model.parameters() if one.dim() == 0)]
            )

    def all_reduce(self, numbers: Tensor) -> None:
        """Sum numbers over the ranks, in place."""
        if self.norms is not None:
            import torch.distributed as dist

            dist.all_reduce(numbers)

    def close(self) -> None:
        """Give the model back as it was, as far as it is whole."""
        if self.norms is not None:
            self.norms.close()


class DDPModel(ParallelModel):
    """The whole model on each rank (`DistributedDataParallel`)."""

    def __init__(self, forward: nn.Module, norms: JointBatchNorms) -> None:
        from torch.nn.parallel import DistributedDataParallel

        # Not in each forward pass, which a rank without an image may not have; the name of that is one of torch 2.13.
        known = inspect.signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {name: False}
        parallel = DistributedDataParallel(forward, gradient_as_bucket_view=True, **options)
        parallel.register_comm_hook(None, _sum)
        super().__init__(parallel, norms)
        self._without_sum = parallel.no_sync
        # After its first backward pass torch puts the gradients into another order, in which three ranks and more sum
        # them otherwise: that pass is none of a step, so that a run that goes on sums as the one that it goes on with.
        self.empty_loss("float32").backward()
        parallel.zero_grad(set_to_none=True)

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients are summed over the ranks with those of the last part."""
        return contextlib.nullcontext() if last else self._without_sum()


class FSDPModel(ParallelModel):
    """A part of each weight, of its gradient and of what the optimizer keeps of it; the whole of a block is there while
    it computes (FSDP2, `fully_shard`)."""

    def __init__(self, forward: nn.Module, norms: JointBatchNorms, ranks: Ranks) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

        device = torch.device(ranks.device).type
        mesh = init_device_mesh(device, (ranks.size,))
        model = _model_in(forward)
        # Single numbers stay whole on each rank.
        self._whole = [one for one in model.parameters() if one.dim() == 0]
        for part in (*model.blocks, model):
            # Also the rest of the model, which is otherwise whole until a backward pass: after a test none comes.
            fully_shard(part, mesh=mesh, reshard_after_forward=True, ignored_params=set(self._whole))
            assert isinstance(part, FSDPModule)
            # The sum of all ranks, which gloo gave whatever was asked for (pytorch issue 162338).
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
        for name in _OTHER_FORWARDS:
            if hasattr(model, name):
                register_fsdp_forward_method(model, name)
        super().__init__(forward, norms)

    @contextlib.contextmanager
    def gradient_sync(self, last: bool) -> Iterator[None]:
        yield
        for one in self._whole if last else ():
            if one.grad is not None:
                self.all_reduce(one.grad)

    def waits_for(self, last: bool) -> bool:
        """In every part: the ranks gather their weights together."""
        return True


def _model_in(forward: nn.Module) -> Model:
    return next(part for part in forward.modules() if isinstance(part, Model))


# What computes beside `forward`, as timm's models do.
_OTHER_FORWARDS = (
    "forward_features", "forward_intermediates", "get_intermediate_layers", "forward_head", "encode_text",
)  # fmt: skip


def parallelize(model: Model, ranks: Ranks, sharing: Sharing) -> ParallelModel:
    """The model as this rank holds it; every rank calls this, and then the result in every step."""
    forward = _Outputs(model)
    if ranks.size == 1:
        return ParallelModel(forward)
    norms = JointBatchNorms(model, ranks)
    return DDPModel(forward, norms) if sharing == "ddp" else FSDPModel(forward, norms, ranks)


def _sum(_, bucket):  # torch compares annotations by identity
    """A bucket's gradients summed; without a hook they are averaged."""
    import torch.distributed as dist

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda told: told.value()[0])


def black_image(model: Model) -> Batch:
    """One black image, for a rank that has none in a step."""
    patchifier, grid = model.patch_embed.patchifier, model.config.train_grid
    layout = TokenLayout.packed([grid], num_prefix_tokens=model.num_prefix_tokens)
    inputs = torch.zeros((1, grid.cells, patchifier.patch_dim), dtype=torch.uint8)
    indices = torch.zeros(0, dtype=torch.int64)
    texts = {"texts": [[0]]} if model.config.head == "contrastive" else {}
    return Batch(inputs, layout, targets=texts, indices=indices, names=[], slices=[]).to(model.anchor.device)


def _nothing(outputs: Any) -> Tensor:
    """A loss of 0 that hangs on every output, so that each parameter has a gradient of 0."""
    if isinstance(outputs, Tensor):
        return outputs.float().sum() * 0
    inner = outputs.values() if isinstance(outputs, dict) else outputs
    return torch.stack([_nothing(one) for one in inner]).sum()
