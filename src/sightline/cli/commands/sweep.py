"""`sightline sweep`."""

from __future__ import annotations

from pathlib import Path

from sightline.runs.options import Device, Json, Threads


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

    from sightline.cli import next_step, run_config
    from sightline.cli.progress import Bars
    from sightline.cli.sweep_table import dump_lines, print_best_and_average
    from sightline.distributed import machine, signals
    from sightline.errors import SweepError
    from sightline.io.run_files import CELLS
    from sightline.recipes.config import TrainingData
    from sightline.runs import console, outputs
    from sightline.sweeps.queue import Claim, State, require_optuna
    from sightline.sweeps.run import read_sweep
    from sightline.sweeps.run import sweep as run_sweep
    from sightline.sweeps.scores import best_and_average
    from sightline.training.config import TrainConfig
    from sightline.training.loop import TrainProgress
    from sightline.training.setup import TrainSetup

    require_optuna()
    machine.set_threads(threads)
    asked = read_sweep(file)
    count, rest = asked.config.count, [*(("--threads", threads) if threads else ())]
    rest += ["--device", device] if device != "auto" else []
    with signals.resume_hint(console.command_line("sweep", file, *rest)), contextlib.ExitStack() as shown:
        bars, waits = shown.enter_context(Bars(late=0.5)), False

        def observe(at: State, claim: Claim | None) -> None:
            nonlocal bars, waits
            done = len(at.scores) + len(at.failed)
            if claim is not None or not (waits or at.done):
                # Each cell has bars of its own, and a terminal shows those of one.
                shown.close()
                bars, waits = shown.enter_context(Bars()), claim is None
            if claim is not None:
                again = ", goes on" if claim.again else ""
                print(f"cell {claim.cell.name} ({done} of {count} done{again})", file=sys.stderr, flush=True)
            elif not at.done:
                others = ", ".join(f"{at.name(number)} by {who}" for number, who in at.running.items())
                bars.move("waiting for others", done, count, others)

        begun: list[TrainSetup] = []

        def on_set_up(wanted: TrainConfig, data: TrainingData, setup: TrainSetup) -> None:
            # What could not be read of the cell before, while it was trained.
            for before in begun:
                bars.say_left_out(before.source)
            begun[:] = [setup]
            run_config.say_set_up(wanted, data, setup, bars)

        def on_step(at: TrainProgress) -> None:
            bars.move("training", at.images, at.total, *run_config.progress_notes(at))

        def refuse(wanted: TrainConfig) -> None:
            read = outputs.Inputs(models=[wanted.init_from], data=[wanted.data], files=[file])
            outputs.guard_folder(asked.out, read, "out", deletes=False)

        found = run_sweep(
            file, device=device, refuse=refuse, observe=observe, on_set_up=on_set_up, on_step=on_step,
            progress=lambda name, done, total: bars.move(name, done, total), warn=console.warn,
        )  # fmt: skip
        for last in begun:
            bars.say_left_out(last.source)
    scores, state = found.scores, found.state
    if scores:
        lines = best_and_average(scores)
        if json:
            print(dump_lines(lines, "encoding"), end="", flush=True)
        else:
            print_best_and_average(lines, "encoding", asked.wanted)
            print(f"runs: {asked.out / CELLS}", flush=True)
    if state.failed:
        named = "; ".join(f"{state.name(number)}: {fault}" for number, fault in sorted(state.failed.items()))
        raise SweepError(f"{file}: {len(state.failed)} of {count} cells failed: {named}")
    if not json:
        # The table by encoding stands above.
        others = [
            name for name in asked.config.several if name != "encoding" and all(name in one.settings for one in scores)
        ]
        if others:
            next_step.say_next("table", asked.out, "--by", others[0])
        else:
            sign = -1 if scores[0].measured.better == "lower" else 1
            best = max(scores, key=lambda one: sign * one.measured.value)
            next_step.say_next("evaluate", asked.out / CELLS / best.run)
