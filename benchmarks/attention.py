"""One attention layer of a ViT-B (12 heads of 64), our back ends against torch's own ways, side by side.

    python benchmarks/attention.py [--quick] [--out OUT] [--threads 1] [--device cpu|cuda]

Subjects are the back ends and `auto`, what `dispatch` chooses. Baselines: `sdpa_no_bias`, torch's fused attention
without any bias; `sdpa_dense_bias`, the same with a bias that is ready, its build outside the clock; and
`public_lookhere`, the bias built inside the clock in the public code's way (up to 1025 tokens). All are timed in turn
in each round; a ratio is the baseline's time over the subject's, so above 1 the subject is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, counted, interleave, peak_bytes, print_table, row
from public_lookhere import lookhere_90, stored_bias
from torch import Tensor

from sightline.attention import attend, use_backend
from sightline.attention.dispatch import BACKENDS, preferred_tile
from sightline.encodings import create_encoding
from sightline.layout import TokenLayout

_HEADS, _HEAD_DIM, _LAYER = 12, 64, 5
_SIDES = (14, 24, 32, 48, 64)
# Building in the public way takes 10 s and 5 GiB for one layer of 4097 tokens.
_PUBLIC_MAX_SIDE = 32


def _finished(out: Tensor, inputs: tuple[Tensor, ...], weights: Tensor, backward: bool) -> Tensor:
    if backward:
        torch.autograd.grad(out, inputs, weights)
    return out


def works(
    encoding: str, side: int, dtype: torch.dtype, backward: bool, device: str
) -> tuple[dict[str, Work], list[str], dict[str, int]]:
    """What is timed, by name; which of the names are subjects; and the bytes that a way holds between calls."""
    layer = create_encoding(encoding, depth=12, heads=_HEADS, dim=_HEADS * _HEAD_DIM)
    layout = TokenLayout.uniform((side, side), 1, device=device)
    pattern = layer.pattern(_LAYER, layout)
    # Heads side by side in each token, as the model's projection gives them; SDPA gets them contiguous.
    every = torch.randn(1, layout.slots, 3, _HEADS, _HEAD_DIM, device=device).to(dtype).permute(2, 0, 3, 1, 4)
    ours = tuple(x.detach().requires_grad_(backward) for x in every)
    theirs = tuple(x.detach().contiguous().requires_grad_(backward) for x in every)
    weights = torch.randn_like(theirs[0])

    def by(name: str) -> Work:
        with use_backend(name):
            tile = preferred_tile(pattern, layout)
        laid = layout if tile is None else layout.tiled(tile)

        def work() -> Tensor:
            with use_backend(name):
                return _finished(attend(*ours, pattern, laid), ours, weights, backward)

        return work

    def sdpa(bias: Callable[[], Tensor | None]) -> Work:
        return lambda: _finished(F.scaled_dot_product_attention(*theirs, attn_mask=bias()), theirs, weights, backward)

    found: dict[str, Work] = {}
    with torch.set_grad_enabled(backward):
        for name, backend in BACKENDS.items():
            if backend.runs_on(torch.device(device)) and backend.supports(pattern, layout, layout, ours[0]):
                found[name] = by(name)
    found["auto"] = by("auto")
    subjects, held = list(found), {}
    found["sdpa_no_bias"] = sdpa(lambda: None)
    if pattern is not None:
        segment = layout.segments[0]
        ready = pattern.bias(segment, segment, 1, 1, dtype).contiguous()
        held["sdpa_dense_bias"] = ready.nbytes
        found["sdpa_dense_bias"] = sdpa(lambda: ready)
        if encoding == "lookhere_90" and side <= _PUBLIC_MAX_SIDE:
            one = range(_LAYER, _LAYER + 1)
            found["public_lookhere"] = sdpa(
                lambda: stored_bias(lookhere_90(), (side, side), one)[0].to(device=device, dtype=dtype)
            )
    return found, subjects, held


def compare(
    encoding: str, side: int, dtype: torch.dtype, backward: bool, rounds: int, device: str
) -> list[dict[str, Any]]:
    """The rows of one case: every subject against every baseline."""
    torch.manual_seed(0)
    every, subjects, held = works(encoding, side, dtype, backward, device)
    with torch.set_grad_enabled(backward):
        public = {name: every.pop(name) for name in list(every) if name == "public_lookhere"}
        times = interleave(every, rounds, device)
        peaks = {name: peak_bytes(work, device) for name, work in every.items()}
        for name, held_bytes in held.items():
            peak = peaks[name]
            peaks[name] = None if peak is None else peak + held_bytes
        for name, work in public.items():
            # Seconds a call: once is enough to see a factor of ten and more.
            times[name], peaks[name] = interleave({name: work}, 1, device)[name], peak_bytes(work, device)
    return [
        row(
            "attention",
            subject,
            baseline,
            times,
            peaks,
            device,
            **{"pass": "forward+backward" if backward else "forward"},
            tokens=side * side + 1,
            dtype=str(dtype).removeprefix("torch."),
            encoding=encoding,
        )
        for subject in subjects
        for baseline in times
        if baseline not in subjects
    ]


def _cases(quick: bool) -> list[tuple[str, int, torch.dtype, bool]]:
    full, half = torch.float32, torch.bfloat16
    if quick:
        cases = [("lookhere_90", side, full, backward) for side in (14, 32, 64) for backward in (False, True)]
        return [*cases, ("lookhere_90", 64, half, False)]
    cases = [
        ("lookhere_90", side, dtype, backward)
        for side in _SIDES
        for dtype in (full, half)
        for backward in (False, True)
    ]
    others = [
        (name, 64, dtype, backward)
        for name in ("lookhere_45", "lookhere_180", "alibi_2d")
        for dtype in (full, half)
        for backward in (False, True)
    ]
    return cases + others


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("attention", "fewer sizes and rounds: some minutes")
    chosen = parser.begin()
    rows: list[dict[str, Any]] = []
    cases = _cases(chosen.quick)
    for case, said in counted(cases):
        encoding, side, dtype, backward = case
        what = f"{encoding}, {side * side + 1} tokens, {dtype}, {'forward+backward' if backward else 'forward'}"
        print(f"{said} {what}", flush=True)
        rounds = (5 if side >= 48 else 11) if chosen.quick else (7 if side >= 48 else 15)
        fresh = compare(*case, rounds, chosen.device)
        print_table(("subject", "baseline", "ratio", "spread", "memory_ratio", "subject_ms", "baseline_ms"), fresh)
        rows += fresh
    parser.save(rows)


if __name__ == "__main__":
    main()
