"""`sightline classes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def classes(
    *logits: Annotated[Path, Parameter(help="Folders written by sightline evaluate --logits, or files in them.")],
    asked: options.ClassesOptions | None = None,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Compare the accuracy on each class between sizes and models, from stored logits.

    Uses the images that all measurements share. --out also writes classes.jsonl (accuracy on each class, and how often
    it is predicted), class_effects.jsonl and classes.html.
    """
    from sightline.cli import progress
    from sightline.distributed import machine
    from sightline.reports import classes_page
    from sightline.results.rows import dump_rows
    from sightline.runs.classes import classes as compare_classes

    machine.set_threads(threads)
    asked = asked or options.ClassesOptions()
    with progress.Bars(late=progress.LATE) as bars:
        found = compare_classes(logits, asked, progress=bars)
    if json:
        print(dump_rows(found.effects), end="")
        return
    classes_page.print_effects(found.study, found.effects, asked.most)
    if found.path is not None:
        print(f"rows, effects, page: {found.path}")
