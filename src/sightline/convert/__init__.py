"""Weights of other projects to our models and back, one project a file: each is found by its folder."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sightline import registry
from sightline.convert.base import Project, differences
from sightline.convert.maps import convert, convert_back, shapes_of
from sightline.convert.weights import unwrapped
from sightline.errors import InputError, require_known
from sightline.io.tensors import check_state, is_finite
from sightline.models import Model, make_model


@functools.cache
def _projects() -> dict[str, Project]:
    return {name: kind() for name, kind in registry.classes(Project, __name__).items()}


def list_projects() -> list[str]:
    """The names of the projects whose weights can be imported, sorted."""
    return sorted(_projects())


def find_project(name: str) -> Project:
    """The project of that name; raises InputError where there is none (names the nearest)."""
    require_known("project", name, _projects())
    return _projects()[name]


def import_weights(project: str, state_dict: Mapping[str, Tensor], config: Mapping[str, Any]) -> Model:
    """A model of ours with a foreign project's weights, in float32 and evaluation mode.

    Args:
        project: one of `list_projects`.
        state_dict: the foreign model's, whole: tensors, or numpy's arrays.
        config: the arguments with which the foreign class was built.

    Raises:
        InputError: an argument or tensor is missing, not known or of the wrong shape, or a number is not finite.
    """
    foreign = find_project(project)
    if not isinstance(config, Mapping):
        raise InputError(f"{project}: config {config!r}: expected the arguments of its class by name")
    config = foreign.own_arguments(config)
    given = foreign.filled(config)
    state = foreign.rename_foreign(_tensors(project, state_dict))
    theirs = next((name for name in state if "embeddings.patch_embedding" in name), None)
    if theirs and "/transformers" not in foreign.source:
        raise InputError(f"{project} weights: {theirs} is a name of transformers (expected project 'transformers')")
    try:
        ours = foreign.import_config(given, state)
        ours = ours.replace(origin=_origin(project, config), score_link=foreign.score_link(ours, given))
    # Arguments of the wrong kind and tensors of no kind at all raise what they raise; it stays the cause, where a
    # fault of our own is seen.
    except (ArithmeticError, AttributeError, LookupError, TypeError, RuntimeError) as error:
        said = " ".join(str(error).split())[:150]
        raise InputError(f"{project}: no model can be made of these arguments and weights ({said})") from error
    # From here on all comes from a configuration that was checked: what else is raised is ours.
    # Without memory, so that weights that do not fit are refused whatever the arguments ask for.
    entries = foreign.tensor_maps(ours, given)
    expected = convert_back(entries, shapes_of(ours))
    counted = counted_weights(project, state, expected)
    wide = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in counted.items()}
    check_state(expected, wide, project)
    if bad := next((name for name, tensor in wide.items() if not is_finite(tensor)), None):
        raise InputError(f"{project} weights: {bad} holds a number that is not finite")
    for entry in entries:
        if not entry.ours and not all(torch.equal(wide[name], expected[name]) for name in entry.foreign):
            names = ", ".join(entry.foreign)
            raise InputError(f"{project} weights: {names} follow from the configuration, and are not what it gives")
    model = make_model(ours)
    model.load_state_dict(convert(entries, wide))
    return model.eval()


def _tensors(project: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    if not isinstance(state, Mapping):
        raise InputError(f"{project} weights: expected tensors by name, got a {type(state).__name__}")
    found = {}
    for name, value in unwrapped(state).items():
        if not isinstance(name, str):
            raise InputError(f"{project} weights: {name!r} is no name")
        if isinstance(value, Tensor) and value.is_meta:
            raise InputError(f"{project} weights: {name} is on the meta device and has no values")
        try:
            found[name] = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{project} weights: {name} is a {type(value).__name__}, expected a tensor") from None
    return found


def _origin(project: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    # None where a value cannot be written down. The tokenizer is a file of its own.
    told = {name: value for name, value in config.items() if name != "tokenizer"}
    try:
        return {"project": project, "config": json.loads(json.dumps(told))}
    except (TypeError, ValueError):
        return None


def export_weights(model: Model, project: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state dict and the arguments of the foreign model that computes what `model` does.

    Raises:
        InputError: that project's models cannot; says which part.
    """
    foreign = find_project(project)
    given = foreign.checked_arguments(model)
    # Copies: what is done to them is not done to the model.
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return convert_back(foreign.tensor_maps(model.config, foreign.filled(given)), state), given


def changed_rules(model: Model, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Where an imported model is no longer what its origin says, a phrase for each; none for one as it came.

    Args:
        state_dict: the foreign weights that it was made from.

    Raises:
        InputError: it was not imported, or its origin is no project's.
    """
    origin = model.config.origin
    if origin is None:
        raise InputError("the model was not imported")
    foreign = find_project(origin["project"])
    state = foreign.rename_foreign(unwrapped(state_dict))
    return differences(foreign.import_config(foreign.filled(origin["config"]), state), model)


def counted_weights(
    project: str, state_dict: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Those of a project's weights that compute something, or are `expected`, under the names that it has for them."""
    foreign = find_project(project)
    state = foreign.rename_foreign(unwrapped(state_dict))
    return {name: one for name, one in state.items() if name in expected or not foreign.computes_nothing(name)}
