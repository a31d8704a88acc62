"""Which foreign tensors are which of ours, and how each side is made of the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.encodings.knob import without_knobs
from sightline.models import ViTConfig, make_model
from sightline.models.embedder import embedder_class

State = Mapping[str, Tensor]
Turn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TensorMap:
    """Some foreign tensors that are some of ours, and how each side is made of the other, bit by bit.

    Attributes:
        foreign, ours: names; no `ours` for a buffer that follows from the configuration.
        import_fn, export_fn: inverse to each other; they take and give tensors in the order of the names.
    """

    foreign: tuple[str, ...]
    ours: tuple[str, ...]
    import_fn: Callable[[Sequence[Tensor]], list[Tensor]] = list
    export_fn: Callable[[Sequence[Tensor]], list[Tensor]] = list


def copy(theirs: str, ours: str) -> TensorMap:
    """The same tensor under another name, or under its own."""
    return TensorMap((theirs,), (ours,))


def transform(theirs: str, ours: str, to_ours: Turn, to_theirs: Turn) -> TensorMap:
    """One tensor that is laid out in another way."""
    return concat((theirs,), ours, to_ours, to_theirs)


def fused(theirs: Sequence[str], ours: str, parts: Sequence[str] = ("weight", "bias")) -> list[TensorMap]:
    """Layers that are one here, one below the other; or one layer."""
    return [concat([f"{one}.{part}" for one in theirs], f"{ours}.{part}") for part in parts]


def unbatched(theirs: str, ours: str) -> TensorMap:
    """One tensor that has a first axis of length 1 there."""
    return transform(theirs, ours, lambda x: x[0], lambda x: x.unsqueeze(0))


def prefixed(theirs: str, ours: str, prefix: int = 1, *, batched: bool = True) -> TensorMap:
    """A table of one image, or of none, whose first rows, those of the prefix tokens, are a tensor of their own."""
    return TensorMap(
        (theirs,),
        (f"{ours}.prefix", f"{ours}.table"),
        lambda one: [one[0].flatten(0, -2)[:prefix], one[0].flatten(0, -2)[prefix:]],
        lambda parts: [torch.cat(list(parts)).unsqueeze(0) if batched else torch.cat(list(parts))],
    )


def concat(
    theirs: Sequence[str],
    ours: str,
    to_ours: Turn = torch.clone,
    to_theirs: Turn = torch.clone,
    *,
    shares: Sequence[int] | None = None,
) -> TensorMap:
    """Tensors that are one here, one after the other, each turned first; of one length, or of these shares of all."""
    parts = shares or [1] * len(theirs)

    def apart(one: Sequence[Tensor]) -> list[Tensor]:
        unit = len(one[0]) // sum(parts)
        return [to_theirs(part) for part in one[0].split([unit * part for part in parts])]

    return TensorMap(tuple(theirs), (ours,), lambda all_: [torch.cat([to_ours(one) for one in all_])], apart)


def derived(theirs: Sequence[str], *values: Tensor) -> TensorMap:
    """Tensors that follow from the configuration, and are nothing here."""
    return TensorMap(tuple(theirs), (), lambda _: [], lambda _: list(values))


def kernel(config: ViTConfig, theirs: str = "patch_embed.proj.weight") -> TensorMap:
    """The convolution of a patch embedding, [dim, channels, height, width]."""
    shape = embedder_class(config.embedder).kernel_of(config)
    return transform(theirs, "patch_embed.proj.weight", lambda x: x.flatten(1), lambda x: x.reshape(shape))


def map_remaining(
    config: ViTConfig, special: Sequence[TensorMap], renamed: Sequence[tuple[str, str]] = ()
) -> list[TensorMap]:
    """`special`, and every other tensor of ours under its own name, but for `renamed`: patterns of ours, and theirs."""
    taken = {name for entry in special for name in entry.ours}
    entries = list(special)
    for ours in without_knobs(shapes_of(config)):
        if ours not in taken:
            theirs = ours
            for pattern, there in renamed:
                theirs = re.sub(pattern, there, theirs)
            entries.append(copy(theirs, ours))
    return entries


def shapes_of(config: ViTConfig) -> State:
    """The tensors of our model of a configuration, without memory."""
    with torch.device("meta"):
        return make_model(config).state_dict()


def convert(entries: Sequence[TensorMap], state: State) -> dict[str, Tensor]:
    """Foreign tensors to ours."""
    return {
        name: tensor.contiguous()
        for entry in entries
        for name, tensor in zip(entry.ours, entry.import_fn([state[one] for one in entry.foreign]), strict=True)
    }


def convert_back(entries: Sequence[TensorMap], state: State) -> dict[str, Tensor]:
    """Our tensors to foreign ones."""
    return convert([TensorMap(one.ours, one.foreign, one.export_fn, one.import_fn) for one in entries], state)
