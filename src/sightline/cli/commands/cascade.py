"""`sightline cascade`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sightline.cli.data_options import MaxPixels, SkipUnreadable
from sightline.errors import InputError

if TYPE_CHECKING:
    from sightline.evaluation.cascade import CascadeConfig

# Patches over those of the training size; the sides are 1/2, 3/4, 1, 5/4, 3/2 and 2 times as long.
_FACTORS = (0.25, 0.5625, 1.0, 1.5625, 2.25, 4.0)
_WRITTEN = ("cascade.jsonl", "cascade.svg", "calibration.svg", "cascade.html")
_Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]


def cascade(
    model: Path,
    data: str | None = None,
    *,
    tokens: _Words = (),
    pair: _Words = (),
    alphas: _Words = (),
    budget: float | None = None,
    split: str | None = None,
    images: int | None = None,
    aspect: Literal["native", "square"] = "native",
    skip_unreadable: SkipUnreadable = None,
    max_pixels: MaxPixels = None,
    precision: str = "auto",
    out: Path = Path("cascade"),
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 0,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure accuracy against tokens and time: budgets alone, and a cascade of two.

    Each image is resized, up or down with its aspect kept, to at most so many patches. A cascade shows every image
    with few, and those that the model is least sure of again with many; what counts as unsure is found on minival (or
    the other half of the split), not on the images that are measured. Writes cascade.jsonl, cascade.svg,
    calibration.svg and cascade.html.

    Parameters
    ----------
    model
        The folder of a run or of a model.
    data
        The data set; the one that it was trained on unless given.
    tokens
        Most patches of an image, as 16,36,64; a quarter to four times those of the training size unless given.
    pair
        Patches of the first and second look, as 16,64; the best pair on held-out images unless given.
    alphas
        Fractions that are seen again, as 0.1,0.3.
    budget
        Mean patches of an image, for which the largest alpha that stays within them is found on held-out images.
    split
        Of the data; test unless given.
    images
        At most this many of a split; 2000 of an embedded one unless given.
    aspect
        native keeps each image's own, square cuts its longer side.
    precision
        auto, float32 or bfloat16.
    out
        A folder for the files.
    overwrite
        Replace those that exist.
    device
        auto, cpu, cuda, cuda:1, mps.
    threads
        Processor threads; all cores unless given.
    workers
        Processes that read images ahead; with any, the times are of a busy machine.
    seed
        Of the bootstrap.
    json
        Print the rows as JSON lines instead of tables.
    """
    from sightline import runtime
    from sightline.analysis.memory import refuse_patches_that_cannot_fit
    from sightline.cli.data_options import data_options, open_data, read_headers
    from sightline.cli.guard import Inputs
    from sightline.cli.next_step import run_of, say_next, say_predict_or_export, to_compare, writing
    from sightline.cli.output import LeftOut, claim_file, write_text
    from sightline.cli.progress import Bars
    from sightline.evaluation.accuracy import RunIdentity, labels_of, usual_images
    from sightline.evaluation.answer import TOKENS_A_PACK
    from sightline.evaluation.cascade import (
        ALPHAS,
        CascadeConfig,
        cascade_rows,
        measure,
        planned_looks,
        planned_tokens,
    )
    from sightline.load import load_model, read_record
    from sightline.reports import cascade_page, cascade_plot, style
    from sightline.reports.seen import seen_sizes
    from sightline.results import dump_rows

    training = read_record(model)["training"]
    trained = training.get("config", {})
    options = data_options(skip_unreadable, max_pixels, trained)
    spec = data or trained.get("data")
    if not isinstance(spec, str):
        raise InputError(f"{model}: does not say what it was trained on; give its data")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file, expected a folder")
    for name in _WRITTEN:
        claim_file(out / name, inputs=Inputs(models=[model], data=[spec]), overwrite=overwrite)
    runtime.set_threads(threads)
    where = runtime.resolve_device(device)
    loaded = load_model(model).to(where)
    side = trained.get("resolution") or loaded.config.image_size
    side = side if isinstance(side, int) else min(side)
    source = open_data(spec, options)
    labels = labels_of(loaded, source, spec)
    usual = loaded.config.grid_of(side).cells
    config = CascadeConfig(
        _whole_numbers("--tokens", tokens) or tuple(max(round(usual * factor), 1) for factor in _FACTORS),
        pair=_pair(pair),
        alphas=_fractions(alphas) or ALPHAS,
        budget=budget,
        split=split or ("test" if "test" in source.splits else source.splits[-1]),
        images=usual_images(source) if images is None else images,
        aspect=aspect,
        precision=precision,
        workers=workers,
        seed=seed,
    )
    # All that can be refused is refused before the first image is read; the plan refuses splits.
    looks = planned_looks(source, config)
    most = max(config.measured)
    batch = max(TOKENS_A_PACK // most, 1)
    refuse_patches_that_cannot_fit(
        loaded.config, most, asked=f"tokens {most}", what=str(model), batch=batch, device=where
    )
    with Bars() as bars:
        source = read_headers(source, (look.split for look in looks), options, bars)
        left_out = LeftOut()
        left_out.say(source)
        total, done = planned_tokens(planned_looks(source, config)), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bars.move("tokens", done, total)

        result = measure(loaded, source, config, labels, advance=advance)
        left_out.say(source)
    place = model.resolve()
    name = place.parent.name if place.name == "checkpoint" else place.name
    identity = RunIdentity(name, spec, side, trained.get("seed", 0))
    rows = cascade_rows(result, loaded, source, config, identity)
    text = dump_rows(rows)
    command = _command(model, spec, config, out)
    chance, seen = 1 / loaded.num_classes, seen_sizes(trained, loaded.config.patch_size) if trained else None
    page = cascade_page.render(rows, command, seen=seen, chance=chance)
    write_text(out / "cascade.jsonl", text)
    write_text(out / "cascade.svg", style.standalone(cascade_plot.accuracy_by_cost(rows)))
    write_text(out / "calibration.svg", style.standalone(cascade_plot.calibration_by_tokens(rows)))
    write_text(out / "cascade.html", page)
    if json:
        print(text, end="")
        return
    cascade_page.print_rows(rows, chance=chance)
    print(f"computed in {result.precision}")
    print(f"rows, figures, page: {out}")
    run = run_of(model)
    if training and (run / "results.jsonl").exists():
        say_next("report", *to_compare(run), *writing("--out", run / "report.html"))
    else:
        say_predict_or_export(model)


def _words(given: Iterable[str]) -> list[str]:
    return [word for part in given for word in re.split(r"[,\s]+", part) if word]


def _whole_numbers(option: str, given: Iterable[str]) -> tuple[int, ...]:
    words = _words(given)
    for word in words:
        if not re.fullmatch(r"[0-9]{1,9}", word):
            raise InputError(f"{option} {word}: expected whole numbers of patches, as 16,36,64")
    return tuple(map(int, words))


def _pair(given: Iterable[str]) -> tuple[int, int] | None:
    numbers = _whole_numbers("--pair", given)
    if numbers and len(numbers) != 2:
        raise InputError(f"--pair {','.join(map(str, numbers))}: expected two numbers of patches, as 16,64")
    return (numbers[0], numbers[1]) if numbers else None


def _fractions(given: Iterable[str]) -> tuple[float, ...]:
    fractions = []
    for word in _words(given):
        try:
            fractions.append(float(word))
        except ValueError:
            raise InputError(f"--alphas {word}: expected fractions from 0 to 1, as 0.1,0.3") from None
    return tuple(fractions)


def _command(model: Path, data: str, config: CascadeConfig, out: Path) -> str:
    """A line that measures the same again."""
    import shlex

    words = ["sightline", "cascade", str(model), data, "--tokens", ",".join(map(str, config.budgets))]
    if config.pair is not None:
        words += ["--pair", ",".join(map(str, config.pair))]
    words += ["--alphas", ",".join(f"{alpha:g}" for alpha in config.alphas)]
    if config.budget is not None:
        words += ["--budget", f"{config.budget:g}"]
    words += ["--split", config.split, "--aspect", config.aspect, "--seed", str(config.seed)]
    if config.images is not None:
        words += ["--images", str(config.images)]
    return shlex.join([*words, "--out", str(out)])
