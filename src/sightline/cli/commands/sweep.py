"""`sightline sweep`."""

from __future__ import annotations

from pathlib import Path

from sightline.cli.options import Device, Json, Threads


def sweep(file: Path, /, *, device: Device = "auto", threads: Threads = None, json: Json = False) -> None:
    """Train every cell of a grid once, or search (TPE), and print best and average for each encoding.

    More workers join by the same command, on this machine or on others, and each takes one cell after the other. Where
    others run the last ones it waits, and takes over those of workers that are gone. Ctrl-C and SIGTERM save the cell
    and give it back; what is finished is never run again. Exit code 7: cells failed twice, and are named.

    Args:
        file: A SWEEP.yaml (docs/SWEEPS.md): base, grid or search and trials, out, storage, metric, evaluate.
    """
    import contextlib
    import sys

    from sightline.cli import next_step
    from sightline.cli.progress import Bars
    from sightline.cli.sweep_cells import Cells
    from sightline.cli.sweep_file import read_sweep
    from sightline.cli.sweep_table import dump_lines, print_best_and_average
    from sightline.distributed import machine, signals
    from sightline.errors import SweepError
    from sightline.io.run_files import CELLS
    from sightline.sweeps.queue import Claim, State, require_optuna
    from sightline.sweeps.scores import best_and_average, scored_from
    from sightline.sweeps.worker import run_worker

    require_optuna()
    asked = read_sweep(file)
    machine.set_threads(threads)
    cells = Cells(asked, device, machine.resolve_device(device))
    cells.check()
    rest = [*(("--threads", threads) if threads else ()), *(("--device", device) if device != "auto" else ())]
    count = asked.config.count
    with signals.resume_hint(next_step.again("sweep", file, *rest)), contextlib.ExitStack() as waiting:
        queue = asked.queue()
        with queue.working():
            asked.keep()

            bars: Bars | None = None

            def observe(at: State, claim: Claim | None) -> None:
                nonlocal bars
                done = len(at.scores) + len(at.failed)
                if claim is not None:
                    # The cell has bars of its own, and a terminal shows those of one.
                    waiting.close()
                    bars = None
                    again = ", goes on" if claim.again else ""
                    print(f"cell {claim.cell.name} ({done} of {count} done{again})", file=sys.stderr, flush=True)
                elif not at.done:
                    others = ", ".join(f"{at.cells[number].name if number in at.cells else number} by {who}"
                                       for number, who in at.running.items())  # fmt: skip
                    bars = bars or waiting.enter_context(Bars())
                    bars.move("waiting for others", done, count, others)

            state = run_worker(queue, cells.run, observe=observe, warn=next_step.warn)
    scored = [scored_from(state.scores[number]) for number in sorted(state.scores)]
    if scored:
        lines = best_and_average(scored)
        if json:
            print(dump_lines(lines, "encoding"), end="", flush=True)
        else:
            print_best_and_average(lines, "encoding", asked.wanted)
            print(f"runs: {asked.out / 'cells'}", flush=True)
    if state.failed:
        named = "; ".join(
            f"{state.cells[number].name if number in state.cells else number}: {fault}"
            for number, fault in sorted(state.failed.items())
        )
        raise SweepError(f"{file}: {len(state.failed)} of {count} cells failed: {named}")
    if not json:
        # The table by encoding stands above.
        varied = asked.config.several
        rest = [name for name in varied if name != "encoding" and all(name in one.settings for one in scored)]
        if rest:
            next_step.say_next("table", asked.out, "--by", rest[0])
        else:
            sign = -1 if scored[0].measured.better == "lower" else 1
            best = max(scored, key=lambda one: sign * one.measured.value)
            next_step.say_next("evaluate", asked.out / CELLS / best.run)
