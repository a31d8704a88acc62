"""The class study: what changes between sizes and models, class by class, from stored logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation.class_effects import class_effects
from sightline.evaluation.class_tables import class_rows, stored_tables
from sightline.evaluation.logits import find_logits
from sightline.io.atomic import write_out
from sightline.io.config import Count, check_value
from sightline.reports import classes_page
from sightline.results.classes import CLASSES, CLASSES_PAGE, EFFECTS, ClassEffect, ClassStudy
from sightline.results.rows import dump_rows, to_frame
from sightline.runs import outputs
from sightline.runs.console import command_line, option_words
from sightline.runs.options import ClassesOptions, changed
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_resolutions


@dataclass(frozen=True)
class ComparedClasses:
    """What was found.

    Attributes:
        study: accuracy and how often each class is named, by size and model.
        effects: changes, spreads, gaps and confused pairs, a row each.
        path: the folder that was written; None where none was asked for.
    """

    study: ClassStudy
    effects: list[ClassEffect]
    path: Path | None = None

    def frame(self) -> Any:
        """The effects as a `pandas.DataFrame`."""
        return to_frame(self.effects)


def classes(
    logits: Sequence[str | Path] | str | Path,
    options: ClassesOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> ComparedClasses:
    """Compare classes between sizes and models, over the images that every measurement holds; as `sightline classes`.

    Args:
        logits: folders that `evaluate` wrote logits into, or files of them.
        options: changed by keywords: `between=[224, 1024]`, `out="classes"`, ...

    Raises:
        InputError: a file or an option is refused, or there is nothing to compare.
    """
    asked = changed(options or ClassesOptions(), changes)
    places = [Path(one) for one in ([logits] if isinstance(logits, str | Path) else logits)]
    if not places:
        raise InputError("classes: expected a folder or a file of logits, which sightline evaluate --logits writes")
    check_value("--most", asked.most, Count)
    check_value("--first", 1 if asked.first is None else asked.first, Count)
    shown = [one.name if isinstance(one, View) else f"{one} px" for one in parse_resolutions(asked.between)]
    if asked.between and len(shown) != 2:
        raise InputError(f"--between {' '.join(asked.between)}: expected two sizes, as 224,1024", field="between")
    files = list(dict.fromkeys(file for place in places for file in find_logits(place)))
    written = [] if asked.out is None else [asked.out / name for name in (CLASSES, EFFECTS, CLASSES_PAGE)]
    if asked.out is not None and asked.out.exists() and not asked.out.is_dir():
        raise InputError(f"--out {asked.out}: is a file, expected a folder", field="out", value=asked.out)
    for place in written:
        outputs.claim_file(place, overwrite=asked.overwrite, inputs=outputs.Inputs(files=files))
    outputs.check_writable(*written)
    advance = (progress or Progress()).counter("reading", len(files))
    stored = stored_tables(files, split=asked.split, first=asked.first, advance=advance)
    study = ClassStudy(stored, (shown[0], shown[1]) if shown else None)
    effects = class_effects(study, asked.against)
    if not effects:
        raise InputError("classes: one line at one size has nothing to be compared with (expected two of either)")
    if asked.out is not None:
        rows = [row for one in stored for row in class_rows(one)]
        again = command_line("classes", *places, *option_words(asked), "--out", asked.out)
        chosen = "" if asked.first is None else f"those with an ILSVRC number of at most {asked.first:,}"
        page = classes_page.render(study, effects, rows[0], again, most=asked.most, chosen=chosen)
        # A lone surrogate (a folder's name that is not UTF-8) must not cost the page.
        texts = (dump_rows(rows), dump_rows(effects), page.encode("utf-8", "replace"))
        for place, text in zip(written, texts, strict=True):
            write_out(place, text)
    return ComparedClasses(study, effects, asked.out)
