"""`sightline cascade`."""

from __future__ import annotations

from sightline.runs import options


def cascade(
    model: options.AnyModel,
    data: options.DataToMeasure = None,
    *,
    asked: options.CascadeOptions | None = None,
    opening: options.OpenOptions | None = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Measure accuracy against tokens and time, for single budgets and for a cascade of two.

    Each image is resized, up or down with its aspect ratio kept, to at most a number of patches. A cascade shows every
    image with few patches, and the least certain ones again with many. The threshold is chosen on minival (or the other
    half of the split), not on the images that are measured. Writes cascade.jsonl, cascade.svg, calibration.svg and
    cascade.html.
    """
    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.reports import cascade_page
    from sightline.results.rows import dump_rows
    from sightline.runs import Run

    machine.set_threads(threads)
    run = Run.open(str(model), data, device=device, options=opening)
    with progress.Bars() as bars:
        found = run.cascade(asked, progress=bars)
    if json:
        print(dump_rows(found.rows), end="")
        return
    cascade_page.print_rows(found.rows)
    print(f"computed in {found.precision}")
    print(f"rows, figures, page: {found.path}")
    if not run.is_timm:
        next_step.say_report(run)
