"""A folder of images as people have them: shapes and formats of all kinds, and a fault of each kind.

    python benchmarks/odd_folder.py DIR [--files 3000] [--seed 0]

DIR/train and DIR/test with five classes that a look at form or colour tells apart: PNG, JPEG (upright and turned by
EXIF), GIF, BMP and WebP, grey, palettes, transparency, from 6x3 to 20,000x20,000 pixels, links, and by the thousand
files: 13 beyond the pixel limit, 4 damaged, 3 empty or no image, 12 files of train that stand in test too. The same for
the same arguments. What is wrong is listed in DIR.json beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("balls", "bars", "boxes", "crosses", "rings")
COLOURS = ((200, 40, 40), (40, 160, 60), (50, 80, 200), (220, 170, 30), (150, 60, 170))
KINDS = ("png", "png", "png", "rgba.png", "p.png", "grey.png", "jpg", "jpg", "turned.jpg", "gif", "bmp", "webp")
TOO_LARGE, TWINS, LINKS = 13, 12, 20


def picture(label: int, width: int, height: int, rng: np.random.Generator) -> Image.Image:
    """A form on a pale ground, of its class's colour three times out of four."""
    ground = tuple(int(value) for value in rng.integers(200, 256, 3))
    image = Image.new("RGB", (width, height), ground)
    pen = ImageDraw.Draw(image)
    colour = COLOURS[label if rng.random() < 0.75 else int(rng.integers(5))]
    reach = min(width, height) * rng.uniform(0.25, 0.48)
    x, y = (rng.uniform(reach, max(side - reach, reach)) for side in (width, height))
    box, thick = (x - reach, y - reach, x + reach, y + reach), max(int(reach / 3), 1)
    if label == 0:
        pen.ellipse(box, fill=colour)
    elif label == 1:
        for place in np.linspace(y - reach, y + reach, 4):
            pen.rectangle((x - reach, place, x + reach, place + thick / 2), fill=colour)
    elif label == 2:
        pen.rectangle(box, fill=colour)
    elif label == 3:
        pen.line((box[0], box[1], box[2], box[3]), fill=colour, width=thick)
        pen.line((box[0], box[3], box[2], box[1]), fill=colour, width=thick)
    else:
        pen.ellipse(box, outline=colour, width=thick)
    return image


def save(image: Image.Image, path: Path, kind: str, rng: np.random.Generator) -> None:
    """As one of `KINDS`."""
    if kind == "rgba.png":
        image.putalpha(Image.fromarray((np.asarray(image.convert("L")) < 190).astype(np.uint8) * 255))
    elif kind == "p.png":
        image = image.quantize(16)
        image.info["transparency"] = 0
    elif kind == "grey.png":
        image = image.convert("L")
    if kind == "turned.jpg":
        exif = Image.Exif()
        exif[0x0112] = int(rng.integers(2, 9))
        image.save(path, exif=exif, quality=85)
    else:
        image.save(path, **({"transparency": 0} if kind == "p.png" else {}))


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    """(width, height): most of clip-art's 40 to 400 px, some tiny, some of thousands, aspects from 1:6 to 6:1."""
    draw = rng.random()
    side = rng.uniform(4, 20) if draw < 0.03 else 2 ** rng.uniform(5.3, 8.6) if draw < 0.99 else rng.uniform(1000, 3000)
    stretch = 2 ** rng.normal(0, 0.35)
    return max(round(side * stretch), 3), max(round(side / stretch), 3)


def make(root: Path, files: int, seed: int) -> dict[str, list[str]]:
    """The folder; returns what is wrong with it."""
    rng = np.random.default_rng(seed)
    wrong: dict[str, list[str]] = {"too_large": [], "damaged": [], "no_image": [], "twins": [], "links": []}
    made: list[Path] = []
    for number in range(files):
        label = int(rng.choice(5, p=(0.3, 0.25, 0.2, 0.15, 0.1)))
        split = "test" if number % 5 == 0 else "train"
        kind = KINDS[int(rng.integers(len(KINDS)))]
        width, height = (6, 3) if number == 1 else (3, 6) if number == 2 else sizes(rng)
        folder = root / split / CLASSES[label] / ("more" if number % 7 == 0 else ".")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:05d}.{kind}"
        save(picture(label, width, height, rng), path, kind, rng)
        made.append(path)
    for number in range(max(TOO_LARGE * files // 3000, 1)):
        side = 20_000 if number == 0 else 9_500 + 500 * number
        path = made[5 * number + 3].parent / f"huge {number}.png"
        Image.new("1", (side, 20_000 if number == 0 else 9_500), number % 2).save(path, compress_level=1)
        wrong["too_large"].append(str(path.relative_to(root)))
    whole = [path for path in made if path.suffix in (".jpg", ".png") and path.stat().st_size > 600]
    for number in range(max(4 * files // 1000, 1)):
        path = whole[37 * number % len(whole)]
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        wrong["damaged"].append(str(path.relative_to(root)))
    for number, content in enumerate((b"", b"no image at all", b"\x89PNG\r\n\x1a\n")):
        path = made[11 * number + 1].parent / f"broken {number}.png"
        path.write_bytes(content)
        wrong["no_image"].append(str(path.relative_to(root)))
    good = [path for path in whole if str(path.relative_to(root)) not in wrong["damaged"]]
    of_train = [path for path in good if path.relative_to(root).parts[0] == "train"]
    for number in range(max(TWINS * files // 3000, 1)):
        path = of_train[13 * number % len(of_train)]
        twin = root / "test" / path.relative_to(root).parts[1] / f"copy {number}{path.suffix}"
        shutil.copyfile(path, twin)
        wrong["twins"].append(str(twin.relative_to(root)))
    for number in range(max(LINKS * files // 3000, 1)):
        path = of_train[17 * number % len(of_train)]
        link = path.parent / f"link {number}{path.suffix}"
        link.symlink_to(path.name)
        wrong["links"].append(str(link.relative_to(root)))
    (root / "train" / CLASSES[0] / "notes.txt").write_text("not an image\n")
    (root / "train" / CLASSES[0] / ".hidden.png").write_bytes(b"x")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.folder.exists():
        parser.error(f"{asked.folder}: exists already")
    wrong = make(asked.folder, asked.files, asked.seed)
    asked.folder.with_name(f"{asked.folder.name}.json").write_text(json.dumps(wrong, indent=1) + "\n")
    print(f"{asked.folder}: {asked.files} images, and " + ", ".join(f"{len(v)} {k}" for k, v in wrong.items()))
    print(f"next: sightline data check imagefolder:{asked.folder}")


if __name__ == "__main__":
    main()
