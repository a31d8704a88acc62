"""Stand-ins in the layouts in which FairFace and CelebA are published: tiny pictures of noise, tinted by labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

AGES = ("0-2", "3-9", "10-19", "more than 70")
GENDERS, RACES = ("Male", "Female"), ("White", "Black", "Indian")
NAMES = ("5_o_Clock_Shadow", "Male", "Smiling", "Young")


def _picture(path: Path, draws: np.random.Generator, tint: tuple[int, int, int]) -> None:
    pixels = draws.normal(120, 40, (20, 18, 3)) + np.array(tint)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def fairface(root: Path, train: int, val: int) -> Path:
    """Two tables, one a split; every seventh image has no age."""
    draws = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        lines = []
        for number in range(1, count + 1):
            age, gender, race = (int(draws.integers(len(some))) for some in (AGES, GENDERS, RACES))
            name = f"{split}/{number}.jpg"
            _picture(root / name, draws, (40 * gender, 30 * race - 30, 10 * age))
            lines.append((name, AGES[age] if number % 7 else "", GENDERS[gender], RACES[race], bool(number % 2)))
        with (root / f"fairface_label_{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("file", "age", "gender", "race", "service_test"), *lines])
    return root


def celeba(root: Path, count: int) -> tuple[Path, dict[str, np.ndarray], np.ndarray]:
    """The list, its labels by column, and the number of the split of each image."""
    draws = np.random.default_rng(1)
    labels = {name: draws.choice([-1, 1], count) for name in NAMES}
    parts = np.repeat([0, 1, 2], [count - 2 * (count // 4), count // 4, count // 4])
    lines, split = [], []
    for number in range(count):
        name = f"{number + 1:06}.png"
        tint = (20 * int(labels["Male"][number]), 15 * int(labels["Young"][number]), 0)
        _picture(root / "img_align_celeba" / name, draws, tint)
        lines.append(name + "".join(f"{int(labels[one][number]):3}" for one in NAMES))
        split.append(f"{name} {parts[number]}")
    file = root / "list_attr_celeba.txt"
    file.write_text("\n".join([str(count), f"{' '.join(NAMES)} ", *lines]) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(split) + "\n")
    return file, labels, parts
