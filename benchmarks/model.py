"""A whole ViT-B/16 with LookHere, against the same model without position encoding, with stored biases, and timm's.

    python benchmarks/model.py [--quick] [--out OUT] [--threads 1] [--device cpu|cuda]

The subject is our model with what `dispatch` chooses (`auto`). Baselines: `sdpa_no_bias`, the same model without
encoding; `sdpa_dense_bias`, the same with a dense bias stored for every layer, as the public LookHere code holds it
(its build outside the clock); `timm_vit`, timm's ViT of the same size. Times are taken in turn in each round; peaks of
memory are those of a fresh process that does one forward, or one training step with AdamW.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, counted, in_fresh_process, interleave, mark_memory, print_table, row
from timm_vit import timm_vit
from torch import Tensor, nn

from sightline.distributed import machine
from sightline.encodings.base import PatternEncoding
from sightline.models import VisionTransformer, create_model

_MODEL, _TIMM, _PATCH = "vit_base_patch16", "vit_base_patch16_224", 16
_BASELINES = ("sdpa_no_bias", "sdpa_dense_bias", "timm_vit")


def build(way: str, encoding: str, resolution: int, dtype: torch.dtype, device: str) -> nn.Module | None:
    """The model of one way to attend, with random weights; None where it cannot be built."""
    with torch.device("meta"):
        if way == "timm_vit":
            model = timm_vit(_TIMM, resolution)
        else:
            model = create_model(_MODEL, encoding=encoding if way in ("auto", "sdpa_dense_bias") else "none")
    if model is None:
        return None
    torch.manual_seed(0)
    model = model.to_empty(device=device).to(dtype)
    # The libraries' own initialisation of a ViT-B takes seconds, and no time depends on it.
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        else:
            nn.init.constant_(parameter, float("norm" in name and name.endswith("weight")))
    return (
        store_biases(model, resolution, dtype, device)
        if isinstance(model, VisionTransformer) and way == "sdpa_dense_bias"
        else model
    )


def store_biases(model: VisionTransformer, resolution: int, dtype: torch.dtype, device: str) -> VisionTransformer:
    """Let every layer attend with a dense bias that is made now and kept."""
    side = resolution // _PATCH
    encoding = model.encoding
    assert isinstance(encoding, PatternEncoding)
    for layer, block in enumerate(model.blocks):
        bias = encoding.bias_matrix((side, side), layer).to(device, dtype).unsqueeze(0)
        attention = block.get_submodule("attn")

        def forward(x: Tensor, *_: Any, attention: Any = attention, bias: Tensor = bias) -> Tensor:
            shape = (3, attention.num_heads, attention.head_dim)
            q, k, v = attention.qkv(x).unflatten(-1, shape).permute(2, 0, 3, 1, 4)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            return attention.proj(out.transpose(1, 2).flatten(2))

        attention.forward = forward
    return model


def stepping(model: nn.Module, resolution: int, batch: int, dtype: torch.dtype, device: str, training: bool) -> Work:
    """One forward, or one training step."""
    images = torch.randn(batch, 3, resolution, resolution, device=device, dtype=dtype)
    if not training:
        model.eval()

        def forward() -> None:
            with torch.no_grad():
                model(images)

        return forward
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    labels = torch.zeros(batch, dtype=torch.int64, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images).float(), labels).backward()
        optimizer.step()

    return step


def compare(
    encoding: str,
    resolution: int,
    dtype: torch.dtype,
    training: bool,
    rounds: int,
    device: str,
    memory: bool,
    baselines: Sequence[str] = _BASELINES,
) -> list[dict[str, Any]]:
    """The rows of one case: our model against every baseline that can be built."""
    works: dict[str, Work] = {}
    peaks: dict[str, int | None] = {}
    name = str(dtype).removeprefix("torch.")
    stored = 12 * 12 * ((resolution // _PATCH) ** 2 + 1) ** 2 * dtype.itemsize
    free = machine.available_memory(device)
    if free is not None and 1.3 * stored > free:
        print(f"sdpa_dense_bias: not measured, {stored / 2**30:.1f} GiB of biases do not fit beside the rest here")
        baselines = [one for one in baselines if one != "sdpa_dense_bias"]
    # Two processes at a time where both can hold such biases; a GPU takes one.
    at_once = 2 if device == "cpu" and (free is None or 2.5 * stored < free) else 1
    ways = ("auto", *baselines)
    if memory:
        cases = [[way, encoding, str(resolution), name, str(int(training)), device] for way in ways]
        with ThreadPoolExecutor(min(at_once, machine.cpu_count())) as pool:
            found = pool.map(lambda case: in_fresh_process(__file__, ["--measure", *case])["peak"], cases)
            peaks = dict(zip(ways, found, strict=True))
    for way in ways:
        model = build(way, encoding, resolution, dtype, device)
        if model is not None:
            works[way] = stepping(model, resolution, 1 if device == "cpu" else 8, dtype, device, training)
    times = interleave(works, rounds, device, by=clock())
    works.clear()
    gc.collect()
    return [
        row(
            "model",
            "auto",
            baseline,
            times,
            peaks,
            device,
            **{"pass": "forward+backward" if training else "forward"},
            tokens=(resolution // _PATCH) ** 2 + 1,
            dtype=name,
            encoding=encoding,
            model=_MODEL,
            resolution=resolution,
            clock=clock().__name__,
        )
        for baseline in times
        if baseline != "auto"
    ]


def _measure(way: str, encoding: str, resolution: str, dtype: str, training: str, device: str) -> None:
    """In a process of its own: the peak of its memory in one forward or training step beyond what the libraries take,
    as a JSON line."""
    if way == "timm_vit":
        with torch.device("meta"):
            timm_vit(_TIMM, int(resolution))
    libraries = 0 if device != "cpu" else mark_memory()
    model = build(way, encoding, int(resolution), getattr(torch, dtype), device)
    if model is None:
        print(json.dumps({"peak": None}))
        return
    # What building takes for a moment is not what running takes.
    if device == "cpu":
        mark_memory()
    else:
        torch.cuda.reset_peak_memory_stats(device)
    stepping(model, int(resolution), 1 if device == "cpu" else 8, getattr(torch, dtype), device, training == "1")()
    print(json.dumps({"peak": machine.peak_memory(device) - libraries}))


def _cases(quick: bool, device: str) -> list[tuple[str, int, torch.dtype, bool, int, bool]]:
    """(encoding, resolution, dtype, training, rounds, whether memory is measured)."""
    full, half = torch.float32, torch.bfloat16
    if device != "cpu":
        encodings = ("lookhere_90",) if quick else ("lookhere_45", "lookhere_90", "lookhere_180")
        sizes = (224, 512, 1024) if quick else (224, 384, 512, 768, 1024)
        # Memory takes a fresh process a model, each of which takes seconds to begin.
        return [
            (one, size, half, training, 20, not quick or size == 1024)
            for one in encodings
            for size in sizes
            for training in (False, True)
        ]
    if quick:
        return [
            ("lookhere_90", 224, full, False, 5, True),
            ("lookhere_90", 512, full, True, 2, True),
            ("lookhere_90", 1024, full, False, 2, True),
        ]
    return [
        ("lookhere_90", size, dtype, training, 3 if size >= 512 else 5, True)
        for size in (224, 512, 1024)
        for dtype in (full, half)
        for training in (False, True)
        # A training step at 1024 px with stored biases takes most of a minute and more memory than most machines have.
        if not (training and size > 512)
    ]


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("model", "fewer sizes and rounds: some minutes")
    parser.add_argument("--measure", nargs=6, help=argparse.SUPPRESS)
    chosen = parser.begin()
    if chosen.measure:
        _measure(*chosen.measure)
        return
    rows: list[dict[str, Any]] = []
    cases = _cases(chosen.quick, chosen.device)
    for (encoding, resolution, dtype, training, rounds, memory), said in counted(cases):
        what = "training step" if training else "forward"
        print(f"{said} {_MODEL}, {encoding}, {resolution} px, {dtype}, {what}", flush=True)
        # timm's at 1024 px is as ours without encoding: a quick run leaves it out.
        baselines = _BASELINES[:2] if chosen.quick and resolution == 1024 else _BASELINES
        fresh = compare(encoding, resolution, dtype, training, rounds, chosen.device, memory, baselines)
        columns = ("subject", "baseline", "ratio", "spread", "memory_ratio", "subject_ms", "baseline_ms")
        print_table((*columns, "subject_mib", "baseline_mib"), fresh)
        rows += fresh
    parser.save(rows)


if __name__ == "__main__":
    main()
