"""Foreign models with a head of a dense task on a plain ViT: what their weights tell, so that nobody has to say it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import Project, convert_back
from sightline.errors import InputError
from sightline.models import Model, make_model
from sightline.tokens.grid import Grid

State = Mapping[str, Tensor]


def sides(project: str, state: State, name: str, axes: int) -> list[int]:
    """The shape of a tensor that must be there.

    Raises:
        InputError: it is missing, or has other than so many axes.
    """
    if name not in state:
        raise InputError(f"{project} weights: missing {name}")
    found = list(state[name].shape)
    if len(found) != axes or not all(found):
        raise InputError(f"{project} weights: {name} is {found}, expected {axes} axes, none of them 0")
    return found


def trunk_fields(project: str, state: State, kernel: str, block: str, heads: tuple[str, Any]) -> dict[str, Any]:
    """Width, depth, heads, patches and hidden channels of a trunk.

    Args:
        kernel: name of the patch embedding's convolution [dim, channels, height, width].
        block: name of a block without its number, whose MLP is `.mlp.fc1` and `.mlp.fc2`.
        heads: the argument of the attention heads and its value; None takes heads of 64 channels, as all published
            models have them.
    """
    dim, channels, patch, _ = sides(project, state, kernel, 4)
    numbers = [re.match(rf"{re.escape(block)}\.(\d{{1,6}})\.", name) for name in state]
    depth = 1 + max((int(one[1]) for one in numbers if one), default=0)
    hidden = sides(project, state, f"{block}.0.mlp.fc2.weight", 2)[1]
    return {
        "dim": dim, "channels": channels, "patch_size": patch, "depth": depth, "mlp_ratio": hidden / dim,
        "heads": heads_of(project, dim, *heads),
    }  # fmt: skip


def heads_of(project: str, dim: int, name: str, given: Any) -> Any:
    """Attention heads: as given, else of 64 channels.

    Raises:
        InputError: none are given, and 64 does not divide the width.
    """
    if given is None and dim % 64:
        raise InputError(f"{project}: {name} is needed (heads of 64 channels do not divide a width of {dim})")
    return dim // 64 if given is None else given


def image_size(project: str, name: str, given: Any, patch: int, places: int, prefix: int) -> tuple[int, int]:
    """(height, width) in pixels of the images that a table was made for: as given, else a square.

    Args:
        name, given: the argument; places: rows of the table; prefix: how many of them may be those of prefix tokens.

    Raises:
        InputError: none is given, and no square has as many patches.
    """
    if given is not None:
        return tuple(Grid.checked(given, f"{project}: {name}"))  # type: ignore[return-value]
    for cells in (places, places - prefix):
        side = math.isqrt(max(cells, 0))
        if side and side * side == cells:
            return side * patch, side * patch
    raise InputError(f"{project}: {name} (height, width) is needed: a table of {places} places is that of no square")


class DenseProject(Project):
    """A project whose models have a head of all tokens.

    Attributes:
        inside: name under which a whole configuration of the project's has the arguments, beside others of no matter.
        aside: patterns of names of tensors that nothing of ours computes with; they do not come back.
    """

    inside: ClassVar[str] = ""
    aside: ClassVar[Sequence[str]] = ()

    def own_arguments(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        whole = given.get(self.inside)
        if not isinstance(whole, Mapping):
            return given
        return {name: value for one in (whole, given) for name, value in one.items() if name in self.arguments}

    def used_weights(self, state: State) -> State:
        return {name: one for name, one in state.items() if not any(re.match(each, name) for each in self.aside)}

    def refuse_names(self, state: State, foreign: Mapping[str, str]) -> None:
        """Refuse weights of another kind by how a name of theirs begins; says why, and what can be had."""
        for name in state:
            for start, why in foreign.items():
                if name.startswith(start):
                    raise InputError(f"{self.name} weights: {name}: {why}")

    def exported(self, model: Model, heads: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """`given`, where it and the shapes of the weights would build `model` there.

        Raises:
            InputError: it cannot be held; says which part.
        """
        config = model.config
        if config.head not in heads:
            expected = " or ".join(map(repr, heads))
            raise InputError(f"{self.name}: cannot hold head = {config.head!r} (expected {expected})")
        self.check_encoding(model, "learned_1d")
        if not config.has_class_token:
            raise InputError(f"{self.name}: cannot hold class_token = False (expected True)")
        with torch.device("meta"):
            shapes = make_model(config).state_dict()
        # Without those that `model` has not, which tells what it is.
        there = [one for one in self.tensor_maps(config, given) if all(name in shapes for name in one.ours)]
        return self.check_roundtrip(dict(given), model, convert_back(there, shapes))


def pixels(model: Model) -> list[int]:
    """[height, width] of the images that a model's table was made for."""
    return [side * model.config.patch_size for side in model.config.train_grid]
