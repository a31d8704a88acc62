"""`sightline scenes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

_SIZES = ((32, 32), (64, 64), (148, 148), (96, 192), (192, 96))


def scenes(
    *,
    out: Path,
    task: Literal["glyphs", "pairs"] = "glyphs",
    split: str = "test",
    resolutions: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    columns: int = 8,
    rows: int = 1,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Draw scenes of the embedded data set on one sheet, to look at them.

    Parameters
    ----------
    out
        The picture, as sheet.png.
    task
        glyphs or pairs.
    split
        train, minival, test, or heldout_fonts.
    resolutions
        Sizes in pixels, as 32,64,96x192 (height x width); several sizes and shapes unless given.
    columns
        Scenes side by side.
    rows
        Rows of scenes a size.
    seed
        Of the train split.
    overwrite
        Replace the picture if it exists.
    """
    import io

    from PIL import Image

    from sightline.cli.guard import Inputs
    from sightline.cli.next_step import say_next
    from sightline.cli.output import claim_file
    from sightline.cli.resolutions import parse_sizes
    from sightline.data.contact_sheet import contact_sheet
    from sightline.data.discovery import open_source
    from sightline.errors import InputError
    from sightline.replacing import write_out

    sizes = parse_sizes(resolutions) or _SIZES
    if columns < 1 or rows < 1:
        raise InputError(f"--columns {columns}, --rows {rows}: expected whole numbers of at least 1")
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise InputError(f"--out {out}: expected a name that ends in .png, .jpg or .webp")
    if seed < 0:
        raise InputError(f"--seed {seed}: must be at least 0")
    source = open_source(f"scenes:{task}")
    source.check(split)
    claim_file(out, inputs=Inputs(), overwrite=overwrite)
    sheet = contact_sheet(source, split, sizes, columns=columns, rows=rows, seed=seed)
    picture = io.BytesIO()
    # As the name's ending says.
    Image.fromarray(sheet).save(picture, format=Image.registered_extensions()[out.suffix.lower()])
    write_out(out, picture.getvalue())
    print(f"{out}: {columns * rows} scenes at each of {len(sizes)} sizes")
    say_next("train", "--data", f"scenes:{task}")
