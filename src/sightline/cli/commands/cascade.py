"""`sightline cascade`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

from sightline.cli import options
from sightline.errors import InputError

# Patches over those of the training size; the sides are 1/2, 3/4, 1, 5/4, 3/2 and 2 times as long.
_FACTORS = (0.25, 0.5625, 1.0, 1.5625, 2.25, 4.0)
# Beside the rows.
_DRAWN = ("cascade.svg", "calibration.svg", "cascade.html")


def cascade(
    model: options.RunOrModel,
    data: options.DataToMeasure = None,
    *,
    tokens: options.Words = (),
    pair: options.Words = (),
    alphas: options.Words = (),
    budget: float | None = None,
    split: str | None = None,
    images: options.MostImages = None,
    aspect: Literal["native", "square"] = "native",
    skip_unreadable: options.SkipAsTrained = None,
    max_pixels: options.MaxPixels = None,
    precision: options.Precision = "auto",
    out: Path = Path("cascade"),
    overwrite: bool = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: int = 0,
    seed: int = 0,
    json: options.Json = False,
) -> None:
    """Measure accuracy against tokens and time: budgets alone, and a cascade of two.

    Each image is resized, up or down with its aspect kept, to at most so many patches. A cascade shows every image
    with few, and those that the model is least sure of again with many; what counts as unsure is found on minival (or
    the other half of the split), not on the images that are measured. Writes cascade.jsonl, cascade.svg,
    calibration.svg and cascade.html.

    Args:
        tokens: Most patches of an image, as 16,36,64; a quarter to four times those of the training size unless given.
        pair: Patches of the first and second look, as 16,64; the best pair on held-out images unless given.
        alphas: Fractions that are seen again, as 0.1,0.3.
        budget: Mean patches of an image, for which the largest alpha that stays within them is found on held-out
            images.
        split: Of the data; test unless given.
        aspect: native keeps each image's own, square cuts its longer side.
        out: A folder for the files.
        overwrite: Replace those that exist.
        workers: Processes that read images ahead; with any, the times are of a busy machine.
        seed: Of the bootstrap.
    """
    from sightline.cli import guard, next_step, output, progress
    from sightline.cli.resolutions import parse_numbers
    from sightline.distributed import machine
    from sightline.evaluation import cascade as cascades
    from sightline.evaluation.measure import default_image_count
    from sightline.io.atomic import write_out
    from sightline.reports import cascade_page, cascade_plot, style
    from sightline.reports.seen import seen_sizes
    from sightline.results.cascade import CASCADE
    from sightline.results.rows import dump_rows
    from sightline.tasks.base import task_of
    from sightline.training.run import open_run

    machine.set_threads(threads)
    where = machine.resolve_device(device)
    run = open_run(model, data, device=where, skip_unreadable=skip_unreadable, max_pixels=max_pixels)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file, expected a folder")
    for name in (CASCADE, *_DRAWN):
        output.claim_file(out / name, inputs=guard.Inputs(models=[model], data=[run.data]), overwrite=overwrite)
    task_of(run.model).bind(run.source, run.data)
    usual = run.model.config.grid_of(run.side).cells
    splits = run.source.splits
    looked = parse_numbers("--pair", pair, int, "whole numbers of patches, as 16,64")
    if looked and len(looked) != 2:
        raise InputError(f"--pair {','.join(map(str, looked))}: expected two numbers of patches, as 16,64")
    config = cascades.CascadeConfig(
        parse_numbers("--tokens", tokens, int, "whole numbers of patches, as 16,36,64")
        or tuple(max(round(usual * factor), 1) for factor in _FACTORS),
        pair=(looked[0], looked[1]) if looked else None,
        alphas=parse_numbers("--alphas", alphas, float, "fractions from 0 to 1, as 0.1,0.3") or cascades.ALPHAS,
        budget=budget,
        split=split or ("test" if "test" in splits else splits[-1]),
        images=default_image_count(run.source) if images is None else images,
        aspect=aspect,
        precision=cast("Any", precision),
        workers=workers,
        seed=seed,
    )
    # All that can be refused is refused before the first image is read; the plan refuses splits.
    looks = cascades.planned_looks(run.source, config)
    with progress.Bars() as bars:
        source = bars.read_headers(run.source, (look.split for look in looks), run.skip_unreadable)
        advance = bars.counter("tokens", cascades.planned_tokens(cascades.planned_looks(source, config)))
        result = cascades.measure(run.model, source, config, run.data, advance=advance)
        bars.say_left_out(source)
    rows = cascades.cascade_rows(result, run.model, source, config, run.identity)
    text = dump_rows(rows)
    seen = seen_sizes(run.config, run.model.config.patch_size) if run.config else None
    # A line that measures the same again.
    values = {
        "tokens": ",".join(map(str, config.budgets)),
        "pair": None if config.pair is None else ",".join(map(str, config.pair)),
        "alphas": ",".join(f"{alpha:g}" for alpha in config.alphas),
        "budget": None if config.budget is None else f"{config.budget:g}",
        "split": config.split,
        "aspect": config.aspect,
        "seed": config.seed,
        "images": config.images,
        "out": out,
    }
    given = [word for name, value in values.items() if value is not None for word in (f"--{name}", value)]
    command = next_step.again("cascade", run.path, run.data, *given)
    page = cascade_page.render(rows, command, seen=seen)
    figures = (cascade_plot.accuracy_by_cost(rows), cascade_plot.calibration_by_tokens(rows))
    for name, content in zip((CASCADE, *_DRAWN), (text, *map(style.standalone, figures), page), strict=True):
        write_out(out / name, content)
    if json:
        print(text, end="")
        return
    cascade_page.print_rows(rows)
    print(f"computed in {result.precision}")
    print(f"rows, figures, page: {out}")
    next_step.say_report(run)
