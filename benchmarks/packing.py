"""A training step (forward, backward, AdamW) on images of very different sizes: packed, and the usual ways beside it.

    python benchmarks/packing.py [--quick] [--depth 4] [--out OUT] [--threads 1] [--device cpu|cuda]

The subject `packed` is our model of ViT-S width with factorised embeddings and mean pooling, all images in one row, no
token padded; a third of its blocks, since a ratio hangs on what a block does and not on how many there are (`--depth
12` for all of them). Baselines of the same width and depth: `padded`, every image padded to the longest with a mask;
`buckets`, four groups of like length, each padded, one step in all; `dense_mask`, one row with a mask of tokens by
tokens; `nested`, torch's jagged tensors; `timm_naflex`, timm's NaFlexViT. The first four share their blocks with
one another.
All are timed in turn in each round, the two slowest beside the subject in fewer rounds of their own; a ratio is the
baseline's time over the subject's, so above 1 packing is faster, `interval` holds it with 95 %, and at least `wanted`
is expected of 64 mixed images. `padding_factor` is the tokens of `padded` over those of the images. On one core of 2026
all takes a quarter of an hour, `--quick` (one block, fewer rounds, no memory) two minutes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, counted, interleave, peak_bytes, print_table, row, threads
from torch import Tensor, nn

from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

_DIM, _HEADS, _PATCH, _CLASSES = 384, 6, 16, 1000
_BASELINES = ("padded", "buckets", "dense_mask", "nested", "timm_naflex")
# Several times as slow as the others: of these a few rounds say enough.
_SLOW = ("dense_mask", "nested")
# The least ratio that is expected of 64 mixed images; of the others the padding factor, .95 of it in bfloat16.
_WANTED = {"buckets": 1.15, "dense_mask": 4.0, "nested": 2.0}
_COUNTS = (35, 40, 45, 50, 55, 60, 70, 80, 90, 100, 110, 120, 140, 150, 178, 240)
# How tokens meet: (q, k, v), each [rows, heads, tokens, head_dim], to the same shape.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def grid_of(tokens: int) -> Grid:
    """The grid of exactly so many patches whose sides are the most nearly 2 to 3."""
    rows = [side for side in range(1, tokens + 1) if tokens % side == 0]
    best = min(rows, key=lambda side: abs(math.log(side * side / tokens * 3 / 2)))
    return Grid(best, tokens // best)


class Block(nn.Module):
    """A plain pre-norm block, as ours and timm's are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_DIM, eps=1e-6), nn.LayerNorm(_DIM, eps=1e-6)
        self.qkv, self.proj = nn.Linear(_DIM, 3 * _DIM), nn.Linear(_DIM, _DIM)
        self.fc1, self.fc2 = nn.Linear(_DIM, 4 * _DIM), nn.Linear(4 * _DIM, _DIM)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, _HEADS, _DIM // _HEADS))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        x = x + self.proj(attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Plain(nn.Module):
    """A ViT on flat patches, whose caller says how tokens meet and how they are pooled."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(3 * _PATCH**2, _DIM), nn.Linear(_DIM, _CLASSES)
        self.rows, self.cols = (nn.Parameter(0.02 * torch.randn(256, _DIM)) for _ in range(2))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(_DIM, eps=1e-6)

    def forward(self, patches: Tensor, where: Tensor, attend: Attend, pool: Callable[[Tensor], Tensor]) -> Tensor:
        x = self.embed(patches) + self.rows[where[..., 0]] + self.cols[where[..., 1]]
        for block in self.blocks:
            x = block(x, attend)
        return self.head(pool(self.norm(x)))


def _padded(images: Sequence[Tensor], places: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Patches and places padded to the longest, and which slots are real."""
    longest = max(map(len, images))
    patches = torch.stack([F.pad(one, (0, 0, 0, longest - len(one))) for one in images])
    where = torch.stack([F.pad(one, (0, 0, 0, longest - len(one))) for one in places])
    real = torch.stack([torch.arange(longest, device=one.device) < len(one) for one in images])
    return patches, where, real


