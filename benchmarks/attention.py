"""What is chosen for one attention layer, beside every form that it is chosen among and torch's own ways.

    python benchmarks/attention.py [--quick] [--out OUT] [--threads 1] [--device cpu|cuda]

Fixed batches of about 4,100 tokens, 65 to 4,097 tokens an image, 12 heads of 64 (a ViT-B) and of 16, float32 and
bfloat16, forward and with backward. The subject is `auto`; the baselines are each back end that supports the call,
asked for by its name; `ready_bias`, SDPA with a bias whose build is
outside the clock; and `no_bias`. All are timed in turn in each round; `ratio` is the median of the rounds' own ratios,
the baseline's time over that of `auto` (above 1 `auto` is the faster), and `interval` holds it with 95 %. `fastest`
marks the baseline that is the fastest of all but `no_bias`. `errors` are root mean squares of the differences to
float64, of the output and of the gradients of q, k and v, over those of `ready_bias` (SDPA): in bfloat16 at most 1.2 of
what is chosen.
"""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, counted, interleave, peak_bytes, print_table, row
from torch import Tensor

from sightline.attention import AttentionSpec, Pattern, attend, preferred_tile, use_backend
from sightline.attention.cpu import cpu_form
from sightline.attention.dispatch import BACKENDS, choose_backend, supports
from sightline.attention.sdpa import supports_form
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout

_HEADS, _LAYER = 12, 5
# Cells a side and images.
_BATCHES = {8: 64, 14: 20, 24: 7, 32: 4, 48: 2, 64: 1}
_OTHERS = ("lookhere_45", "lookhere_180", "alibi_2d")
# Errors are taken on these heads of one image: two that see a quarter, one that sees everything.
_ERROR_HEADS = (0, 5, 9)


class Case:
    """One layer on one batch.

    Attributes:
        encoding, side, head_dim, dtype, backward: what it is.
    """

    def __init__(
        self,
        encoding: str,
        side: int,
        head_dim: int,
        dtype: torch.dtype,
        backward: bool,
        device: str,
        images: int | None = None,
    ) -> None:
        self.encoding, self.side, self.head_dim, self.dtype, self.backward = encoding, side, head_dim, dtype, backward
        self.device, self.images = device, images or _BATCHES[side]
        self.layout = TokenLayout.uniform((side, side), self.images, device=device)
        made = create_encoding(encoding, depth=12, heads=_HEADS, dim=_HEADS * head_dim)
        pattern = made.pattern(_LAYER, self.layout)
        assert isinstance(pattern, Pattern)
        self.pattern = pattern
        torch.manual_seed(0)
        # q, k and v cut from one projection, as a model has them.
        shape = (self.images, self.layout.slots, 3, _HEADS, head_dim)
        self.inputs = torch.randn(shape, device=device).to(dtype).requires_grad_(backward)
        self.weights = torch.randn(self.images, self.layout.slots, _HEADS, head_dim, device=device).to(dtype)
        segment = self.layout.segments[0]
        self.ready = pattern.bias(segment, segment, 1, 1, dtype).contiguous()

    def finished(self, out: Tensor) -> list[Tensor]:
        """The output and, of a pass with backward, the gradients: [images, heads, tokens, head_dim]."""
        if not self.backward:
            return [out]
        (grad,) = torch.autograd.grad(out, self.inputs, self.weights.transpose(1, 2))
        return [out.detach(), *grad.permute(2, 0, 3, 1, 4).unbind(0)]

    def by(self, how: contextlib.AbstractContextManager[None]) -> list[Tensor]:
        with how:
            layout = self.chosen_layout()
            return self.finished(attend(*self.inputs.permute(2, 0, 3, 1, 4).unbind(0), self.pattern, layout))

    def chosen_layout(self) -> TokenLayout:
        """In the order of tokens that the back end in force wants; a model lays its patches so once."""
        tile = preferred_tile(self.pattern, self.layout, AttentionSpec.of_values(self.inputs.permute(2, 0, 3, 1, 4)[0]))
        return self.layout if tile is None else self.layout.tiled(tile)

    def sdpa(self, bias: Tensor | None) -> list[Tensor]:
        q, k, v = self.inputs.permute(2, 0, 3, 1, 4).unbind(0)
        return self.finished(F.scaled_dot_product_attention(q, k, v, attn_mask=bias))

    def works(self) -> dict[str, Work]:
        """`auto`, and what it is compared with, by name."""
        found: dict[str, Work] = {"auto": lambda: self.by(use_backend("auto"))}
        q = self.inputs.permute(2, 0, 3, 1, 4)[0]
        image = self.layout.segments[0]
        names = [name for name in ("sdpa", "products", "tiles") if supports_form(name, self.pattern, image, True, q)]
        # FlexAttention is there on a CPU for tests alone.
        if self.device != "cpu":
            spec = AttentionSpec.of_values(q)
            names += [
                name for name in ("flex", "varlen") if supports(name, self.pattern, self.layout, self.layout, spec)
            ]
        found |= {name: lambda name=name: self.by(use_backend(name)) for name in names}
        return {**found, "ready_bias": lambda: self.sdpa(self.ready), "no_bias": lambda: self.sdpa(None)}

    def exact(self, layout: TokenLayout) -> list[Tensor]:
        """In float64, of one image and `_ERROR_HEADS`, with the tokens in the order of `layout`."""
        cells = layout.to_row_major(torch.arange(layout.slots, device=self.device)[None])[0].argsort()
        inputs = self.inputs[:1, :, :, _ERROR_HEADS].detach().double().requires_grad_(self.backward)
        segment, parts = self.layout.segments[0], []
        # A head at a time: a bias and scores of all are many gigabytes.
        for place, head in enumerate(_ERROR_HEADS):
            bias = self.pattern.bias(segment, segment, 1, 1, torch.float64, slice(head, head + 1))
            bias = bias[..., cells, :][..., cells]
            q, k, v = inputs[:, :, :, place : place + 1].permute(2, 0, 3, 1, 4).unbind(0)
            out = ((q * self.head_dim**-0.5) @ k.transpose(-1, -2) + bias).softmax(-1) @ v
            part = [out.detach()]
            if self.backward:
                wanted = self.weights[:1, :, head : head + 1].double().transpose(1, 2)
                (grad,) = torch.autograd.grad(out, inputs, wanted)
                part += grad[:, :, :, place : place + 1].permute(2, 0, 3, 1, 4).unbind(0)
            parts.append(part)
        return [torch.cat(one, dim=1) for one in zip(*parts, strict=True)]

    def errors(self, works: dict[str, Work]) -> dict[str, list[float]]:
        """Of each way, over those of SDPA with a ready bias."""
        row_major = self.exact(self.layout)

        def of(name: str) -> list[float]:
            with use_backend(name if name in BACKENDS else "auto"):
                layout = self.layout if name == "ready_bias" else self.chosen_layout()
            exact = row_major if layout is self.layout else self.exact(layout)
            found: Any = works[name]()
            return [
                float((one[:1, _ERROR_HEADS].detach().double() - other).square().mean().sqrt())
                for one, other in zip(found, exact, strict=True)
            ]

        reference = of("ready_bias")
        ways = [name for name in works if name != "no_bias"]
        return {name: [round(a / b, 2) for a, b in zip(of(name), reference, strict=True)] for name in ways}

    def chosen(self) -> str:
        """What `auto` takes."""
        spec = AttentionSpec.of_values(self.inputs.permute(2, 0, 3, 1, 4)[0])
        name = choose_backend(self.pattern, self.layout, self.layout, spec)
        if name != "auto":
            return name
        return cpu_form(self.pattern, self.layout.slots, self.dtype, training=self.backward)

    def rows(self, rounds: int) -> list[dict[str, Any]]:
        """`auto` against everything."""
        with torch.set_grad_enabled(self.backward):
            works = self.works()
            times = interleave(works, rounds, self.device, by=clock())
            peaks = {name: peak_bytes(works[name], self.device) for name in ("auto", "ready_bias", "no_bias")}
            if peaks["ready_bias"] is not None:
                peaks["ready_bias"] += self.ready.nbytes
            errors, chosen = self.errors(works), self.chosen()
        middle = {name: statistics.median(times[name]) for name in works if name not in ("auto", "no_bias")}
        fastest = min(middle, key=lambda one: middle[one])
        return [
            row(
                "attention", "auto", name, times, peaks, self.device,
                **{"pass": "forward+backward" if self.backward else "forward"},
                tokens=self.layout.slots, images=self.images, heads=_HEADS, head_dim=self.head_dim,
                dtype=str(self.dtype).removeprefix("torch."), encoding=self.encoding, chosen=chosen,
                fastest=name == fastest, errors=errors["auto"], baseline_errors=errors.get(name),
            )
            for name in works
            if name != "auto"
        ]  # fmt: skip


