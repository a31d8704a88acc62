"""Models of the papers' families beside what people use now: a forward pass and a training step, in turn.

    python benchmarks/families.py [--families swin hybrid flexi irpe] [--rounds 15] [--quick] [--out OUT]

Each family is a file `families_NAME.py` that yields its cases:

- swin: Swin-T beside timm's, windows of 7, at 224 and 448 px, one set of weights in both;
- hybrid: ResNet stems before a ViT beside timm's, one set of weights in both;
- flexi: FlexiViT, whose kernel is resized to the patches, beside timm's ViT with patches of that size;
- irpe: iRPE beside `rpe_learned`, one bias a displacement, and beside no encoding.

Float32 and fixed batches. In every round each is run once, one after the other. `ratio` is the baseline's time over the
subject's, pair by pair, the median with its 95 % interval: at most 1.05 times timm's time is .952 or more, at most 1.5
times that of `rpe_learned` is .667 or more. With one thread the processor's seconds count. Under 15 minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from families_case import Case
from measure import Parser, clock, counted, interleave, print_table, row

FAMILIES = ("swin", "hybrid", "flexi", "irpe")
_COLUMNS = ("model", "subject", "baseline", "work", "ratio", "interval", "subject_ms", "baseline_ms", "batch")


def measured(family: str, case: Case, rounds: int, device: str) -> Iterator[dict[str, Any]]:
    """A row for each pair of a case."""
    works = case.make(device)
    times = interleave(works, rounds, device, by=clock())
    for subject, baseline in case.pairs:
        yield row("families", subject, baseline, times, {}, device, family=family, **case.about, dtype="float32")


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("families", "three rounds of the first two cases of each family: only to see that it runs")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15, help="timed ones; at least 6 give an interval")
    chosen = parser.begin()
    cases: list[tuple[str, Case]] = []
    for family in chosen.families:
        found: Callable[[], list[Case]] = import_module(f"families_{family}").cases
        cases += [(family, case) for case in found()[: 2 if chosen.quick else None]]
    rows: list[dict[str, Any]] = []
    for (family, case), said in counted(cases):
        print(f"{said} {family}: {case.about}", flush=True)
        rows += measured(family, case, 3 if chosen.quick else chosen.rounds, chosen.device)
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
