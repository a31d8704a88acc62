"""What is published from rows: of each speed its range over all runs, the worst machine first; the demonstration;
segmentation; the comparison.

    python benchmarks/ranges.py [--write README.md] [--write docs/reference/results.md]

Read from the rows in benchmarks/results; `--write` replaces what stands between the markers that a file has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tables

RESULTS = Path(__file__).parent / "results"
BEGIN = "<!-- {}: benchmarks/ranges.py writes what follows -->"
END = "<!-- {}: end -->"

_DTYPES = ("float32", "bfloat16")
_PASSES = {"forward": "forward", "forward+backward": "with backward"}
_BASELINES = {"ready_bias": "over a ready dense bias", "no_bias": "over no bias at all"}
_OF_MODEL = {"sdpa_dense_bias": "over stored biases", "sdpa_no_bias": "over no position encoding"}


def rows(name: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """The rows of one file, none where there is no such file yet."""
    if not (results / f"{name}.jsonl").is_file():
        return []
    return [json.loads(line) for line in (results / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() if line]


def machine(row: dict[str, Any]) -> str:
    """A row's processor in few words: "AMD EPYC", "Intel Xeon (AMX)", "Intel Xeon held to avx2"."""
    name, *features = row["hardware"].replace("(R)", "").removesuffix(" Processor").split(", ")
    held = next((f" held to {one.partition('=')[2]}" for one in features if "=" in one), "")
    amx = any(one.startswith("amx") for one in features) and not held
    return name.replace(" Processor", "") + (" (AMX)" if amx else "") + held


def in_words(found: Sequence[dict[str, Any]], *, wanted: str = "at least") -> str:
    """The range of ratios on each kind of machine, the worst first; "-" where there is none."""
    by_machine: dict[str, list[float]] = {}
    for one in sorted(found, key=lambda one: one["ratio"], reverse=wanted == "at most"):
        by_machine.setdefault(machine(one), []).append(one["ratio"])
    words = []
    for name, ratios in by_machine.items():
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        words.append(f"{low if low == high else f'{low} to {high}'} {name}")
    return "; ".join(words) or "-"


def runs(found: Iterable[dict[str, Any]]) -> str:
    """How many runs the rows are of."""
    return str(len({(one["hardware"], one["commit"], one.get("note")) for one in found}))


