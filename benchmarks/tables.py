"""Tables of figures in README and docs, each made from the rows of one file: `benchmarks/ranges.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rows = Sequence[dict[str, Any]]

_ENCODINGS = ("lookhere_90", "rope_axial", "learned_1d")
# Head -> the run that was measured of it.
_DENSE = {name: name for name in ("segmenter", "upernet", "eomt", "owlvit", "detr_queries")} | {"fcos": "lookhere_90_0"}


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)).replace(
        "| --- ", "|---"
    )


def percent(value: float) -> str:
    """A fraction in percent, with one digit."""
    return f"{100 * value:.1f}"


def with_interval(value: float, interval: Sequence[float]) -> str:
    """A fraction and its interval in percent."""
    return f"{percent(value)} [{percent(interval[0])}, {percent(interval[1])}]"


def mean(values: Sequence[float]) -> float:
    """The mean of some numbers."""
    return sum(values) / len(values)


def demonstration_in_brief(rows: Rows) -> str:
    """Top-1 of the demonstration at three sizes: the mean of the seeds that were run."""
    kept = [row for row in rows if (row["metric"], row["split"]) == ("top1", "test")]
    lines = []
    for name in _ENCODINGS:
        mine = [row for row in kept if row["run"] == name]
        seeds = {row["seed"] for row in mine}
        cells = [percent(mean([row["value"] for row in mine if row["resolution"] == side])) for side in (32, 64, 148)]
        lines.append([f"`{name}`", str(len(seeds)), *cells])
    return markdown(["encoding", "seeds", "32 px (training)", "64 px", "148 px"], lines)


def segmentation_in_brief(rows: Rows) -> str:
    """Mean IoU where objects grow with the image, and where they keep their size, as they are and shrunk to the size of
    training: the mean of three seeds."""
    places = (("pairs", 32), ("pairs", 64), ("pairs", 108), ("search", 64), ("search", 128))
    lines = []
    for name, shrunk in (*((name, None) for name in _ENCODINGS), ("lookhere_90", 32), ("rope_axial", 32)):
        kept = [row for row in rows if row["encoding"] == name and (row["shrunk"] == shrunk or row["resolution"] == 32)]
        mine = {(row["data"].removeprefix("scenes:"), row["resolution"]): row for row in kept}
        said = f"`{name}`" if shrunk is None else f"`{name}`, shrunk to {shrunk} px"
        lines.append([said, *(percent(mine[place]["value"]) for place in places)])
    heads = ["objects grow: 32 px (training)", "64 px", "108 px", "only the scene grows: 64 px", "128 px"]
    return markdown(["encoding", *heads], lines)


def words(rows: Rows) -> str:
    """Zero-shot top-1 and retrieval of contrastive runs by size, as they are and shrunk to the size of training, and
    top-1 of the same model trained to classify."""
    titles = {
        "zero_shot_top1": "zero-shot top-1",
        "top1": "top-1 of a classifier",
        "image_to_text_recall_at_1": "text of an image",
        "text_to_image_recall_at_1": "image of a text",
    }
    places = sorted({(row["data"].removeprefix("scenes:"), row["resolution"]) for row in rows})
    # The task of the paper's kind first.
    places.sort(key=lambda place: not place[0].startswith("pairs"))
    lines = []
    for metric, title in titles.items():
        for name, shrunk in ((name, shrunk) for name in _ENCODINGS for shrunk in (None, 32)):
            mine = {
                (row["data"].removeprefix("scenes:"), row["resolution"]): row
                for row in rows
                if (row["metric"], row["encoding"], row["shrunk"]) == (metric, name, shrunk)
            }
            if not mine or (shrunk is not None and metric != "image_to_text_recall_at_1"):
                continue
            seeds = max(len(row["seeds"]) for row in mine.values())
            said = f"`{name}`" if shrunk is None else f"`{name}`, shrunk to {shrunk} px"
            cells = [percent(mine[place]["value"]) if place in mine else "" for place in places]
            lines.append([title, said, str(seeds), *cells])
    heads = [f"{data}, {side} px" for data, side in places]
    return markdown(["measured", "encoding", "seeds", *heads], lines)


def navit(rows: Rows, sides: Sequence[int] = (16, 24, 32, 40, 48, 64)) -> str:
    """Top-1 of training at one size and packed at many, for the same operations: the mean of three seeds."""
    kept = [row for row in rows if row["metric"] == "top1"]
    lines = []
    for recipe in ("vit_scenes", "navit_scenes"):
        mine = [row for row in kept if row["recipe"] == recipe]
        seen = f"{mean([row['images_seen'] for row in mine]):,.0f}"
        cells = [percent(mean([row["value"] for row in mine if row["resolution"] == side])) for side in sides]
        lines.append([f"`{recipe}`", seen, *cells, percent(mean([row["value"] for row in mine]))])
    heads = [f"**{side} px**" if side == 32 else f"{side} px" for side in sides]
    return markdown(["recipe", "images", *heads, "mean over nine sizes"], lines)


def swin(rows: Rows) -> str:
    """Top-1 of Swin with windows that stay and that grow."""
    lines = []
    for window, said in (("fixed", "stays 4"), ("grows", "grows")):
        for name in ("rope_mixed", "rpe_learned"):
            mine = {row["resolution"]: row for row in rows if (row["encoding"], row["window"]) == (name, window)}
            cells = [with_interval(mine[side]["top1"], mine[side]["interval"]) for side in (32, 64, 148)]
            lines.append([f"`{name}`", said, *cells])
    return markdown(["encoding", "window", "32 px (1x)", "64 px (2x)", "148 px (4.6x)"], lines)


def video(few: Rows, many: Rows) -> str:
    """Top-1 of clips by their number of frames."""
    lines = []
    for images, rows in (("4,000", few), ("16,000", many)):
        for name in ("lookhere_90", "factorized", "rope_axial"):
            kept = [row for row in rows if (row["run"], row["metric"], row["split"]) == (name, "top1", "test")]
            mine = {row["frames"]: row for row in kept if not row["slices"] and not row["tuned"]}
            cells = [f"{percent(mine[n]['value'])} ({percent(mine[n]['stderr'])})" for n in (4, 8, 16)]
            lines.append([f"`{name}`", images, *cells])
    return markdown(["encoding", "clips in training", "4 frames", "8", "16"], lines)


def flexi(rows: Rows) -> str:
    """Accuracy and cost of one model by the size of its patches."""
    lines = []
    for patch in (16, 8, 4):
        mine = [row for row in rows if (row.get("patch_size") or 4) == patch and row["split"] == "test"]

        def value(metric: str, mine: Rows = mine) -> float:
            return next(row["value"] for row in mine if row["metric"] == metric and not row["slices"])

        accuracy = next(row for row in mine if row["metric"] == "top1" and not row["slices"])
        lines.append(
            [
                f"{patch} px",
                f"{accuracy['patches']:.0f}",
                f"{percent(accuracy['value'])} ({percent(accuracy['stderr'])})",
                f"{value('flops') / 1e6:.0f} M",
                f"{value('throughput'):,.0f}",
                f"{value('latency'):.1f}",
            ]
        )
    return markdown(["patches", "tokens", "top-1 in %", "FLOPs of an image", "images a second", "ms for one"], lines)


def dense_heads(rows: Rows) -> str:
    """What each head of a dense task reached at the size of training."""
    lines = []
    for name, run in _DENSE.items():
        mine = {
            row["metric"]: row
            for row in rows
            if row["run"] == run and row["resolution"] == 32 and not row["slices"] and row["split"] == "test"
        }
        first = next(iter(mine.values()))
        cells = [f"{mine[metric]['value']:.3f}" if metric in mine else "" for metric in ("miou", "box_ap", "box_ap50")]
        lines.append([f"`{name}`", f"`{first['data']}`", *cells])
    return markdown(["head", "data", "mIoU", "AP", "AP50"], lines)


def families(rows: Rows) -> str:
    """Time of the other over ours, of the models beside the plain ViT."""
    heads, lines = ["ours", "image", "beside", "a forward", "a training step"], []

    def case_of(row: dict[str, Any]) -> tuple[str, str, str]:
        ours = row["subject"] if row["family"] == "irpe" else row["model"]
        patch = f", patches of {row['patch_size']} px" if "patch_size" in row else ""
        size = f"{row['resolution']} px{patch}" if "resolution" in row else f"{row['tokens']} tokens"
        return f"`{ours}`", size, row["baseline"] if row["baseline"] == "timm" else f"`{row['baseline']}`"

    kept = [row for row in rows if row["baseline"] in ("timm", "rpe_learned")]
    for case in dict.fromkeys(map(case_of, kept)):
        mine = {row["work"]: row for row in kept if case_of(row) == case}
        pair = [mine["forward"], mine["training step"]]
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(row["ratio"], *row["interval"]) for row in pair]
        lines.append([*case, *cells])
    return markdown(heads, lines)


def loops(training: Rows, loading: Rows) -> str:
    """Images a second over those of the other's loop or loader, by machine and, of loaders, by workers."""
    kinds = {"small": "500 x 375 px", "large": "4000 x 3000 px", "shards": "tar shards", "table": "Arrow"}
    lines = []
    for row in [*training, *loading]:
        if row["subject"] != "sightline":
            continue
        loader = "part" in row
        work = f"reading `{row['data']}:`, {kinds[row['part']]}" if loader else f"training, `{row['encoding']}`"
        how = f"{row['workers']} workers" if loader else row["dtype"]
        machine = row["hardware"].replace("(R)", "").replace(" Processor", "").split(",")[0]
        ratio = "{:.2f} [{:.2f}, {:.2f}]".format(row["ratio"], *row["interval"])
        lines.append([work, row["baseline"], how, machine, ratio])
    return markdown(["ours", "beside", "with", "machine", "ratio"], lines)


