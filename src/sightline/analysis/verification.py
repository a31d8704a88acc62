"""Whether a converted checkpoint still is what it was converted from."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.checkpoint import write_folder
from sightline.convert import changed_rules, export_weights
from sightline.convert.timm_build import build_loaded, timm_is_here
from sightline.errors import InputError
from sightline.grid import Grid
from sightline.load import model_files
from sightline.models import Model
from sightline.models.modes import evaluation_mode

TOLERANCE = 2e-5
_SHOWN = 16


@dataclass(frozen=True)
class Comparison:
    """One line of a verification.

    Attributes:
        what: was compared; against: what.
        difference: the largest absolute one, and the largest that passes.
        spread: standard deviation of what was compared: a difference means nothing in a flat output.
    """

    what: str
    against: str
    difference: float
    limit: float
    spread: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.limit


def save_converted(model: Model, path: str | Path) -> None:
    """`save_model`, with the outputs on fixed images in `config.json`, for `verify`."""
    files = model_files(model)
    content = files["config.json"]
    assert isinstance(content, bytes)
    record = {**json.loads(content), "fingerprint": fingerprint(model)}
    write_folder(Path(path), {**files, "config.json": (json.dumps(record, indent=2) + "\n").encode()})


def sizes_of(model: Model) -> list[tuple[int, int]]:
    """The training size in pixels, and one that is not square and not it."""
    (rows, cols), patch = model.config.train_grid, model.config.patch_size
    other = Grid(max(rows // 2, 1) + 1, cols // 2 + 3)
    return [(rows * patch, cols * patch), (other.rows * patch, other.cols * patch)]


def images_of(size: tuple[int, int], channels: int) -> Tensor:
    """The fixed images of that size: normal values from a generator of its own."""
    generator = torch.Generator().manual_seed(size[0] * 100_003 + size[1])
    return torch.randn(1, channels, *size, generator=generator)


@torch.inference_mode()
def fingerprint(model: Model) -> list[dict[str, Any]]:
    """The first outputs on fixed images in evaluation mode, as plain values."""
    with evaluation_mode(model):
        return [
            {"size": list(size), "outputs": model(images_of(size, model.config.channels))[0, :_SHOWN].tolist()}
            for size in sizes_of(model)
        ]


def verify(
    model: Model,
    record: Mapping[str, Any],
    project: str,
    state: Mapping[str, Tensor],
    advance: Callable[[int], None] | None = None,
) -> list[Comparison]:
    """Compare a converted model with where it came from.

    Its weights go back to the project's names and are compared with the source bit by bit; its outputs are compared
    with those of the original model where that can be built here (timm), else with the recorded fingerprint.

    Args:
        model: the converted one; record: its `config.json`.
        project: where it came from; state: the source's tensors.
        advance: called after each comparison with how many there are.

    Raises:
        InputError: the model was not converted from that project, or the source is of another model.
    """
    origin = model.config.origin or {}
    if origin.get("project") != project:
        came = f"was converted from {origin['project']}" if origin else "was not converted"
        raise InputError(f"project {project!r}: the checkpoint {came}")
    rows = [_rules(model, state), _weights(model, project, state)]
    if project == "timm" and timm_is_here():
        rows += _against_original(model, build_loaded(origin["config"], state))
    else:
        rows += _against_fingerprint(model, record)
    if advance is not None:
        advance(len(rows))
    return rows


def _rules(model: Model, state: Mapping[str, Tensor]) -> Comparison:
    """What the checkpoint says of the model, against what its origin says; an output may hide a small difference."""
    wrong = changed_rules(model, state)
    what = f"rules: {'; '.join(wrong)}" if wrong else "rules"
    return Comparison(what, "the original's arguments", float(len(wrong)), 0.0, 0.0)


def _weights(model: Model, project: str, state: Mapping[str, Tensor]) -> Comparison:
    back, _ = export_weights(model, project)
    missing = sorted(set(back) ^ set(state))
    if missing:
        raise InputError(f"{project} weights: are of another model ({', '.join(missing[:3])})")
    wrong = [name for name in back if back[name].shape != state[name].shape]
    if wrong:
        shapes = f"{list(state[wrong[0]].shape)}, expected {list(back[wrong[0]].shape)}"
        raise InputError(f"{project} weights: are of another model ({wrong[0]} is {shapes})")
    largest = max(float((back[name] - state[name].float()).abs().max()) for name in back if back[name].numel())
    spread = float(torch.cat([one.flatten().float() for one in back.values()]).std())
    return Comparison(f"{len(back)} tensors of weights", "the source", largest, 0.0, spread)


@torch.inference_mode()
def _against_original(model: Model, original: nn.Module) -> list[Comparison]:
    rows = []
    for size in sizes_of(model):
        images = images_of(size, model.config.channels)
        # What another library warns itself of is nothing that whoever compares could change.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = _of_original(original, images)
        rows.append(_outputs(size, "the original", model(images), theirs))
    return rows


def _outputs(size: Sequence[int], against: str, found: Tensor, expected: Tensor) -> Comparison:
    difference = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    spread = float(expected.std()) if expected.numel() > 1 else 0.0
    return Comparison(f"outputs at {size[0]}x{size[1]}", against, difference, TOLERANCE, spread)


def _of_original(original: nn.Module, images: Tensor) -> Tensor:
    if hasattr(original, "patch_embed") and not getattr(original, "dynamic_img_size", False):
        original.set_input_size(images.shape[-2:])  # type: ignore[operator]
    return original(images)


def _against_fingerprint(model: Model, record: Mapping[str, Any]) -> list[Comparison]:
    recorded = record.get("fingerprint")
    if not recorded:
        raise InputError("the checkpoint has no fingerprint; convert it again")
    rows = []
    ours_of_all = fingerprint(model)
    sizes = (
        [one.get("size") if isinstance(one, dict) else None for one in recorded] if isinstance(recorded, list) else []
    )
    if sizes != [ours["size"] for ours in ours_of_all]:
        raise InputError("the checkpoint's fingerprint is damaged, or of another training size; convert it again")
    for ours, kept in zip(ours_of_all, recorded, strict=True):
        try:
            found, expected = torch.tensor(ours["outputs"]), torch.tensor(kept["outputs"], dtype=torch.float32)
        except (KeyError, TypeError, ValueError):
            raise InputError("the checkpoint's fingerprint is damaged; convert it again") from None
        rows.append(_outputs(kept["size"], "the recorded fingerprint", found, expected))
    return rows
