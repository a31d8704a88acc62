"""The class of each pixel by one pass over the whole image, against the usual ways with the same weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from measure import clock, interleave, row

from sightline.data.batch import Batch
from sightline.data.targets import Crop
from sightline.models import Model, create_model
from sightline.models.flops import forward_flops
from sightline.tasks.base import Task, task_of
from sightline.tasks.windows import InferenceMode, window_starts
from sightline.tokens.layout import TokenLayout

# LookHere's pattern lets most pairs of tokens out, the other two none.
_ENCODINGS = ("lookhere_90", "rope_axial", "learned_1d")
_DTYPES = ("float32", "bfloat16")
# mmsegmentation's sizes for its test-time augmentation, which Segmenter has too; both mirror the image.
_SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
# Cityscapes', whose images have this aspect.
_CLASSES, _SIZE, _WINDOW, _STRIDE = 19, (512, 1024), 512, 341
_SLIDING: dict[str, Any] = {"kind": "mmseg", "window": _WINDOW, "stride": _STRIDE}


def _case(encoding: str, quick: bool) -> tuple[Model, Batch]:
    """ViT-S with `pix`, new weights, and a batch of one image of noise."""
    small: dict[str, Any] = {"depth": 1} if quick else {}
    torch.manual_seed(0)
    model = create_model(
        "vit_small_patch16", encoding=encoding, image_size=_WINDOW, num_classes=_CLASSES, head="pix",
        task="segmentation", **small,
    ).eval()  # fmt: skip
    image = torch.randint(0, 256, (1, 3, *_SIZE), dtype=torch.uint8)
    inputs, grid = model.image_rows.patchifier(image)
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=model.num_prefix_tokens)
    return model, Batch(inputs, layout, {}, torch.zeros(1, dtype=torch.int64), ["noise"], [{}])


def _labels(model: Model, task: Task, batch: Batch, dtype: str) -> Any:
    """uint8 labels at the size of the image, as evaluation makes them."""
    with torch.inference_mode():
        outputs = task.outputs(model, batch, dtype)
        return [task.decode(one, Crop((0, 0, *_SIZE), _SIZE)) for one in task.split_outputs(outputs, batch.layout)]


def _compared(
    part: str, how: Mapping[str, Any], encoding: str, dtype: str, rounds: int, quick: bool, **case: Any
) -> dict[str, Any]:
    """The row of one pass against looking so."""
    model, batch = _case(encoding, quick)
    words = InferenceMode(**how).label
    ways = {"one pass": task_of(model), words: task_of(model, {"inference": how})}
    works = {name: partial(_labels, model, task, batch, dtype) for name, task in ways.items()}
    works["one pass"]()
    times = interleave(works, rounds, warm=False, by=clock())
    counts, once = _windows(model.config.patch_size, how), batch.layout.segments[0].patches
    said = {
        "part": part, "model": "vit_small_patch16", "encoding": encoding, "head": "pix", "classes": _CLASSES,
        "image": list(_SIZE), "dtype": dtype, "clock": clock().__name__, **case,
        "tokens": round(sum(counts) / once, 3),
        # Of the trunk alone: what the head computes goes with the tokens.
        "operations": round(forward_flops(model.config, counts) / forward_flops(model.config, [once]), 3),
    }  # fmt: skip
    return row("dense", "one pass", words, times, {}, **said)


def _windows(patch: int, how: Mapping[str, Any]) -> list[int]:
    """Patches of each window that is looked at, mmsegmentation's rule."""
    counts = []
    for scale in how.get("scales", (1.0,)):
        sides = [round(side * scale / patch) * patch for side in _SIZE]
        cells = math.prod(min(side, _WINDOW) // patch for side in sides)
        places = math.prod(len(window_starts(side, _WINDOW, _STRIDE)) for side in sides)
        counts += [cells] * places * (1 + how.get("flip", False))
    return counts


def windows(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Against windows at the image's own size, which Segmenter's rule and mmsegmentation's place alike here."""
    cases = [(encoding, dtype) for dtype in _DTYPES for encoding in _ENCODINGS][: 1 if quick else None]
    return [_compared("windows", _SLIDING, encoding, dtype, rounds, quick, wanted=1.1) for encoding, dtype in cases]


def scales(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Against windows at several sizes, mirrored too; of the encoding that windows cost the least more."""
    how = {**_SLIDING, "scales": (1.0,) if quick else _SCALES, "flip": True}
    return [_compared("scales", how, "rope_axial", "bfloat16", rounds, quick, wanted=3.0)]