def speed(in_words: Callable[[Rows], str], models: Rows, packs: Rows, predictions: Rows) -> str:
    """Six ratios: how many times faster ours is, on each kind of machine, with the worst first."""

    def of(rows: Rows, **wanted: Any) -> str:
        kept = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
        return in_words([row for row in kept if row["threads"] == 1 and row["device"] == "cpu"])

    base = {"model": "vit_base_patch16", "encoding": "lookhere_90"}
    packed = [row for row in packs if row.get("wanted") is not None]
    lines = [
        ["ViT-B/16 with LookHere, 224 px, forward, float32", "timm's ViT-B/16",
         of(models, **base, baseline="timm", dtype="float32", **{"pass": "forward"})],
        ["the same, training step, bfloat16", "timm's ViT-B/16",
         of(models, **base, baseline="timm", dtype="bfloat16", **{"pass": "training step"})],
        ["ViT-B/16 with LookHere, 1,024 px, forward, float32", "our ViT-B/16 without an encoding",
         of(models, **base, baseline="sdpa_no_bias", dtype="float32", **{"pass": "forward"})],
        ["training step on 64 images of 35 to 240 patches, packed, float32", "the same, padded",
         of(packed, baseline="padded", dtype="float32", images=64)],
        ["the same", "timm's NaFlexViT", of(packed, baseline="timm_naflex", dtype="float32", images=64)],
        ["`sightline predict` of 200 JPEGs, ViT-S/16, float32", "timm's transform, loader and model",
         of(predictions, model="vit_small_patch16", precision="float32")],
    ]  # fmt: skip
    return markdown(["ours", "beside", "speed ratio"], lines)


def gpu(models: Rows, packs: Rows) -> str:
    """Training steps on a GPU over those of others, eager and compiled."""
    found: dict[tuple[str, str, str], dict[bool, str]] = {}
    for row in [*models, *packs]:
        if "model" in row:
            case = f"`{row['model']}`, {row['resolution']:,} px, {row['images']} images"
        else:
            case = f"ViT-S, {row['images']} packed images, {row['padding_factor']:.2f} times as many tokens padded"
        encoding = row.get("encoding", row["subject"])
        ratio = "{:.2f} [{:.2f}, {:.2f}]".format(row["ratio"], *row["interval"])
        found.setdefault((case, row["baseline"], f"`{encoding}`"), {})[row["compiled"]] = ratio
    lines = [[*case, ways.get(False, "not measured"), ways.get(True, "not measured")] for case, ways in found.items()]
    return markdown(["case", "baseline", "encoding", "eager", "compiled"], lines)
