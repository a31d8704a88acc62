"""`sightline transfer`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from sightline.runs import options
from sightline.runs.training_options import TransferOptions

Sets = Annotated[
    str,
    Parameter(
        help="Data sets with classes and the splits train and test. vtab:DIR is every task of VTAB-1k in DIR.",
        converter=options.recognised,
    ),
]


def transfer(
    model: options.AnyModel,
    /,
    *data: Sets,
    out: Path = Path("runs/transfer"),
    asked: TransferOptions | None = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Fine-tune a model to data sets by ViT's protocol: search the learning rate, train, test.

    SGD with momentum .9, cosine schedule, no weight decay, a new head with zero weights (ViT, appendix B.1.1, table 4).
    The rate is chosen on a held-out part of train; the final trainings use all of it. Each run belongs to a sweep in
    --out: after an interruption the same command continues, and several processes share the work. VTAB-1k has one
    setting, and no grid.

    Args:
        out: Folder of the runs of one model, and of transfer.jsonl.
    """
    import sys

    from sightline.cli import next_step, run_config
    from sightline.cli.sweep_watch import SweepWatch
    from sightline.distributed import machine, signals
    from sightline.io.run_files import PAGE
    from sightline.recipes.transfer import TransferData
    from sightline.reports.transfer_page import print_transfer
    from sightline.results.rows import dump_rows
    from sightline.runs import console
    from sightline.runs.transfer import transfer as run_transfer

    machine.set_threads(threads)
    asked = asked or TransferOptions()

    def begin(sets: list[TransferData], missing: list[str]) -> None:
        if missing:
            console.warn(f"left out of VTAB-1k, as their lists are not there: {', '.join(missing)}")

    @contextlib.contextmanager
    def watch(name: str, count: int) -> Iterator[dict[str, Any]]:
        print(f"{name}: {count} training{'s' * (count > 1)}", file=sys.stderr, flush=True)
        with SweepWatch(count) as bars:
            yield {name: getattr(bars, name) for name in ("observe", "on_set_up", "on_step", "progress")}

    words = ("transfer", model, *data, *console.option_words(asked), "--out", out)
    with signals.resume_hint(run_config.again(*words, device=device, threads=threads)):
        found = run_transfer(model, data, out, asked, device=device, begin=begin, watch=watch)
    if json:
        print(dump_rows(found.rows), end="")
        return
    print_transfer(found.rows)
    print(f"rows: {found.path}")
    next_step.say_next("report", out, "--out", out / PAGE)
