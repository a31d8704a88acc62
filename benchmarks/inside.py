"""What it costs to look inside: all heads' attention distance, entropy and diversity, and one query's rollout.

    python benchmarks/inside.py [--quick] [--rounds 5] [--encodings lookhere_90 rope_axial] [--out OUT]

A ViT-B/16 at 1024 px, one image in float32: `watch` with those measures against the forward pass alone, in turn, by the
processor's seconds; `times_forward` is what is wanted to be 2.5 at most. The pairs of heads (L1, L2) are 66, and are
timed by themselves. Memory is the peak of processes of their own, without and with rollout:
`beyond_forward_mib`, wanted to be 150 and 350 at most. Then the plain way at 512 px, where it fits: timm's model with
fused attention switched off, hooks that keep each layer's attention whole, and the same numbers computed of that;
`attention_gib` is what is kept there, `attention_gib_1024` what it would be at 1024 px. About 15 minutes on one idle
core.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from measure import Parser, Work, clock, counted, in_fresh_process, interleave, print_table, row, threads
from timm_vit import timm_vit
from torch import Tensor, nn

from sightline import runtime
from sightline.analysis.analyse import watch
from sightline.analysis.images import looked_at
from sightline.analysis.measures.attention_distance import AttentionDistance
from sightline.analysis.measures.attention_rollout import PREFIX, AttentionRollout
from sightline.analysis.measures.base import Measure
from sightline.analysis.measures.entropy import Entropy
from sightline.analysis.measures.head_distance import HeadDistance
from sightline.analysis.measures.head_diversity import HeadDiversity
from sightline.data.batch import Batch
from sightline.models import Model, create_model

_MODEL, _TIMM, _PATCH = "vit_base_patch16", "vit_base_patch16_224", 16
_SIDE, _SIDE_OF_TIMM = 1024, 512
_PLAIN: tuple[type[Measure], ...] = (AttentionDistance, Entropy, HeadDiversity)
_COLUMNS = ("subject", "baseline", "encoding", "side", "times_forward", "interval", "subject_ms", "beyond_forward_mib")


def case(encoding: str, side: int, depth: int) -> tuple[Model, Batch]:
    """A new model and a batch of one image of noise."""
    torch.manual_seed(0)
    model = create_model(_MODEL, encoding=encoding, depth=depth).eval()
    (batch,) = next(iter(looked_at(model, torch.randn(1, 3, side, side)).values()))
    return model, batch


def forward(model: Model, batch: Batch) -> Tensor:
    with torch.inference_mode():
        rows, layout = model.in_attention_order(batch.inputs, batch.layout)
        return model.encode(rows, layout)


def inside(model: Model, batch: Batch, kinds: Sequence[type[Measure]], rollout: bool) -> list[Measure]:
    """The measures after one pass."""
    measures: list[Measure] = [kind(model) for kind in kinds]
    if rollout:
        measures.append(AttentionRollout(model, [PREFIX]))
    watch(model, batch, measures)
    return measures


def kept_whole(model: Any, image: Tensor) -> list[Tensor]:
    """Each layer's attention [1, heads, tokens, tokens] by hooks, as it is usually had."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        kept.append(inputs[0])

    handles = [block.attn.attn_drop.register_forward_pre_hook(keep) for block in model.blocks]
    with torch.inference_mode():
        model.forward_features(image)
    for handle in handles:
        handle.remove()
    return kept


def usual(model: Any, image: Tensor) -> tuple[list[Tensor], Tensor]:
    """The same numbers of attention that is kept whole: distance, entropy and diversity by layer, and the rollout."""
    with torch.inference_mode():
        maps, side = kept_whole(model, image), image.shape[-1] // _PATCH
        cells = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
        apart, found = torch.cdist(cells, cells), []
        product = torch.eye(maps[0].shape[-1])
        for attention in maps:
            entropy = torch.special.entr(attention).sum(-1)
            together = torch.special.entr(attention.mean(1)).sum(-1)
            patches = attention[:, :, 1:, 1:]
            distance = (patches * apart).sum(-1) / patches.sum(-1)
            found.append(torch.stack((distance.mean(), entropy.mean(), (together - entropy.mean(1)).mean())))
            product = (attention.mean(1)[0] + torch.eye(len(product))) / 2 @ product
    return found, product[0]


def timm_model(depth: int) -> Any:
    """timm's, with its fused attention switched off; None where timm does not import."""
    torch.manual_seed(0)
    model: Any = timm_vit(_TIMM, _SIDE_OF_TIMM, depth=depth)
    for block in [] if model is None else model.blocks:
        block.attn.fused_attn = False
    return None if model is None else model.eval()


def peak_of(way: str, encoding: str, side: int, depth: int) -> int:
    """Peak bytes of this process, in which the pass is all there is."""
    if way == "timm":
        image = torch.randn(1, 3, side, side)
        usual(timm_model(depth), image)
    else:
        model, batch = case(encoding, side, depth)
        if way == "forward":
            forward(model, batch)
        else:
            inside(model, batch, _PLAIN, rollout=way == "with rollout")
    return runtime.peak_memory()