def _run_padded(model: Plain, images: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    patches, where, real = _padded(images, places)
    mask = real[:, None, None]
    weights = (real / real.sum(dim=1, keepdim=True)).unsqueeze(-1)
    return model(
        patches,
        where,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        lambda x: (x * weights).sum(dim=1),
    )


def _run_dense_mask(model: Plain, images: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    ids = torch.repeat_interleave(
        torch.arange(len(images), device=images[0].device), torch.tensor([*map(len, images)], device=images[0].device)
    )
    mask = ids[:, None] == ids[None]
    sums = F.one_hot(ids, len(images)).T / torch.tensor([*map(len, images)], device=ids.device).unsqueeze(1)
    return model(
        torch.cat(list(images)).unsqueeze(0),
        torch.cat(list(places)).unsqueeze(0),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        lambda x: sums.to(x.dtype) @ x[0],
    )


def _run_nested(model: Plain, images: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """torch's jagged layout: only attention and pooling know of images."""
    patches = torch.nested.nested_tensor(list(images), layout=torch.jagged)
    x = model.embed(patches)
    added = torch.cat([model.rows[where[:, 0]] + model.cols[where[:, 1]] for where in places])
    x = x + torch.nested.nested_tensor_from_jagged(added, x.offsets())
    for block in model.blocks:
        x = block_nested(block, x)
    values, lengths = model.norm(x).values(), torch.tensor([*map(len, images)], device=added.device)
    pooled = torch.stack([part.mean(dim=0) for part in values.split(lengths.tolist())])
    return model.head(pooled)


def block_nested(block: Block, x: Tensor) -> Tensor:
    """`Block.forward` with the operators that jagged tensors have."""
    normed = block.norm1(x)
    # Three products: its attention wants each contiguous.
    parts = zip(block.qkv.weight.chunk(3), block.qkv.bias.chunk(3), strict=True)
    q, k, v = (F.linear(normed, *one).unflatten(-1, (_HEADS, _DIM // _HEADS)).transpose(1, 2) for one in parts)
    met = F.scaled_dot_product_attention(q, k, v)
    x = x + block.proj(met.transpose(1, 2).flatten(2))
    return x + block.fc2(F.gelu(block.fc1(block.norm2(x))))


def works(
    copies: int,
    equal: bool,
    dtype: torch.dtype,
    device: str,
    baselines: Sequence[str],
    depth: int,
    *,
    encoding: str = "factorized",
    prepare: Callable[[nn.Module], object] = lambda _: None,
) -> tuple[dict[str, Work], dict[str, Any]]:
    """A training step of each way by name, and what is said of the batch; `prepare` is called with each model."""
    counts = [100] * 16 * copies if equal else [count for count in _COUNTS for _ in range(copies)]
    grids = [grid_of(count) for count in counts]
    images = [torch.randn(count, 3 * _PATCH**2, device=device) for count in counts]
    places = [torch.cartesian_prod(torch.arange(g.rows), torch.arange(g.cols)).to(device) for g in grids]
    labels = torch.randint(_CLASSES, (len(counts),), device=device)

    def step(model: nn.Module, groups: Sequence[tuple[Sequence[int], Callable[[], Tensor]]]) -> Work:
        prepare(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        autocast = torch.autocast(device, torch.bfloat16) if dtype == torch.bfloat16 else contextlib.nullcontext()

        def work() -> None:
            optimizer.zero_grad()
            for numbers, run in groups:
                with autocast:
                    logits = run()
                loss = F.cross_entropy(logits.float(), labels[list(numbers)], reduction="sum") / len(counts)
                loss.backward()
            optimizer.step()

        return work

    def plain(run: Callable[..., Tensor], groups: Sequence[Sequence[int]]) -> Work:
        model = Plain(depth).to(device)
        return step(
            model,
            [
                (group, lambda group=group: run(model, [images[one] for one in group], [places[one] for one in group]))
                for group in groups
            ],
        )

    everything = range(len(counts))
    by_length = sorted(everything, key=lambda one: counts[one])
    size = len(counts) // 4
    ours = create_model(
        "vit_small_patch16",
        depth=depth,
        encoding=encoding,
        encoding_options={"max_side": 256} if encoding == "factorized" else {},
        num_classes=_CLASSES,
        pool="mean",
    ).to(device)
    row_of_all, layout = torch.cat(images).unsqueeze(0), TokenLayout.packed(grids, num_prefix_tokens=0, device=device)
    ways: dict[str, Callable[[], Work | None]] = {
        "padded": lambda: plain(_run_padded, [everything]),
        "buckets": lambda: plain(
            _run_padded, [by_length[start : start + size] for start in range(0, len(counts), size)]
        ),
        "dense_mask": lambda: plain(_run_dense_mask, [everything]),
        "nested": lambda: plain(_run_nested, [everything]),
        "timm_naflex": lambda: naflex(),
    }

    def naflex() -> Work | None:
        made = _naflex(images, places, device, depth)
        return None if made is None else step(made[0], [(everything, made[1])])

    found = {"packed": step(ours, [(everything, lambda: ours(row_of_all, layout=layout))])}
    for name in baselines:
        work = ways[name]()
        try:
            if work is not None:
                work()
                found[name] = work
        except (RuntimeError, NotImplementedError) as error:
            print(f"{name}: not run ({' '.join(str(error).split())[:120]})")
    tokens = sum(counts)
    return found, {
        "images": len(counts),
        "tokens": tokens,
        "depth": depth,
        "padding_factor": round(max(counts) * len(counts) / tokens, 3),
        "sizes": "equal" if equal else "mixed",
        "dtype": str(dtype).removeprefix("torch."),
    }


def _naflex(
    images: Sequence[Tensor], places: Sequence[Tensor], device: str, depth: int
) -> tuple[nn.Module, Callable[[], Tensor]] | None:
    try:
        timm = import_timm()
    except InputError:
        return None
    options = {"embed_dim": _DIM, "depth": depth, "num_heads": _HEADS, "reg_tokens": 0, "pos_embed": "factorized"}
    model = timm.create_model("naflexvit_base_patch16_gap", num_classes=_CLASSES, **options).to(device)
    patches, where, real = _padded(images, places)
    return model, lambda: model({"patches": patches, "patch_coord": where, "patch_valid": real})


def wanted(baseline: str, about: dict[str, Any]) -> float | None:
    """The least ratio that is expected of such a batch, or None."""
    if about["images"] != 64 or about["sizes"] != "mixed":
        return None
    factor = about["padding_factor"] * (0.95 if about["dtype"] == "bfloat16" else 1)
    return _WANTED.get(baseline, round(factor, 3))


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("packing", "64 images of mixed sizes alone, one block, three rounds, no memory: two minutes")
    parser.add_argument(
        "--baselines", nargs="+", choices=_BASELINES, default=_BASELINES, help="what packing is compared with; all"
    )
    parser.add_argument(
        "--sizes", nargs="+", choices=("mixed", "equal"), help="of the images; both, or mixed if --quick"
    )
    parser.add_argument(
        "--images", type=int, nargs="+", choices=(16, 64, 256), help="of a batch; 16 64, or 64 if --quick"
    )
    parser.add_argument("--rounds", type=threads, help="timed ones; 6, or 3 if --quick; of the slowest half as many")
    parser.add_argument("--depth", type=threads, help="blocks of each model; 4, or 1 if --quick")
    chosen = parser.begin()
    usual = (64,) if chosen.quick else (16, 64) if chosen.device == "cpu" else (16, 64, 256)
    copies = [number // 16 for number in chosen.images or usual]
    sizes = chosen.sizes or (("mixed",) if chosen.quick else ("mixed", "equal"))
    dtypes = (torch.float32, torch.bfloat16)
    cases = [(number, False, dtype) for number in copies for dtype in dtypes if "mixed" in sizes]
    cases += [(copies[-1], True, dtype) for dtype in dtypes if "equal" in sizes]
    rounds, depth = chosen.rounds or (3 if chosen.quick else 6), chosen.depth or (1 if chosen.quick else 4)
    rows: list[dict[str, Any]] = []
    for (number, equal, dtype), said in counted(cases):
        print(f"{said} {16 * number} images, {'equal' if equal else 'mixed'} sizes, {dtype}", flush=True)
        torch.manual_seed(0)
        every, about = works(number, equal, dtype, chosen.device, chosen.baselines, depth)
        print(f"padding factor {about['padding_factor']}", flush=True)
        measured = {} if chosen.quick else every
        peaks = {name: peak_bytes(work, chosen.device) for name, work in measured.items()}
        slow = {name: every.pop(name) for name in _SLOW if name in every}
        fresh = []
        for some, count in ((every, rounds), ({"packed": every["packed"], **slow}, -(-rounds // 2))):
            # All baselines were run once when they were made.
            times = interleave(some, count, chosen.device, warm=some is every, by=clock())
            fresh += [
                row("packing", "packed", name, times, peaks, chosen.device, **about, wanted=wanted(name, about))
                for name in times
                if name != "packed"
            ]
        columns = ("baseline", "padding_factor", "ratio", "interval", "wanted", "memory_ratio", "subject_ms")
        print_table(columns, fresh)
        rows += fresh
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
