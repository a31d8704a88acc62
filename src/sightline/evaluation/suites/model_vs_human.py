"""model-vs-human: 17 sets of images out of distribution, and what people made of them (Geirhos et al. 2021)."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from sightline.data.image_list import images_below, natural_key
from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.model_vs_human import MODEL_VS_HUMAN, image_key
from sightline.evaluation.preparations.base import Whole
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suites.base import TEST, EvalSet, LabelledFile, OpenedSuite, Suite, SuiteImages, place_of
from sightline.io.read import RECORD, read_text
from sightline.metrics.model_vs_human import CUES, ModelVsHuman, published

_HEADS = ("subj", "object_response", "category", "condition", "imagename")


class ModelVsHumanSuite(Suite):
    """`model-vs-human:ROOT` takes the sets that are there: `NAME/dnn/session-1/NUMBER_SET_dnn_LEVEL_CLASS_...`, and
    `NAME/CLASS/` of edge, silhouette and cue-conflict, below ROOT or `ROOT/datasets`. `,parts=sketch+rotation` takes
    these alone, and one that is missing is then an error. What people made of them is in `raw-data/NAME/*.csv` below
    ROOT or beside it, or in `FOLDER/NAME/*.csv` of `,people=FOLDER`.

    The answer is one of 16 classes, that of the largest mean softmax over its classes of ImageNet. Images are shown
    whole in every preparation. All sets are one set of images here, and measured by the metric `model_vs_human` alone.
    """

    name: ClassVar[str] = MODEL_VS_HUMAN

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        place, options = cls.parse(argument, "parts", "people")
        root, names = cls.root(place), cls.chosen(options.get("parts"), published()["sets"], "part")
        found = {name: place_of(root, (name, f"datasets/{name}"), _holds) for name in names}
        folders = {name: folder for name, folder in found.items() if folder is not None}
        absent, missing = [name for name in names if name not in folders], list[str]()
        if absent:
            looked = f"looked for NAME/dnn/, of {', '.join(published()['class_folders'])} NAME/, there and in datasets/"
            missing.append(f"{cls.name}: {', '.join(absent)} not in {root} ({looked})")
        if not folders or (absent and "parts" in options):
            raise InputError(f"suite {missing[0]}")
        near = (root / "raw-data", root.parent / "raw-data")
        answers = cls.root(options["people"]) if "people" in options else next(filter(Path.is_dir, near), near[0])
        images, alone = list[LabelledFile](), list[str]()
        for name, folder in folders.items():
            some = _with_people(_stimuli(name, folder), answers / name)
            alone += [] if any("people" in one.slices for one in some) else [name]
            images += some
        if alone:
            missing.append(f"{cls.name}: people's answers to {', '.join(alone)} (looked for {answers}/NAME/*.csv)")
        # The first of each class and set before a second one: those are taken where some are.
        seen = Counter[tuple[str, int]]()
        images.sort(key=lambda one: seen.update([(one.slices["set"], one.label)]) or seen[one.slices["set"], one.label])
        source = SuiteImages(cls.name, root, synsets(), images)
        source.transform = Whole()
        scoring = Scoring(cls.name, groups=published()["classes"], metrics=(ModelVsHuman.name,))
        part = EvalSet(cls.name, source, TEST, (scoring,), imagenet=True)
        return OpenedSuite((part,), tuple(missing), (root, answers))


def _holds(folder: Path) -> bool:
    return folder.is_dir() and (folder.name in published()["class_folders"] or (folder / "dnn").is_dir())


def _stimuli(name: str, folder: Path) -> list[LabelledFile]:
    """The images of a set, with what their names say."""
    labels, found = {one: numbers[0] for one, numbers in published()["classes"].items()}, list[LabelledFile]()
    in_classes = name in published()["class_folders"]
    for path in sorted(images_below(folder if in_classes else folder / "dnn", []), key=natural_key):
        file, slices = Path(path), {"set": name}
        words = file.name.split("_")
        kind = file.parent.name if in_classes else words[4] if len(words) > 5 else ""
        if name == CUES:
            # dog10-bird2.png has the shape of a dog and the texture of a bird.
            slices["texture"] = re.sub(r"\d", "", words[-1].split(".")[0].split("-")[-1])
        if kind not in labels or slices.get("texture", kind) not in labels:
            form = "CLASS/SHAPE1-TEXTURE2.png" if name == CUES else "NUMBER_SET_dnn_LEVEL_CLASS_..."
            form = "CLASS/IMAGE" if in_classes and name != CUES else form
            raise InputError(f"{path}: its name says no class (expected {form}, of the classes {', '.join(labels)})")
        slices |= {} if in_classes else _level(name, words[3])
        found.append(LabelledFile(path, f"{name}/{path[len(f'{folder}/') :]}", labels[kind], slices))
    if not found:
        raise InputError(f"{folder}: holds no image (expected {name} as bethgelab/model-vs-human publishes it)")
    return found


def _level(name: str, level: str) -> dict[str, str]:
    """A level as results name it: a number as short as it can be, else small letters; none of a set without levels."""
    short = f"{float(level):g}" if re.fullmatch(r"inf|\d+(\.\d+)?", level) else level.lower()
    return {} if name in published()["flat"] else {"level": short}


def _with_people(images: list[LabelledFile], folder: Path) -> list[LabelledFile]:
    """The same with what people made of each, where anybody was asked; models, whose answers may lie beside theirs, are
    left out."""
    people: dict[str, dict[tuple[str | float, ...], bool]] = {}
    for file in sorted(folder.glob("*.csv")):
        lines = csv.DictReader(io.StringIO(read_text(file, RECORD, "people's answers"), newline=""))
        for line in ({str(head).lower(): said for head, said in one.items()} for one in lines):
            if absent := [head for head in _HEADS if line.get(head) is None]:
                raise InputError(f"{file}: a line has no {absent[0]} (expected the columns {', '.join(_HEADS)})")
            if line["subj"].startswith("subject-"):
                key = image_key({"set": folder.name, **_level(folder.name, line["condition"])}, line["imagename"])
                people.setdefault(line["subj"], {})[key] = line["object_response"] == line["category"]
    made = []
    for one in images:
        said = (answers.get(image_key(one.slices, one.name)) for _, answers in sorted(people.items()))
        signs = "".join("-" if right is None else str(int(right)) for right in said)
        made.append(replace(one, slices={**one.slices, "people": signs}))
    return made if any(one.slices["people"].strip("-") for one in made) else images