def _gpu_cases() -> list[tuple[str, int, int, torch.dtype, bool]]:
    half, passes = torch.bfloat16, (False, True)
    cases = [("lookhere_90", side, 64, half, back) for side in (14, 24, 32, 48, 64) for back in passes]
    cases += [(encoding, 64, 64, half, back) for encoding in ("lookhere_45", "alibi_2d") for back in passes]
    return [*cases, ("lookhere_90", 64, 64, torch.float32, False), ("lookhere_90", 64, 64, torch.float32, True)]


def _cases(quick: bool) -> list[tuple[str, int, int, torch.dtype, bool]]:
    full, half = torch.float32, torch.bfloat16
    if quick:
        sides, passes = (8, 14, 24, 64), (False, True)
        return [("lookhere_90", side, 64, dtype, back) for side in sides for dtype in (full, half) for back in passes]
    dtypes, passes = (full, half), (False, True)
    cases = [
        ("lookhere_90", side, head_dim, dtype, backward)
        for side in _BATCHES
        for head_dim in (64, 16)
        for dtype in dtypes
        for backward in passes
    ]
    return cases + [(name, 64, 64, dtype, back) for name in _OTHERS for dtype in dtypes for back in passes]


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("attention_forms", "heads of 64, four sizes, fewer rounds: three minutes")
    chosen = parser.begin()
    rows: list[dict[str, Any]] = []
    columns = (
        "baseline",
        "ratio",
        "interval",
        "fastest",
        "baseline_errors",
        "memory_ratio",
        "subject_ms",
        "baseline_ms",
    )
    for case, said in counted(_gpu_cases() if chosen.device != "cpu" else _cases(chosen.quick)):
        encoding, side, head_dim, dtype, backward = case
        one = Case(*case, chosen.device)
        what = f"{_BATCHES[side]} x {side * side + 1} tokens, heads of {head_dim}, {dtype}"
        rounds = (3 if side >= 48 else 7) if chosen.quick else (7 if side >= 48 else 15)
        fresh = one.rows(rounds)
        print(f"{said} {encoding}, {what}, {'forward+backward' if backward else 'forward'}: {fresh[0]['chosen']}")
        print_table(columns, fresh)
        rows += fresh
    parser.save(rows)


if __name__ == "__main__":
    main()
