"""`sightline sweep`."""

from __future__ import annotations

from pathlib import Path

from sightline.runs.options import Device, Json, Threads


def sweep(file: Path, /, *, device: Device = "auto", threads: Threads = None, json: Json = False) -> None:
    """Train every configuration of a grid or a search, and print best and average for each encoding.

    Start the same command again, on this machine or others, to add workers; each trains one configuration after the
    other. A worker without work waits for the others, and takes over from workers that stopped. Ctrl-C and SIGTERM save
    the run and return it to the queue; finished ones are never run again. Exit code 7: some failed twice, and are
    named. Searches use TPE.

    Args:
        file: A SWEEP.yaml (docs/how-to/sweeps.md) with the keys base, grid or search and trials, out, storage, metric,
            evaluate.
    """
    from sightline.cli import run_config
    from sightline.cli.sweep_table import print_sweep
    from sightline.cli.sweep_watch import SweepWatch
    from sightline.distributed import machine, signals
    from sightline.errors import SweepError
    from sightline.runs import console, outputs
    from sightline.sweeps.run import read_sweep
    from sightline.sweeps.run import sweep as run_sweep
    from sightline.training.config import TrainConfig

    machine.set_threads(threads)
    asked = read_sweep(file)
    count, tested = asked.config.count, asked.config.evaluate
    if tested is not None and tested.split == "test" and asked.config.varied.keys() - {"encoding", "seed"}:
        console.warn(
            "cells are compared on test images, so the best one's score is too good; "
            "to choose on held-out training images: data: DATA,minival=0.1, without evaluate"
        )

    def refuse(wanted: TrainConfig) -> None:
        read = outputs.Inputs(models=[wanted.init_from], data=[wanted.data], files=[file])
        outputs.guard_folder(asked.out, read, "out", deletes=False)

    way_on = run_config.again("sweep", file, device=device, threads=threads)
    with signals.resume_hint(way_on), SweepWatch(count) as watch:
        found = run_sweep(
            file, device=device, refuse=refuse, observe=watch.observe, on_set_up=watch.on_set_up,
            on_step=watch.on_step, progress=watch.progress, warn=console.warn,
        )  # fmt: skip
    print_sweep(found, as_json=json)
    if failed := found.state.failed:
        named = "; ".join(f"{found.state.name(number)}: {fault}" for number, fault in sorted(failed.items()))
        raise SweepError(f"{file}: {len(failed)} of {count} cells failed: {named}")
