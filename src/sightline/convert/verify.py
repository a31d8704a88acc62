"""Whether a converted checkpoint still is what it was converted from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sightline.convert import changed_rules, counted_weights, export_weights
from sightline.convert.timm_build import build_loaded
from sightline.errors import InputError
from sightline.io.tensors import check_state
from sightline.models import Model
from sightline.models.model import eval_mode

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


def fixed_images(model: Model) -> list[Tensor]:
    """One image of the training size, and one of a size that is not square and not it; of clips likewise, the second
    one of another number of frames.

    Their values are normal, from a generator of each size's own.
    """
    *time, rows, cols = model.config.train_grid
    images = []
    for grid in ((rows, cols), (max(rows // 2, 1) + 1, cols // 2 + 3)):
        height, width = (side * model.config.patch_size for side in grid)
        generator = torch.Generator().manual_seed(height * 100_003 + width)
        tubelet = model.config.patchifier.patch_dim // (model.config.channels * model.config.patch_size**2)
        frames = [side * tubelet + len(images) for side in time]
        images.append(torch.randn(1, model.config.channels, *frames, height, width, generator=generator))
    return images


@torch.inference_mode()
def fingerprint(model: Model) -> list[dict[str, Any]]:
    """Some outputs on the fixed images in evaluation mode, as plain values."""
    with eval_mode(model):
        return [
            {"size": list(image.shape[2:]), "outputs": _some(model(image)).tolist()} for image in fixed_images(model)
        ]


def _some(outputs: Any) -> Tensor:
    """The first logits; of a head of all tokens, as many of each of its outputs, from all over it."""
    if isinstance(outputs, Tensor):
        return outputs[0, :_SHOWN]
    (one,) = outputs
    parts = [one[name].flatten() for name in sorted(one)] if isinstance(one, dict) else [one.flatten()]
    return torch.cat([part[torch.linspace(0, len(part) - 1, _SHOWN).long()] for part in parts if len(part)])


def verify(model: Model, record: Mapping[str, Any], project: str, state: Mapping[str, Tensor]) -> list[Comparison]:
    """Compare a converted model with where it came from.

    What the checkpoint says of the model is compared with what its origin says, since outputs may hide a small
    difference. Its weights go back to the project's names and are compared with the source bit by bit; its outputs are
    compared with those of the original model where that can be built here (timm), else with the recorded fingerprint.

    Args:
        model: the converted one; record: its `config.json`.
        project: where it came from; state: the source's tensors.

    Raises:
        InputError: the model was not converted from that project, or the source is of another model.
    """
    origin = model.config.origin or {}
    if origin.get("project") != project:
        came = f"was converted from {origin['project']}" if origin else "was not converted"
        raise InputError(f"project {project!r}: the checkpoint {came}")
    wrong = changed_rules(model, state)
    what = f"rules: {'; '.join(wrong)}" if wrong else "rules"
    rows = [Comparison(what, "the original's arguments", float(len(wrong)), 0.0, 0.0), _weights(model, project, state)]
    if project == "timm":
        return rows + _against_original(model, build_loaded(origin["config"], state))
    return rows + _against_fingerprint(model, record)


def _weights(model: Model, project: str, state: Mapping[str, Tensor]) -> Comparison:
    back, _ = export_weights(model, project)
    counted = counted_weights(project, state, back)
    source = {name: one.float() if one.is_floating_point() else one for name, one in counted.items()}
    check_state(back, source, f"{project} weights of another model")
    largest = max(float((back[name] - source[name]).abs().max()) for name in back if back[name].numel())
    spread = float(torch.cat([one.flatten().float() for one in back.values()]).std())
    return Comparison(f"{len(back)} tensors of weights", "the source", largest, 0.0, spread)


@torch.inference_mode()
def _against_original(model: Model, original: nn.Module) -> list[Comparison]:
    rows = []
    for image in fixed_images(model):
        # What another library warns itself of is nothing that whoever compares could change.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if hasattr(original, "patch_embed") and not getattr(original, "dynamic_img_size", False):
                original.set_input_size(image.shape[-2:])  # type: ignore[operator]
            theirs = original(image)
        rows.append(_outputs(image.shape[-2:], "the original", model(image), theirs))
    return rows


def _against_fingerprint(model: Model, record: Mapping[str, Any]) -> list[Comparison]:
    recorded = record.get("fingerprint")
    if not recorded:
        raise InputError("the checkpoint has no fingerprint; convert it again")
    try:
        kept = {tuple(one["size"]): torch.tensor(one["outputs"], dtype=torch.float32) for one in recorded}
    except (KeyError, TypeError, ValueError):
        raise InputError("the checkpoint's fingerprint is damaged; convert it again") from None
    ours = {tuple(one["size"]): torch.tensor(one["outputs"]) for one in fingerprint(model)}
    if list(kept) != list(ours):
        raise InputError("the checkpoint's fingerprint is damaged, or of another training size; convert it again")
    return [_outputs(size, "the recorded fingerprint", found, kept[size]) for size, found in ours.items()]


def _outputs(size: Sequence[int], against: str, found: Tensor, expected: Tensor) -> Comparison:
    difference = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    spread = float(expected.std()) if expected.numel() > 1 else 0.0
    return Comparison(f"outputs at {'x'.join(map(str, size))}", against, difference, TOLERANCE, spread)
