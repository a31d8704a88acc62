"""timm itself, and the models that it builds."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import nn

from sightline.convert.base import Arguments, State
from sightline.distributed.machine import import_timm
from sightline.errors import InputError, unknown_name_error
from sightline.models.config import LIMITS
from sightline.models.timm_names import CLASSES, timm_arguments

_BOUNDED = {
    theirs: ours for kind in CLASSES for theirs, ours in timm_arguments(kind).items() if ours in LIMITS
} | {
    "attn_pool_num_heads": "pool_heads", "attn_pool_mlp_ratio": "mlp_ratio", "pos_embed_grid_size": "image_size",
    "ref_feat_shape": "image_size",
}  # fmt: skip


def build(given: Arguments, **more: Any) -> nn.Module:
    """The model that timm builds from `model`, a name, and the arguments of its `create_model`.

    Raises:
        InputError: the name or an argument is not known there (names the nearest), or a value is refused.
    """
    # Sizes that no model of ours could have: timm builds whatever it is asked for.
    for theirs, ours in _BOUNDED.items():
        value = given.get(theirs)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, int | float) and not one <= LIMITS[ours]:
                raise InputError(f"timm: {theirs} {str(value)[:40]}: expected at most {LIMITS[ours]:,}")
    timm = import_timm()
    arguments = {key: value for key, value in given.items() if key != "model"}
    name = given["model"]
    architecture = name.split(".")[0]
    if not timm.is_model(architecture):
        raise unknown_name_error("timm: model", architecture, timm.list_models(), limit=5)
    wants_weights, unreachable = (arguments | more).get("pretrained", False), ""
    try:
        with contextlib.ExitStack() as stack:
            if wants_weights and (unreachable := _unreachable_hub()):
                stack.enter_context(_cached_alone())
            return timm.create_model(name, **arguments, **more)
    # What it raises (a wrong argument, a file that cannot be fetched) has no common class.
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if unreachable:
            said = f"{unreachable}: {said}"
        hint = "; without its weights: --no-pretrained, or pretrained=False in Python; from a file: --weights FILE"
        raise InputError(f"timm: {name} cannot be built: {said[:300]}{hint if wants_weights else ''}") from None


def _unreachable_hub() -> str:
    """Why the Hub cannot be reached, which would be tried ten times, for a minute; "" where it can, or a proxy may."""
    from huggingface_hub import constants

    place = urlsplit(constants.ENDPOINT)
    port = place.port or (80 if place.scheme == "http" else 443)
    try:
        if not (constants.HF_HUB_OFFLINE or getproxies().keys() - {"no"}):
            socket.create_connection((place.hostname, port), timeout=5).close()
    except OSError as error:
        return f"{place.hostname} cannot be reached ({error}), only its cache was read"
    return ""


@contextlib.contextmanager
def _cached_alone() -> Iterator[None]:
    """Inside, nothing is asked of the Hub."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def build_loaded(given: Arguments, state: State) -> nn.Module:
    """timm's own model with these weights, in evaluation mode; at any size where timm can.

    Raises:
        InputError: timm cannot build it, or the weights are of another model.
    """
    try:
        original = build({**given, "dynamic_img_size": True})
    except InputError:
        original = build(given)
    try:
        original.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    except RuntimeError as error:
        raise InputError(f"timm weights: {' '.join(str(error).split())[:200]}") from None
    return original.eval()


def built(given: Arguments) -> Any:
    """The module on the meta device, where it has no memory; the last few of plain values are kept."""
    try:
        return _built(json.dumps(given, sort_keys=True))
    except TypeError:
        return _on_meta(given)


@functools.lru_cache(maxsize=4)
def _built(text: str) -> nn.Module:
    return _on_meta(json.loads(text))


def _on_meta(given: Arguments) -> nn.Module:
    with torch.device("meta"):
        return build({**given, "pretrained": False})
