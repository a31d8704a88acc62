"""Extract the outlines that the scenes are drawn from out of the fonts that come with matplotlib.

Run once, by a maintainer: `python tools/extract_outlines.py`. It writes `glyph_outlines.npz` and the licences of the
fonts beside it; rendering needs neither matplotlib nor a font file. The licence of the Computer Modern fonts stands in
matplotlib's own LICENSE, under "BaKoMa Fonts", and is kept by hand.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

CHARACTERS = "bdpqunhy69aeMWNZS25LJ7E3"
FLATTENED_AT = 200
FACES = {
    "DejaVuSans": "dejavu-sans",
    "DejaVuSans-Bold": "dejavu-sans-bold",
    "DejaVuSans-Oblique": "dejavu-sans-oblique",
    "DejaVuSans-BoldOblique": "dejavu-sans-bold-oblique",
    "DejaVuSansMono": "dejavu-mono",
    "DejaVuSansMono-Bold": "dejavu-mono-bold",
    "DejaVuSansMono-Oblique": "dejavu-mono-oblique",
    "DejaVuSansMono-BoldOblique": "dejavu-mono-bold-oblique",
    "DejaVuSerif": "dejavu-serif",
    "DejaVuSerif-Bold": "dejavu-serif-bold",
    "DejaVuSerif-Italic": "dejavu-serif-italic",
    "DejaVuSerif-BoldItalic": "dejavu-serif-bold-italic",
    # The licence reserves the fonts' own name for unmodified copies.
    "STIXGeneral": "general",
    "STIXGeneralBol": "general-bold",
    "STIXGeneralItalic": "general-italic",
    "STIXGeneralBolIta": "general-bold-italic",
}
HELD_OUT_FACES = {
    "cmr10": "cm-roman",
    "cmb10": "cm-bold",
    "cmti10": "cm-italic",
    "cmss10": "cm-sans",
    "cmtt10": "cm-typewriter",
}


def signed_area(points: np.ndarray) -> float:
    """The area inside a closed contour, float, positive where (y, x) turns from y towards x."""
    y, x = points.T
    return 0.5 * float(np.sum(y * np.roll(x, -1) - x * np.roll(y, -1)))


def contains(points: np.ndarray, inner: np.ndarray) -> bool:
    """Whether the first point of `inner` lies inside the closed contour `points`, by crossings of a ray."""
    y, x = inner[0]
    start, end = points, np.roll(points, -1, axis=0)
    crossing = (start[:, 0] > y) != (end[:, 0] > y)
    along = start[:, 1] + (y - start[:, 0]) * (end[:, 1] - start[:, 1]) / np.where(crossing, end[:, 0] - start[:, 0], 1)
    return bool(np.sum(crossing & (along > x)) % 2)


def contours(font: Path, character: str) -> list[np.ndarray]:
    """The closed contours of one glyph: float64 [points, 2] as (y, x), y down, longest side 1, centred on the box.

    Fills come before holes; a fill has a positive signed area and a hole a negative one.
    """
    path = TextPath((0, 0), character, size=FLATTENED_AT, prop=FontProperties(fname=str(font)))
    polygons = []
    for polygon in path.to_polygons():
        points = np.asarray(polygon)[:-1, ::-1] * (-1, 1)
        keep = np.any(points != np.roll(points, 1, axis=0), axis=1)
        polygons.append(points[keep])
    every = np.concatenate(polygons)
    low, high = every.min(axis=0), every.max(axis=0)
    polygons = [(points - (low + high) / 2) / (high - low).max() for points in polygons]
    depths = [sum(contains(other, points) for other in polygons if other is not points) for points in polygons]
    oriented = []
    for depth, points in sorted(zip(depths, polygons, strict=True), key=lambda pair: pair[0]):
        wanted = 1 if depth % 2 == 0 else -1
        oriented.append(points if signed_area(points) * wanted > 0 else points[::-1])
    return oriented


def main() -> None:
    """Write the outlines and the licences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("src/sightline/data/sources"))
    out = parser.parse_args().out
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    points: list[np.ndarray] = []
    glyphs: list[int] = []
    faces = FACES | HELD_OUT_FACES
    for file in faces:
        for character in CHARACTERS:
            for contour in contours(fonts / f"{file}.ttf", character):
                points.append(np.round(contour * 65534).astype(np.int16))
                glyphs.append(list(faces).index(file) * len(CHARACTERS) + CHARACTERS.index(character))
    np.savez_compressed(
        out / "glyph_outlines.npz",
        points=np.concatenate(points),
        lengths=np.array([len(contour) for contour in points], dtype=np.int32),
        glyphs=np.array(glyphs, dtype=np.int32),
        characters=np.array(list(CHARACTERS)),
        faces=np.array(list(faces.values())),
        held_out=np.array([file in HELD_OUT_FACES for file in faces]),
    )
    shutil.copyfile(fonts / "LICENSE_DEJAVU", out / "glyph_outlines.LICENSE_DEJAVU.txt")
    shutil.copyfile(fonts / "LICENSE_STIX", out / "glyph_outlines.LICENSE_STIX.txt")


if __name__ == "__main__":
    main()
