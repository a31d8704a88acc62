"""A task of VTAB-1k as it is passed on: vtab:DIR/TASK."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from sightline.data.image_index import ImageIndex
from sightline.data.labelled import ClassificationFiles
from sightline.errors import InputError, did_you_mean
from sightline.io.read import ROWS, read_text

NATURAL, SPECIALIZED, STRUCTURED = "Natural", "Specialized", "Structured"
_LISTS = {"train": ("train800val200", "train800", "val200"), "test": ("test",)}
_HELD_OUT = "val200"


@dataclass(frozen=True)
class VtabTask:
    """What the benchmark says of a task: its `title` and `group` (ViT, table 9), how many classes it has, and how BiT's
    appendix F shows its images in training: `cropped` at random and `mirrored`, but where that destroys the label."""

    title: str
    group: str
    classes: int
    cropped: bool = True
    mirrored: bool = True


TASKS = {
    "caltech101": VtabTask("Caltech101", NATURAL, 102),
    "cifar": VtabTask("CIFAR-100", NATURAL, 100),
    "dtd": VtabTask("DTD", NATURAL, 47),
    "oxford_flowers102": VtabTask("Flowers102", NATURAL, 102),
    "oxford_iiit_pet": VtabTask("Pets", NATURAL, 37),
    "sun397": VtabTask("Sun397", NATURAL, 397),
    "svhn": VtabTask("SVHN", NATURAL, 10),
    "patch_camelyon": VtabTask("Camelyon", SPECIALIZED, 2),
    "eurosat": VtabTask("EuroSAT", SPECIALIZED, 10),
    "resisc45": VtabTask("Resisc45", SPECIALIZED, 45),
    "diabetic_retinopathy": VtabTask("Retinopathy", SPECIALIZED, 5),
    "clevr_count": VtabTask("Clevr-Count", STRUCTURED, 8, cropped=False),
    "clevr_dist": VtabTask("Clevr-Dist", STRUCTURED, 6, cropped=False),
    "dmlab": VtabTask("DMLab", STRUCTURED, 6, cropped=False),
    "dsprites_loc": VtabTask("dSpr-Loc", STRUCTURED, 16, cropped=False, mirrored=False),
    "dsprites_ori": VtabTask("dSpr-Ori", STRUCTURED, 16, mirrored=False),
    "kitti": VtabTask("KITTI-Dist", STRUCTURED, 4, cropped=False),
    "smallnorb_azi": VtabTask("sNORB-Azim", STRUCTURED, 18, mirrored=False),
    "smallnorb_ele": VtabTask("sNORB-Elev", STRUCTURED, 9),
}
"""Folder -> task, in the order of ViT's table 9."""


class Vtab(ClassificationFiles):
    """Images that lists name, a line `PATH LABEL` each, paths below the folder of the task.

    `train` is `train800val200.txt`, else what `train800.txt` and `val200.txt` name; `test` is `test.txt`, all of it.
    With `,minival=0.2` behind the folder, `val200.txt` is `minival` and the 800 others are `train`, as published.
    Classes are called by their numbers. Any folder with such lists is a task; those of `TASKS` have their published
    number of classes. `train` is mirrored and cut as `TASKS` says where a run does not say it.
    """

    name: ClassVar[str] = "vtab"

    def __init__(self, root: str | Path) -> None:
        """Read the lists of DIR/TASK; raises InputError where one is missing, or names what is no image and label."""
        root = Path(root)
        if not root.is_dir():
            raise InputError(f"vtab:{root}: no such folder{did_you_mean(root.name, TASKS)}")
        labels: dict[tuple[str, str], int] = {}
        for split, names in _LISTS.items():
            files = [file for file in (root / f"{name}.txt" for name in names) if file.is_file()]
            if not files:
                raise InputError(f"{root}: has no {names[0]}.txt{_hint(root, split)}")
            # One list of all, or both of its parts.
            for file in files[:1] if files[0].stem == names[0] else files:
                for path, label in read_list(file):
                    labels[split, path] = label
        names, paths = [f"{split}/{path}" for split, path in labels], [root / path for _, path in labels]
        listing = ImageIndex.of_files(names, paths)
        known, highest = TASKS.get(root.resolve().name), max(labels.values(), default=-1) + 1
        classes = known.classes if known else highest
        if highest > classes:
            raise InputError(f"{root}: label {highest - 1} is none of {classes} classes (expected: 0 to {classes - 1})")
        super().__init__(root, tuple(map(str, range(classes))), listing, list(labels.values()))
        if known:
            self.transform = self.transform.changed("bit" if known.cropped else "whole", flip=0.5 * known.mirrored)

    def _leave_out_twins(self) -> None:
        """Nothing is left out: published numbers are of the whole test."""

    def hold_out(self, share: float, split: str = "minival") -> Self:
        """As published: the images of `val200.txt`; another share as of other files."""
        file = self.root / f"{_HELD_OUT}.txt"
        if (share, split) != (0.2, "minival") or not file.is_file():
            return super().hold_out(share, split)
        apart = {f"train/{path}" for path, _ in read_list(file)}
        return self._held_out(
            [row for row in self.rows_of("train") if self.listing.names[row] in apart], "train", split
        )


def read_list(file: Path) -> list[tuple[str, int]]:
    """The paths and labels of a list; raises InputError for a line that is none."""
    found = []
    for number, line in enumerate(read_text(file, ROWS, "a list of images and their labels").splitlines(), start=1):
        path, _, label = line.rpartition(" ")
        if line.strip() and not (path.strip() and label.isascii() and label.isdecimal()):
            raise InputError(f"{file}:{number}: {line[:80]!r} is no path and label (expected: images/1.jpg 3)")
        if line.strip():
            found.append((path.strip(), int(label)))
    return found


def tasks_below(root: Path) -> dict[str, Path | None]:
    """The task of a folder, or each of VTAB-1k's below it with its folder, or None where its lists are not there;
    nothing of another folder."""

    def there(folder: Path) -> bool:
        return (folder / "test.txt").is_file()

    if there(root):
        return {root.resolve().name: root}
    found = {name: root / name if there(root / name) else None for name in TASKS}
    return found if any(found.values()) else {}


def _hint(root: Path, split: str) -> str:
    """What may be meant by a folder without lists."""
    if not (root / "test.txt").is_file() and (tasks := [name for name, place in tasks_below(root).items() if place]):
        return f" (expected the folder of a task, as {root / tasks[0]})"
    return f" (the list of {split}: a path and a label in each line)"
