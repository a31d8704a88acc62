"""Small data sets in the formats of large ones, written by the tests."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZES = ((12, 20), (16, 9), (10, 14))


def picture(path: Path, size, seed) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(values).save(path)


def index_png(path: Path, values, palette=False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(values, np.uint8))
    if palette:
        image = Image.fromarray(np.asarray(values, np.uint8), "P")
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    image.save(path)


def numbers(size, allowed, seed):
    """A map of numbers that are allowed, all of the first few among them."""
    return np.random.default_rng(seed).choice(np.array(allowed, np.uint8), size)


def ade20k(root: Path, folders=("training", "validation")) -> Path:
    for at, folder in enumerate(folders):
        for number, size in enumerate(SIZES):
            name = f"ADE_{folder[:5]}_{number:08d}"
            picture(root / "images" / folder / f"{name}.jpg", size, 10 * at + number)
            index_png(root / "annotations" / folder / f"{name}.png", numbers(size, range(151), 10 * at + number))
    return root


def cityscapes(root: Path, folders=("train", "val"), kind="labelTrainIds", allowed=(*range(19), 255)) -> Path:
    for at, folder in enumerate(folders):
        for number, size in enumerate(SIZES):
            city = ("aachen", "bonn")[number % 2]
            name = f"{city}_{number:06d}_000019"
            picture(root / "leftImg8bit" / folder / city / f"{name}_leftImg8bit.png", size, 10 * at + number)
            values = numbers(size, allowed, 10 * at + number)
            index_png(root / "gtFine" / folder / city / f"{name}_gtFine_{kind}.png", values)
            (root / "gtFine" / folder / city / f"{name}_gtFine_polygons.json").write_text("{}")
    return root


def voc(root: Path, lists=("train", "val")) -> Path:
    for at, name in enumerate(lists):
        names = [f"2007_{10 * at + number:06d}" for number in (2, 0, 1)]
        for number, (one, size) in enumerate(zip(names, SIZES, strict=True)):
            picture(root / "JPEGImages" / f"{one}.jpg", size, 10 * at + number)
            values = numbers(size, (*range(21), 255), 10 * at + number)
            index_png(root / "SegmentationClass" / f"{one}.png", values, palette=True)
        path = root / "ImageSets" / "Segmentation" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{one}\n" for one in names))
    return root


def masks(root: Path, splits=("train", "val"), highest=6) -> Path:
    for at, split in enumerate(splits):
        for number, size in enumerate(SIZES):
            picture(root / "images" / split / "deep" / f"{number}.png", size, 10 * at + number)
            values = numbers(size, (*range(highest + 1), 255), 10 * at + number)
            index_png(root / "masks" / split / "deep" / f"{number}.png", values)
    return root


def objects_of(number: int, size, first_id: int) -> list[dict]:
    """A polygon, runs, text of runs and a crowd, in an image."""
    height, width = size
    runs = [2, 3, height * width - 5]
    text = "23" + run_text(height * width - 5)
    said = [
        ([[1.5, 2, 7.25, 2, 6, 8.5]], [1.5, 2, 5.75, 6.5], 18.7, 0, 3),
        ({"size": [height, width], "counts": runs}, [0, 2, 1, 3], 3, 1, 90),
        ({"size": [height, width], "counts": text}, [0, 2, 1, 3], 3, 0, 17),
    ][: 3 - number % 2]
    return [
        {"id": first_id + at, "image_id": 1000 + number, "category_id": category, "bbox": box, "area": area,
         "iscrowd": crowd, "segmentation": outline}
        for at, (outline, box, area, crowd, category) in enumerate(said)
    ]  # fmt: skip


def run_text(value: int) -> str:
    """One length of a run as COCO's text has it."""
    text = ""
    while True:
        digit, value = value & 31, value >> 5
        more = value != 0 or digit & 16
        text += chr(48 + digit + (32 if more else 0))
        if not more:
            return text


CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 3, "name": "car"}, {"id": 17, "name": "cat"}]


def coco_json(folder: str, number_of_images=3) -> dict:
    images, annotations = [], []
    for number, size in list(enumerate(SIZES))[:number_of_images]:
        images.append({"id": 1000 + number, "file_name": f"{number:012d}.jpg", "height": size[0], "width": size[1]})
        annotations += objects_of(number, size, 10 * number + 5)
    # Not in the order of the images.
    return {"info": {}, "images": images, "annotations": annotations[::-1], "categories": copy.deepcopy(CATEGORIES)}


def coco(root: Path, folders=("train2017", "val2017"), change=None) -> Path:
    for at, folder in enumerate(folders):
        said = coco_json(folder)
        for number, size in enumerate(SIZES):
            picture(root / folder / f"{number:012d}.jpg", size, 10 * at + number)
        if change is not None:
            change(said)
        write_json(root / "annotations" / f"instances_{folder}.json", said)
    return root


def lvis(root: Path, splits=("train", "val"), change=None) -> Path:
    for at, split in enumerate(splits):
        said = coco_json(split)
        for number, (one, size) in enumerate(zip(said["images"], SIZES, strict=True)):
            # LVIS divides COCO's images in its own way.
            folder = ("train2017", "val2017")[number % 2 * at]
            name = f"{10 * at + number:012d}.jpg"
            picture(root / folder / name, size, 10 * at + number)
            del one["file_name"]
            one["coco_url"] = f"http://images.example/{folder}/{name}"
            one["neg_category_ids"], one["not_exhaustive_category_ids"] = (
                [[17], []][number % 2],
                [[], [90, 3]][number % 2],
            )
        for one in said["annotations"]:
            del one["iscrowd"]
        if change is not None:
            change(said)
        write_json(root / f"lvis_v1_{split}.json", said)
    return root


def write_json(path: Path, said) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))


WRITERS = {"ade20k": ade20k, "cityscapes": cityscapes, "voc": voc, "masks": masks, "coco": coco, "lvis": lvis}
