"""What `tools/gpu.py` times on a GPU: attention, packed steps and steps of whole models, in bfloat16.

Each function measures one case in one process and gives its rows; ways are timed in turn in each round
(`measure.interleave`), a ratio is the baseline's time over ours, above 1 where ours is the faster. On a CPU the same
functions run at sizes that show no speed, to try the script.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import beside_timm
import packing
import torch
import torch.nn.functional as F
from attention import Case
from measure import Work, interleave, peak_bytes, row
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sightline.models import Model

_HALF = torch.bfloat16
# Tokens of a batch of attention; copies of a pack's 16 images, 1,563 tokens together.
_TOKENS, _COPIES = 65_536, 10
# Before the first round: compilers, autotuning and caches.
_WARM_UP = 4


def attention(side: int, backward: bool, device: str) -> list[dict[str, Any]]:
    """One layer of a ViT-B with LH-90 on `side` x `side` cells: what is chosen, over SDPA with a ready bias, stored as
    `Tensor.contiguous` does and in aligned rows, without one, by the flash kernel alone without one, and over each back
    end asked for by name."""
    on_gpu = device != "cpu"
    images = round(_TOKENS / (side * side + 1)) if on_gpu else 1
    case = Case("lookhere_90", side if on_gpu else 4, 64, _HALF, backward, device, images)

    # Rows that start at 16 bytes: torch copies any other bias in each call.
    aligned = F.pad(case.ready, (0, -case.layout.slots % 8))[..., : case.layout.slots]

    def flash() -> object:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return case.sdpa(None)

    with torch.set_grad_enabled(backward):
        about = {
            "pass": "forward+backward" if backward else "forward", "tokens": case.layout.slots, "images": case.images,
            "heads": 12, "head_dim": 64, "dtype": "bfloat16", "encoding": "lookhere_90", "chosen": case.chosen(),
        }  # fmt: skip
        works = {**case.works(), "aligned_bias": lambda: case.sdpa(aligned), "flash_no_bias": flash}
        return _rows("gpu_attention", ["auto"], works, device, about)


def packed(encoding: str, compiled: bool, device: str) -> list[dict[str, Any]]:
    """A training step of a ViT-S on about 16,000 tokens of images of mixed sizes, packed, over the same images padded
    with a mask, and timm's NaFlexViT."""
    copies, depth = (_COPIES, 12) if device != "cpu" else (1, 1)
    prepare = by_blocks if compiled else lambda _: None
    works, about = packing.works(
        copies, False, _HALF, device, ("padded", "timm_naflex"), depth, encoding=encoding, prepare=prepare
    )
    return _rows("gpu_packed", ["packed"], works, device, about | {"encoding": encoding, "compiled": compiled})


def models(name: str, side: int, images: int, compiled: bool, device: str) -> list[dict[str, Any]]:
    """A training step (autocast in bfloat16, AdamW fused) with learned_1d and with lookhere_90 over timm's model of the
    same weights."""
    side, images = (side, images) if device != "cpu" else (32, 1)
    made = beside_timm.pair(name, side)
    if made is None:
        raise RuntimeError("timm cannot be imported")
    batch = torch.randn(images, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device)
    works = {}
    for way, model in made.items():
        model.to(device)
        if compiled:
            by_blocks(model)
        works[way] = beside_timm.working(model, batch, _HALF, training=True)
    about = {"model": name, "resolution": side, "images": images, "compiled": compiled, "pass": "training step"}
    return _rows("gpu_models", [way for way in works if way != "timm"], works, device, about)


def by_blocks(model: nn.Module) -> None:
    """Compile each block of a model of ours or of another library's in place."""
    if isinstance(model, Model):
        from sightline.models.compile import compile_blocks

        compile_blocks(model, dynamic=False)
    else:
        for block in model.get_submodule("blocks").children():
            block.compile(dynamic=False)


def _rows(
    benchmark: str, subjects: Sequence[str], works: dict[str, Work], device: str, about: dict[str, Any]
) -> list[dict[str, Any]]:
    """Each subject over each way that is none; a baseline that torch refuses is left out, with a line."""
    for name, work in list(works.items()):
        try:
            for _ in range(_WARM_UP if device != "cpu" else 1):
                work()
        except RuntimeError as error:
            # A flash kernel that does not fit, or memory that is not there.
            if name in subjects:
                raise
            del works[name]
            print(f"{benchmark}, {name}: not measured ({' '.join(str(error).split())[:120]})", flush=True)
    times = interleave(works, 20 if device != "cpu" else 2, device, warm=False)
    peaks = {name: peak_bytes(work, device) for name, work in works.items()}
    baselines = [name for name in works if name not in subjects]
    return [row(benchmark, subject, name, times, peaks, device, **about) for subject in subjects for name in baselines]


def tidy() -> None:
    """Give back what a case left: memory of a GPU, and programs of the compiler."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.compiler.reset()
