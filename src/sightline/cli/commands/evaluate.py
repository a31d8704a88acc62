"""`sightline evaluate`."""

from __future__ import annotations

from sightline.runs import options


def evaluate(
    model: options.AnyModel,
    *,
    data: options.DataToMeasure = None,
    asked: options.EvaluateOptions | None = None,
    opening: options.OpenOptions | None = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Measure a model at many image sizes: accuracy, calibration, likelihood, or the metrics of its task.

    Writes rows to results.jsonl and predictions to predictions.csv, in the folder of the run or in --out. Rows measured
    again are replaced. After an interruption the same command continues. Several processes (torchrun) share the images.
    """
    import shlex
    from pathlib import Path

    from sightline.cli import next_step, progress
    from sightline.cli.show import print_by_data
    from sightline.distributed import machine
    from sightline.distributed.ranks import init_ranks
    from sightline.reports.seen import training_sizes
    from sightline.results.rows import dump_rows
    from sightline.runs import Run, console
    from sightline.runs.evaluate import refuse_options

    machine.set_threads(threads)
    asked = asked or options.EvaluateOptions()
    refuse_options(model, asked, data=data, patch_size=opening.patch_size if opening else None)
    with init_ranks(device) as ranks, progress.Bars() as bars:
        run = Run.open(str(model), data, device=device, options=opening, ranks=ranks)
        found = run.evaluate(asked, progress=bars)
    if not ranks.is_main:
        return
    if json:
        print(dump_rows(found.rows), end="")
        return
    seen = training_sizes(run.config, run.model.config.patch_size, run.side)
    print_by_data(found.rows, {found.rows[0].run: seen})
    print(f"rows: {found.path}")
    if found.predictions is not None and found.predictions.exists():
        print(f"predictions: {found.predictions}")
    if found.logits is not None:
        print(f"logits: {found.logits} (sightline rescore {shlex.quote(str(found.logits))})")
    print(f"computed in {found.precision}")
    if run.is_timm:
        about = *console.option_words(run.opening), *(("--data", run.data) if run.data else ())
        next_step.say_next("analyse", run.path, *about, "--out", next_step.free(Path("analysis")))
    elif asked.out is None or not run.config:
        next_step.say_report(run)
