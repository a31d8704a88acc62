"""An exported program beside its model, at sizes that were never traced."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sightline.errors import InputError, NonFiniteError, SightlineError
from sightline.export.checks import check_sizes, check_target, default_sizes
from sightline.export.program import cause, frozen_copy, quiet
from sightline.io.read import check_file
from sightline.models import Model
from sightline.models.box_head import BoxHead

LIMIT = 1e-4
"""The largest difference of outputs that an export in float32 may have."""


@dataclass(frozen=True)
class CheckRow:
    """An exported program beside its model on random normal images of one size.

    Attributes:
        size: (height, width) in pixels; `grid` the same in patches.
        images: how many, over all batches.
        difference, mean_difference: of outputs, the largest and the mean of the absolute values.
        spread: standard deviation of the model's outputs, beside which the differences are to be seen.
        same_top1: the fraction of images whose largest output is the same; of a head of all tokens, of pixels, boxes or
            queries.
    """

    size: tuple[int, int]
    grid: tuple[int, int]
    images: int
    difference: float
    mean_difference: float
    spread: float
    same_top1: float


def check_export(
    path: str | Path,
    model: Model,
    sizes: Sequence[tuple[int, int]] | None = None,
    *,
    batches: Sequence[int] = (1, 3),
    moved: Callable[[int, int], None] | None = None,
) -> list[CheckRow]:
    """Run an exported file (ONNX Runtime, or torch for a .pt2) beside its model on random normal images.

    Args:
        sizes: (height, width) in pixels; `default_sizes` unless given.
        batches: images of each pass.
        moved: called with (sizes done, sizes in all).

    Raises:
        InputError: see `check_sizes`; or the file cannot be read as an exported program.
        NonFiniteError: the model's own outputs are not finite.
    """
    path = Path(path)
    check_file(path, "an exported program")
    to = "torch" if zipfile.is_zipfile(path) else "onnx"
    sizes = default_sizes(model, to) if sizes is None else sizes
    check_sizes(model, sizes, to)
    reference = frozen_copy(model)
    # Classes are the last of what a box or a query says.
    axis = -1 if isinstance(reference.head, BoxHead) else 1
    with quiet():
        run = _runner(path, to)
    report = moved or (lambda done, total: None)
    rows = []
    for number, size in enumerate(sizes):
        report(number, len(sizes))
        generator = torch.Generator().manual_seed(number)
        images = [torch.randn(batch, model.config.channels, *size, generator=generator) for batch in batches]
        pixels = f"{size[0]}x{size[1]} pixels"
        with torch.inference_mode():
            ours, said = _together([reference(batch) for batch in images])
        if not ours.isfinite().all():
            raise NonFiniteError(f"export: the model's own outputs are not finite at {pixels}")
        with torch.no_grad():
            try:
                theirs, answered = _together([run(batch) for batch in images])
            except Exception as error:
                # Both runtimes raise whatever they stumble over.
                raise SightlineError(f"{path}: does not run at {pixels} ({cause(error)})") from error
        grid, difference = model.config.grid_of(size), (ours - theirs).abs()
        same = (said.argmax(axis) == answered.argmax(axis)).float()
        numbers = [one.item() for one in (difference.max(), difference.mean(), ours.std(), same.mean())]
        rows.append(CheckRow(size, (grid.rows, grid.cols), len(ours), *numbers))
    report(len(sizes), len(sizes))
    return rows


def _together(passes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """All numbers that are given of the images of some passes: [images, ...], and the first kind of them alone."""
    kinds = [torch.cat(kind) for kind in zip(*map(tree_leaves, passes), strict=True)]
    return kinds[0] if len(kinds) == 1 else torch.cat([kind.flatten(1) for kind in kinds], dim=1), kinds[0]


def _runner(path: Path, to: str) -> Callable[[Tensor], Any]:
    check_target(to)
    try:
        return torch.export.load(path).module() if to == "torch" else _onnx_runner(path)
    except Exception as error:
        # Readers of both formats raise whatever they stumble over.
        raise InputError(f"{path}: cannot be read as an exported program ({cause(error)})") from error


def _onnx_runner(path: Path) -> Callable[[Tensor], list[Tensor]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Faults come as exceptions, too; the terminal is the caller's.
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda images: [torch.from_numpy(one) for one in session.run(None, {"images": images.numpy()})]