def measured_peak(way: str, encoding: str, side: int, depth: int) -> int:
    """The same in a process of its own."""
    words = ["--peak", way, "--encodings", encoding, "--side", str(side), "--depth", str(depth)]
    return in_fresh_process(__file__, words)["peak"]


def with_ratio(found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row of `measure.row` with the subject's time over that of the forward pass, as the target is said."""
    low, high = found["interval"]
    said = {"times_forward": round(1 / found["ratio"], 2), "times_interval": [round(1 / high, 2), round(1 / low, 2)]}
    return {**found, **said, **more}


def rows_of(encoding: str, side: int, depth: int, rounds: int) -> list[dict[str, Any]]:
    """Time and memory of looking inside one model, against its forward pass."""
    ways = ("forward", "without rollout", "with rollout")
    peaks: dict[str, int | None] = {way: measured_peak(way, encoding, side, depth) for way in ways}
    model, batch = case(encoding, side, depth)
    works: dict[str, Work] = {
        "forward": partial(forward, model, batch),
        "with rollout": partial(inside, model, batch, _PLAIN, True),
    }
    works["forward"]()
    times = interleave(works, rounds, warm=False, by=clock())
    # Timed once, apart from the rounds.
    pairs: dict[str, Work] = {"L1 and L2": partial(inside, model, batch, [HeadDistance], False)}
    once = interleave(pairs, 1, warm=False, by=clock())["L1 and L2"]
    said = {"model": _MODEL, "encoding": encoding, "side": side, "depth": depth, "dtype": "float32",
            "clock": clock().__name__}  # fmt: skip
    base = peaks["forward"] or 0
    beyond = {way: round(((peaks[way] or 0) - base) / 2**20) for way in ways[1:]}
    found = row("inside", "with rollout", "forward", times, peaks, **said)
    first = with_ratio(
        found, wanted=2.5, beyond_forward_mib=beyond["with rollout"], wanted_mib=350,
        without_rollout_mib=beyond["without rollout"], wanted_without_mib=150,
    )  # fmt: skip
    middle = [statistics.median(times["forward"])]
    apart = row("inside", "L1 and L2", "forward", {"forward": middle, "L1 and L2": once}, {}, **said)
    return [first, with_ratio(apart)]


def beside_timm(encoding: str, side: int, depth: int, rounds: int) -> list[dict[str, Any]]:
    """The plain way beside ours, at a size where it fits."""
    plain = timm_model(depth)
    if plain is None:
        print("timm does not import: no plain way beside it")
        return []
    model, batch = case(encoding, side, depth)
    image = torch.randn(1, 3, side, side)
    works: dict[str, Work] = {
        "with rollout": partial(inside, model, batch, _PLAIN, True),
        "timm, attention kept whole": partial(usual, plain, image),
    }
    peaks: dict[str, int | None] = {
        name: measured_peak(way, encoding, side, depth)
        for name, way in zip(works, ("with rollout", "timm"), strict=True)
    }
    times = interleave(works, rounds, warm=True, by=clock())
    tokens, whole = (side // _PATCH) ** 2 + 1, (_SIDE // _PATCH) ** 2 + 1
    said = {"model": _MODEL, "encoding": encoding, "side": side, "depth": depth, "dtype": "float32",
            "clock": clock().__name__}  # fmt: skip
    gib = {
        f"attention_gib{name}": round(depth * 12 * n**2 * 4 / 2**30, 2) for name, n in (("", tokens), ("_1024", whole))
    }
    return [{**row("inside", "with rollout", "timm, attention kept whole", times, peaks, **said), **gib}]


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("inside", "one layer at a small size, to see that it runs")
    parser.add_argument("--rounds", type=threads, default=5, help="timed ones, each of all ways in turn")
    parser.add_argument("--encodings", nargs="+", default=["lookhere_90", "rope_axial"])
    parser.add_argument("--side", type=int, default=None, help="of the images, in pixels")
    parser.add_argument("--depth", type=int, default=None, help="layers")
    parser.add_argument("--peak", choices=("forward", "without rollout", "with rollout", "timm"), help="one way alone")
    chosen = parser.begin()
    side = chosen.side or (64 if chosen.quick else _SIDE)
    depth = chosen.depth or (1 if chosen.quick else 12)
    if chosen.peak:
        print(f'{{"peak": {peak_of(chosen.peak, chosen.encodings[0], side, depth)}}}')
        return
    rows: list[dict[str, Any]] = []
    for encoding, said in counted(chosen.encodings):
        print(f"{said} {encoding}", flush=True)
        rows += rows_of(encoding, side, depth, chosen.rounds)
        print_table(_COLUMNS, rows[-2:])
    # timm's own model adds what `learned_1d` adds.
    rows += beside_timm("learned_1d", 64 if chosen.quick else _SIDE_OF_TIMM, depth, chosen.rounds)
    print_table(("subject", "baseline", "encoding", "side", "ratio", "interval", "memory_ratio"), rows[-1:])
    parser.save(rows)


if __name__ == "__main__":
    main()
