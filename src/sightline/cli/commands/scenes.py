"""`sightline scenes`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sightline.runs.options import Words

_SIZES = ((32, 32), (64, 64), (148, 148), (96, 192), (192, 96))


def scenes(
    *,
    out: Path,
    task: Literal["glyphs", "pairs"] = "glyphs",
    split: str = "test",
    resolutions: Words = (),
    columns: int = 8,
    rows: int = 1,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Draw scenes of the embedded data set on one sheet.

    Args:
        out: The picture to write, for example sheet.png.
        task: glyphs or pairs.
        split: train, minival, test, or heldout_fonts (glyphs).
        resolutions: Sizes in pixels, for example 32,64,96x192 (height x width). Default: five sizes and aspect ratios.
        columns: Scenes in a row.
        rows: Rows of scenes for each size.
        seed: Seed of the scenes; only for the split train.
        overwrite: Replace the picture if it exists.
    """
    from sightline.cli import next_step
    from sightline.data.contact_sheet import contact_sheet
    from sightline.data.open import open_source
    from sightline.errors import InputError
    from sightline.io.config import Index, check_value
    from sightline.runs import outputs
    from sightline.runs.drawings import write_picture
    from sightline.runs.sizes import parse_sizes

    sizes = parse_sizes(resolutions) or _SIZES
    if columns < 1 or rows < 1:
        raise InputError(f"--columns {columns}, --rows {rows}: expected whole numbers of at least 1")
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise InputError(f"--out {out}: expected a name that ends in .png, .jpg or .webp")
    check_value("--seed", seed, Index)
    source = open_source(f"scenes:{task}")
    source.check(split)
    outputs.claim_file(out, overwrite=overwrite)
    write_picture(out, contact_sheet(source, split, sizes, columns=columns, rows=rows, seed=seed))
    print(f"{out}: {columns * rows} scenes at each of {len(sizes)} sizes")
    next_step.say_next("train", "--data", f"scenes:{task}", "--out", next_step.free(Path("runs") / f"scenes_{task}"))
