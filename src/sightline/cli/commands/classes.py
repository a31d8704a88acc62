"""`sightline classes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def classes(
    *logits: Annotated[Path, Parameter(help="Folders that sightline evaluate --logits wrote, or files of them.")],
    split: str | None = None,
    between: options.Words = (),
    against: str | None = None,
    first: int | None = None,
    most: int = 5,
    out: Path | None = None,
    overwrite: bool = False,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Compare classes between sizes and models, from stored logits: changes, spreads, gaps, confused pairs.

    All over the images that every measurement holds. With --out also classes.jsonl (accuracy and how often it is named,
    of each class), class_effects.jsonl and classes.html.

    Args:
        split: Of the logits; test unless given.
        between: Two sizes, as 224,1024 or 32,native; that of the training and the largest that all have unless given.
        against: The line that gaps are measured from; the other one of two, else mean, the mean of all.
        first: Only images whose ILSVRC number is at most this (5000: those of LookHere's appendix).
        most: Classes of each kind that are shown.
        out: A folder for the files.
        overwrite: Replace those that exist.
    """
    from sightline.cli import progress
    from sightline.cli.next_step import command
    from sightline.data.sizes import View
    from sightline.distributed import machine
    from sightline.errors import InputError
    from sightline.evaluation.class_effects import class_effects
    from sightline.evaluation.class_tables import class_rows, stored_tables
    from sightline.evaluation.logits import find_logits
    from sightline.io.atomic import write_out
    from sightline.io.config import Count, check_value
    from sightline.reports import classes_page
    from sightline.results.classes import CLASSES, CLASSES_PAGE, EFFECTS, ClassStudy
    from sightline.results.rows import dump_rows
    from sightline.runs import outputs
    from sightline.runs.sizes import parse_resolutions

    machine.set_threads(threads)
    if not logits:
        raise InputError("classes: expected a folder or a file of logits, which sightline evaluate --logits writes")
    check_value("--most", most, Count)
    if first is not None:
        check_value("--first", first, Count)
    shown = [one.name if isinstance(one, View) else f"{one} px" for one in parse_resolutions(between)]
    if between and len(shown) != 2:
        raise InputError(f"--between {' '.join(between)}: expected two sizes, as 224,1024")
    files = list(dict.fromkeys(file for place in logits for file in find_logits(place)))
    written: list[Path] = []
    if out is not None:
        if out.exists() and not out.is_dir():
            raise InputError(f"--out {out}: is a file, expected a folder")
        written = [out / name for name in (CLASSES, EFFECTS, CLASSES_PAGE)]
        for place in written:
            outputs.claim_file(place, overwrite=overwrite, inputs=outputs.Inputs(files=files))
        outputs.check_writable(*written)
    with progress.bar_of("reading", len(files)) as advance:
        stored = stored_tables(files, split=split, first=first, advance=advance)
    study = ClassStudy(stored, (shown[0], shown[1]) if shown else None)
    effects = class_effects(study, against)
    if not effects:
        raise InputError("classes: one line at one size has nothing to be compared with (expected two of either)")
    if out is not None:
        rows = [row for one in stored for row in class_rows(one)]
        options_given = {"split": split, "between": ",".join(between) or None, "against": against, "first": first}
        words = [str(word) for name, one in options_given.items() if one is not None for word in (f"--{name}", one)]
        again = command("classes", *logits, *words, "--most", most, "--out", out)
        chosen = f"those with an ILSVRC number of at most {first:,}" if first is not None else ""
        page = classes_page.render(study, effects, rows[0], again, most=most, chosen=chosen)
        # A lone surrogate (a folder's name that is not UTF-8) must not cost the page.
        texts = (dump_rows(rows), dump_rows(effects), page.encode("utf-8", "replace"))
        for place, text in zip(written, texts, strict=True):
            write_out(place, text)
    if json:
        print(dump_rows(effects), end="")
        return
    classes_page.print_effects(study, effects, most)
    if out is not None:
        print(f"rows, effects, page: {out}")
