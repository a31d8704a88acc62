"""What it costs to look inside: all heads' attention distance, entropy and diversity, and one query's rollout.

    python benchmarks/inside.py [--quick] [--rounds 5] [--encodings lookhere_90 rope_axial] [--out OUT]

A ViT-B/16 at 1024 px, one image in float32: `watch` with those measures against the forward pass alone, each pass in
a process of its own, in turn, by the processor's seconds; `times_baseline` is wanted to be 2.5 at most. Memory is the
peak of those processes: `beyond_mib` with rollout, wanted to be 350 at most, `without_mib` without, 150 at most. Then
the plain way at 512 px, where it fits: timm's model with fused attention switched off, hooks that keep each layer's
attention whole (`attention_gib`, and what it would be at 1024 px), and the same numbers computed of that. Last the
pairs of heads (L1 and L2), which are 66, by themselves. About 20 minutes on one idle core.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from measure import Parser, Work, clock, counted, in_fresh_process, interleave, print_table, row, threads
from timm_vit import timm_vit
from torch import Tensor, nn

from sightline.analysis.analyse import run_pass
from sightline.analysis.images import batches_by_size
from sightline.analysis.measures.attention_maps import PREFIX, AttentionRollout
from sightline.analysis.measures.base import Measure
from sightline.analysis.measures.heads import AttentionDistance, Entropy, HeadDistance, HeadDiversity
from sightline.data.batch import Batch
from sightline.distributed import machine
from sightline.models import Model, create_model

_MODEL, _TIMM, _PATCH = "vit_base_patch16", "vit_base_patch16_224", 16
_SIDE, _SIDE_OF_TIMM = 1024, 512
_TIMM_WAY, _PAIRS = "timm, attention kept whole", "L1 and L2"
_PLAIN: tuple[type[Measure], ...] = (AttentionDistance, Entropy, HeadDiversity)
_COLUMNS = ("subject", "baseline", "encoding", "side", "times_baseline", "times_interval", "beyond_mib", "memory_ratio")


def case(encoding: str, side: int, depth: int) -> tuple[Model, Batch]:
    """A new model and a batch of one image of noise."""
    torch.manual_seed(0)
    model = create_model(_MODEL, encoding=encoding, depth=depth).eval()
    (batch,) = next(iter(batches_by_size(model, torch.randn(1, 3, side, side)).values()))
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
    run_pass(model, batch, measures)
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


def alone(way: str, encoding: str, side: int, depth: int) -> dict[str, float]:
    """Seconds of one pass and the peak bytes of this process, in which it is all there is."""
    torch.manual_seed(0)
    if way == _TIMM_WAY:
        work: Work = partial(usual, timm_model(depth), torch.randn(1, 3, side, side))
    else:
        model, batch = case(encoding, side, depth)
        kinds = [HeadDistance] if way == _PAIRS else _PLAIN
        work = partial(forward, model, batch)
        if way != "forward":
            work = partial(inside, model, batch, kinds, rollout=way == "with rollout")
    (seconds,) = interleave({way: work}, 1, warm=False, by=clock())[way]
    return {"seconds": seconds, "peak": machine.peak_memory()}


def compared(
    subject: str, baseline: str, encoding: str, side: int, depth: int, rounds: int, beside: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, int]]:
    """The row of one way against another, each pass in a process of its own and in every round both, and the MiB that
    ways take beyond the baseline; those `beside` run once."""
    ways = (baseline, subject)
    times: dict[str, list[float]] = {way: [] for way in ways}
    peaks: dict[str, int | None] = {}
    for number in range(rounds):
        for way in (*ways, *(beside if number == 0 else ())):
            words = ["--alone", way, "--encodings", encoding, "--side", str(side), "--depth", str(depth)]
            found = in_fresh_process(__file__, [*words, "--threads", str(torch.get_num_threads())])
            peaks[way] = max(peaks.get(way) or 0, int(found["peak"]))
            if way in times:
                times[way].append(found["seconds"])
            print(f"  {way}: {found['seconds']:.1f} s, {found['peak'] / 2**20:.0f} MiB", flush=True)
    said = {"model": _MODEL, "encoding": encoding, "side": side, "depth": depth, "dtype": "float32",
            "clock": clock().__name__}  # fmt: skip
    beyond = {way: round(((peak or 0) - (peaks[baseline] or 0)) / 2**20) for way, peak in peaks.items()}
    found = row("inside", subject, baseline, times, peaks, **said)
    low, high = found["interval"]
    found |= {"times_baseline": round(1 / found["ratio"], 2), "times_interval": [round(1 / high, 2), round(1 / low, 2)]}
    return found, beyond


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("inside", "one layer at a small size, to see that it runs")
    parser.add_argument("--rounds", type=threads, default=5, help="timed ones, each of both ways in turn")
    parser.add_argument("--encodings", nargs="+", default=["lookhere_90", "rope_axial"])
    parser.add_argument("--side", type=int, default=None, help="of the images, in pixels")
    parser.add_argument("--depth", type=int, default=None, help="layers")
    parser.add_argument("--alone", help="one way in this process, as the others are started")
    chosen = parser.begin()
    side = chosen.side or (64 if chosen.quick else _SIDE)
    depth = chosen.depth or (1 if chosen.quick else 12)
    if chosen.alone:
        print(json.dumps(alone(chosen.alone, chosen.encodings[0], side, depth)))
        return
    rows: list[dict[str, Any]] = []

    def save(new: dict[str, Any]) -> None:
        # After each case: one takes many minutes.
        rows.append(new)
        parser.save(rows if chosen.out else [new])
        print_table(_COLUMNS, [new])

    for encoding, said in counted(chosen.encodings):
        print(f"{said} {encoding}", flush=True)
        given = (encoding, side, depth, chosen.rounds)
        found, beyond = compared("with rollout", "forward", *given, beside=["without rollout"])
        wanted = {"wanted": 2.5, "wanted_mib": 350, "wanted_without_mib": 150}
        save({**found, **wanted, "beyond_mib": beyond["with rollout"], "without_mib": beyond["without rollout"]})
    # timm's own model adds what `learned_1d` adds.
    small = 64 if chosen.quick else _SIDE_OF_TIMM
    found, _ = compared("with rollout", _TIMM_WAY, "learned_1d", small, depth, chosen.rounds)
    kept = {at: round(depth * 12 * ((at // _PATCH) ** 2 + 1) ** 2 * 4 / 2**30, 2) for at in (small, side)}
    save({**found, "attention_gib": kept[small], f"attention_gib_at_{side}": kept[side]})
    for encoding in chosen.encodings:
        found, beyond = compared(_PAIRS, "forward", encoding, side, depth, 1)
        save({**found, "beyond_mib": beyond[_PAIRS]})


if __name__ == "__main__":
    main()