def table(attention: Sequence[dict[str, Any]]) -> str:
    """Markdown: one line a size, dtype and pass of a ViT-B's layer with LookHere-90, and for heads of other widths how
    far what is chosen is from the fastest of all forms at worst."""
    kept = [row for row in attention if row["encoding"] == "lookhere_90" and row["threads"] == 1]
    kept = [row for row in kept if row["device"] == "cpu"]
    heads = ["tokens", "", "chosen", "over the fastest of all", *_BASELINES.values(), "error over SDPA's", "runs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in _cases(kept, "head_dim", "tokens", "dtype", "pass"):
        head_dim, tokens, dtype, direction = case
        if head_dim != 64:
            continue
        here = _of(kept, case, "head_dim", "tokens", "dtype", "pass")
        forms = ", ".join(sorted({row["chosen"] for row in here}))
        cells = [in_words([row for row in here if row["baseline"] == one]) for one in _BASELINES]
        error = max(row["errors"][0] for row in here)
        words = f"{dtype}, {_PASSES[direction]} | {forms} | {in_words([row for row in here if row['fastest']])}"
        lines.append(f"| {tokens} | {words} | {' | '.join(cells)} | {error:.2f} | {runs(here)} |")
    worst = [row for row in kept if row["fastest"] and row["head_dim"] != 64]
    if worst:
        one = min(worst, key=lambda row: row["ratio"])
        where = f"{one['tokens']} tokens, {one['dtype']}, {_PASSES[one['pass']]}"
        lines += [
            "",
            f"With heads of {one['head_dim']} over the fastest of all at worst {one['ratio']:.2f} ({where}).",
        ]
    return "\n".join(lines)


def ratios(found: Sequence[dict[str, Any]], *names: str, wanted: str = "at least") -> str:
    """Markdown: one line for what rows of one benchmark differ in by these names, with the interval of the worst run
    and what was wanted of it."""
    kept = [row for row in found if row.get("wanted") is not None and row["threads"] == 1 and row["device"] == "cpu"]
    lines = [f"| {' | '.join(names)} | ratio | of the worst run | wanted | runs |", "|---" * (len(names) + 4) + "|"]
    for case in dict.fromkeys(tuple(row[name] for name in names) for row in kept):
        here = _of(kept, case, *names)
        worst = (min if wanted == "at least" else max)(here, key=lambda row: row["ratio"])
        interval = "{:.2f} to {:.2f}".format(*worst["interval"])
        said = " | ".join(map(str, case))
        lines.append(
            f"| {said} | {in_words(here, wanted=wanted)} | {interval} | {wanted} {worst['wanted']:.3g} | {runs(here)} |"
        )
    return "\n".join(lines)


def models(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: one line a size, dtype and pass of whole models with LookHere-90."""
    kept = [row for row in found if row["subject"] == "auto" and row["encoding"] == "lookhere_90"]
    kept = [row for row in kept if row["baseline"] in _OF_MODEL and row["threads"] == 1 and row["device"] == "cpu"]
    lines = [f"| a whole ViT-B, tokens | | {' | '.join(_OF_MODEL.values())} | runs |", "|---|---|---|---|---|"]
    for case in _cases(kept, "tokens", "dtype", "pass"):
        here = _of(kept, case, "tokens", "dtype", "pass")
        cells = [in_words([row for row in here if row["baseline"] == one]) for one in _OF_MODEL]
        lines.append(f"| {case[0]} | {case[1]}, {_PASSES[case[2]]} | {' | '.join(cells)} | {runs(here)} |")
    return "\n".join(lines)


def _cases(found: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """What rows differ in, float32 before bfloat16."""
    every = {tuple(row[name] for name in names) for row in found}
    return sorted(every, key=lambda case: [_DTYPES.index(one) if one in _DTYPES else one for one in case])


def _of(found: Sequence[dict[str, Any]], case: tuple[Any, ...], *names: str) -> list[dict[str, Any]]:
    return [row for row in found if tuple(row[name] for name in names) == case]


def demonstration(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: one line a run of the demonstration, top-1 in percent with one standard error, by size."""
    kept = [row for row in found if row["metric"] == "top1"]
    sizes = sorted({row["resolution"] for row in kept if row["split"] == "test"})
    heads = [f"**{side} px**" if side == kept[0]["train_resolution"] else f"{side} px" for side in sizes]
    lines = [
        f"| encoding | seed | {' | '.join(heads)} | unseen fonts |",
        "|---|---|" + "---|" * (len(heads) + 1),
    ]
    for name, seed in sorted(
        {(row["run"], row["seed"]) for row in kept}, key=lambda one: (_ORDER.index(one[0]), one[1])
    ):
        mine = [row for row in kept if (row["run"], row["seed"]) == (name, seed)]
        shown = {(row["split"], row["resolution"]): _percent(row) for row in mine}
        cells = [shown[split, side] for split in ("test", "heldout_fonts") for side in sizes if (split, side) in shown]
        lines.append(f"| {name} | {seed} | {' | '.join(cells)} |")
    return "\n".join(lines)


_ORDER = ("lookhere_90", "rope_axial", "learned_1d")


def _percent(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:.1f} ({100 * row['stderr']:.1f})"


def segmentation(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: one line an encoding, with images as they are and shrunk: mean IoU in percent over seeds with half of
    its interval, by data and size."""
    kept = [row for row in found if row["encoding"] in _ORDER]
    places = sorted({(row["data"], row["resolution"]) for row in kept})
    lines = [
        f"| encoding | images | {' | '.join(f'{data}, {side} px' for data, side in places)} |",
        "|---|---|" + "---|" * len(places),
    ]
    for name in _ORDER:
        for shrunk in (None, 32):
            mine = {
                (row["data"], row["resolution"]): row
                for row in kept
                if (row["encoding"], row["shrunk"]) == (name, shrunk)
            }
            cells = [_over_seeds(mine[place]) if place in mine else "" for place in places]
            lines.append(
                f"| {name} | {'as they are' if shrunk is None else f'shrunk to {shrunk} px'} | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def _over_seeds(row: dict[str, Any]) -> str:
    if row["interval"] is None:
        return f"{100 * row['value']:.1f}"
    low, high = row["interval"]
    return f"{100 * row['value']:.1f} ± {50 * (high - low):.1f}"


def comparison(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: one line an encoding, top-1 in percent over seeds with half of its interval, by size, with unseen fonts
    and after the second training; then the order beside the paper's. A sentence where nothing was measured."""
    kept = [row for row in found if (row["kind"], row["metric"]) == ("mean", "top1") and not row["slices"]]
    if not kept:
        return "Not measured yet."
    places = sorted(
        {(row["fine_tuned"], row["split"] != "test", row["resolution"]) for row in kept if row["split"] == "test"
         or not row["fine_tuned"]}
    )  # fmt: skip
    lines = [
        f"| encoding | {' | '.join(_place(*place) for place in places)} |",
        "|---|" + "---|" * len(places),
    ]
    for name in dict.fromkeys(row["encoding"] for row in kept):
        mine = {
            (row["fine_tuned"], row["split"] != "test", row["resolution"]): row
            for row in kept
            if row["encoding"] == name
        }
        lines.append(
            f"| {name} | {' | '.join(_over_seeds(mine[place]) if place in mine else '' for place in places)} |"
        )
    orders = [row for row in found if row["kind"] == "rank"]
    largest = max((row["resolution"] for row in orders), default=0)
    said = [_order(row) for row in orders if row["resolution"] == largest]
    return "\n".join([*lines, *(["", *said] if said else [])])


def _place(fine_tuned: bool, fonts: bool, side: int) -> str:
    return f"{side} px" + (", unseen fonts" if fonts else "") + (", trained on there" if fine_tuned else "")


def _order(row: dict[str, Any]) -> str:
    over = "-" if row["over_seeds"] is None else "{:+.2f} to {:+.2f}".format(*row["over_seeds"])
    among = "-" if row["interval"] is None else "{:+.2f} to {:+.2f}".format(*row["interval"])
    value = "-" if row["value"] is None else f"{row['value']:+.2f}"
    return (
        f"{row['coefficient'].capitalize()}, {len(row['encodings'])} encodings at {row['resolution']} px beside table "
        f"{row['table']} at {row['shown']} px: {value} ({among} with encodings drawn again, {over} with seeds).  "
    ).rstrip()


TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "ranges": (("attention_forms",), table),
    "whole models": (("model",), models),
    "beside timm": (("beside_timm",), lambda found: ratios(found, "model", "baseline", "encoding", "dtype", "pass")),
    "packs": (("packing",), lambda found: ratios(_wanted(found), "baseline", "dtype", "images")),
    "tiny packs": (("tiny_packs",), lambda found: ratios(found, "encoding", "dtype", wanted="at most")),
    "predict": (("predict",), lambda found: ratios(found, "model", "precision")),
    "onnx": (("onnx_time",), lambda found: ratios(found, "model", "batch", "shape")),
    "demonstration": (("demo",), demonstration),
    "segmentation": (("search_curves",), segmentation),
    "comparison": (("compare",), comparison),
    "demonstration in brief": (("demo",), tables.demonstration_in_brief),
    "segmentation in brief": (("search_curves",), tables.segmentation_in_brief),
    "speed": (("beside_timm", "packing", "predict"), lambda *found: tables.speed(in_words, *found)),
    "gpu": (("gpu_models", "gpu_packed"), tables.gpu),
    "loops": (("training", "loading"), tables.loops),
    "navit": (("navit",), tables.navit),
    "words": (("words",), tables.words),
    "swin": (("swin_embedded",), tables.swin),
    "video": (("video_4000", "video"), tables.video),
    "flexi": (("flexi_scenes",), tables.flexi),
    "dense heads": (("dense_scenes",), tables.dense_heads),
    "families": (("families",), tables.families),
}
"""Each table by its name: the files of rows that it is made from, and how."""


def _wanted(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if "wanted" in row]


def block(name: str) -> str:
    """What stands between the pair of markers of that name."""
    files, make = TABLES[name]
    return make(*(rows(file) for file in files))


def between(text: str, name: str) -> str:
    """What a text says between the markers of a name.

    Raises:
        ValueError: it has not each of them once.
    """
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"expected {begin} and {end} once each")
    return text.partition(begin)[2].partition(end)[0].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, action="append", default=[], help="a file with markers")
    chosen = parser.parse_args()
    for name in TABLES:
        fresh = block(name)
        print(fresh, end="\n\n")
        for place in chosen.write:
            text = place.read_text(encoding="utf-8")
            if BEGIN.format(name) not in text and any(BEGIN.format(other) in text for other in TABLES):
                # What stands in another file.
                continue
            try:
                before = between(text, name)
            except ValueError as error:
                print(f"sightline: error: --write {place}: {error}", file=sys.stderr)
                raise SystemExit(2) from None
            begin, end = BEGIN.format(name), END.format(name)
            if before != fresh:
                head, tail = text.split(begin)[0] + begin, end + text.split(end)[1]
                place.write_text(f"{head}\n\n{fresh}\n\n{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
