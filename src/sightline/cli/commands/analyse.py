"""`sightline analyse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.cli import options


def analyse(
    *models: Annotated[
        Path, Parameter(help="Folders of runs or models, hf-hub:OWNER/NAME, local-dir:DIR, or timm:NAME; several.")
    ],
    data: Annotated[options.AnyData, Parameter(help="The data set; the embedded scenes unless given.")] = None,
    split: str | None = None,
    resolutions: options.Words = (),
    patch_size: options.PatchSize = None,
    images: int | None = None,
    measures: options.Words = (),
    settings: options.Settings = (),
    skip_unreadable: options.SkipAsTrained = None,
    max_pixels: options.MaxPixels = None,
    out: Path | None = None,
    overwrite: bool = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: int = 0,
    no_pretrained: bool = False,
    num_classes: int | None = None,
    weights: Path | None = None,
    json: options.Json = False,
) -> None:
    """Look inside models: how far heads look, how they differ, and what layers know, at every size.

    Writes a folder: the arrays of each model and measure (.npz), analysis.jsonl (a number for each layer and size, with
    its interval over images), figures (SVG) and analysis.html, a page that overlays the models. CKA is also taken of
    each two of the first four models. Of one run the folder is the run's own (RUN/analysis), and sightline report shows
    its curves.

    Args:
        data: Images are drawn, or resized, at each size; the embedded scenes that a model was trained on unless given,
            where all were trained on the same ones, else scenes (glyphs).
        split: Of the data; test unless given.
        resolutions: Sides in pixels, HEIGHTxWIDTH, or native (each image at its own, with at most 1024 patches), as
            32,64,96x192; the size of the model and twice that unless given.
        images: How many of the split; unless given what takes about a minute of one core, from 4 to 32.
        measures: As attention_distance,entropy; all that fit the models and the data unless given, but for those that
            take many passes or give very large arrays.
        settings: MEASURE.OPTION=VALUE, an option of a measure, as attention_maps.query=[0.25,0.75] (docs/ANALYSIS.md).
        out: The folder; RUN/analysis of one run, else analysis, unless given.
        overwrite: Replace it if it exists.
        workers: Processes that read images ahead.
        no_pretrained: With random weights instead of those that timm:NAME has published.
        num_classes: Of the head of timm:NAME.
        weights: A file with the state dict of timm:NAME.
    """
    from sightline.cli import next_step
    from sightline.cli.analyse_run import Analysing, carry_out, default_out
    from sightline.cli.resolutions import split_words
    from sightline.distributed import machine
    from sightline.errors import InputError
    from sightline.io.run_files import INSIDE, PAGE, RESULTS
    from sightline.reports.analysis_tables import print_layers
    from sightline.results.rows import dump_rows

    machine.set_threads(threads)
    if patch_size is not None and out is None:
        raise InputError("--patch-size: what is found is not of the model's own patches; give --out DIR for it")
    out = default_out(models) if out is None else out
    timms = {"--no-pretrained": no_pretrained, "--num-classes": num_classes, "--weights": weights}
    given = {
        "--data": data, "--split": split, "--resolutions": ",".join(split_words(resolutions)) or None,
        "--images": images, "--measures": ",".join(split_words(measures)) or None,
        "--patch-size": patch_size,
        **{name: one for name, one in timms.items() if not isinstance(one, bool)},
    }  # fmt: skip
    words = [word for option, value in given.items() if value is not None for word in (option, value)]
    words += [word for one in settings for word in ("--set", one)] + (["--no-pretrained"] if no_pretrained else [])
    asked = Analysing(
        models=tuple(map(str, models)),
        data=data,
        split=split,
        resolutions=resolutions,
        patch_size=patch_size,
        images=images,
        measures=tuple(split_words(measures)),
        settings=settings,
        pretrained=not no_pretrained,
        num_classes=num_classes,
        weights=weights,
        skip_unreadable=skip_unreadable,
        max_pixels=max_pixels,
        workers=workers,
        command=next_step.again("analyse", *models, *words, "--out", out),
    )
    rows = carry_out(asked, out, overwrite=overwrite, device=device)
    if json:
        print(dump_rows(rows), end="")
        return
    print_layers(rows)
    print(f"arrays, rows, figures, page: {out}")
    if len(models) == 1 and out == models[0] / INSIDE and (models[0] / RESULTS).exists():
        next_step.say_next("report", models[0], *next_step.writing("--out", models[0] / PAGE))
