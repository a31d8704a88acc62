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
    """Measure a model at a list of resolutions: top-1, top-5, by group and by size.

    Adds rows to results.jsonl and what was said of each image to predictions.csv in the folder of the run (what is
    measured again is replaced), or writes --out and --predictions. Stopped or killed, the same command goes on where it
    was; several processes (torchrun) share the images.
    """
    import shlex

    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.distributed.ranks import init_ranks
    from sightline.errors import InputError
    from sightline.reports.results_tables import print_accuracy
    from sightline.reports.seen import seen_sizes
    from sightline.results.rows import dump_rows
    from sightline.runs import Run
    from sightline.runs import evaluate as on_data
    from sightline.runs import suite as on_suite

    machine.set_threads(threads)
    asked = asked or options.EvaluateOptions()
    if asked.suite is not None:
        on_suite.refuse_options(asked, data)
    else:
        on_data.refuse_options(asked, opening.patch_size if opening else None)
    if asked.suite is None and str(model).startswith("timm:") and asked.out is None:
        raise InputError(f"{model}: is no folder here, where rows could be kept; give --out FILE for them")
    with init_ranks(device) as ranks, progress.Bars() as bars:
        run = Run.open(str(model), asked.suite or data, device=device, options=opening, ranks=ranks)
        found = run.evaluate(asked, progress=bars)
    if not ranks.is_main:
        return
    if json:
        print(dump_rows(found.rows), end="")
        return
    seen = {found.rows[0].run: seen_sizes(run.config, run.model.config.patch_size)} if run.config else None
    for measured_on in dict.fromkeys(row.data for row in found.rows):
        if asked.suite is not None:
            print(f"\n{measured_on}:")
        print_accuracy([row for row in found.rows if row.data == measured_on], seen=seen)
    print(f"rows: {found.path}")
    if found.predictions is not None and found.predictions.exists():
        print(f"predictions: {found.predictions}")
    if found.logits is not None:
        print(f"logits: {found.logits} (sightline rescore {shlex.quote(str(found.logits))})")
    prepared = f", images prepared as {asked.preparation or 'model'} says" if asked.suite is not None else ""
    print(f"computed in {found.precision}{prepared}")
    if not run.is_timm and asked.suite is None:
        next_step.say_after_evaluation(run, data, [row.view for row in found.rows])
