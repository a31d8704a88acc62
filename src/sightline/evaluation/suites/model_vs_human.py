"""model-vs-human: 17 sets of images out of distribution, and what people made of them (Geirhos et al. 2021)."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from sightline.data.image_list import images_below, natural_key
from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.logits import StoredLogits, rescore
from sightline.evaluation.preparations.base import Whole
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suites.base import TEST, EvalSet, LabelledFile, OpenedSuite, Suite, SuiteImages
from sightline.io.read import RECORD, read_text
from sightline.metrics.model_vs_human import CUES, ModelVsHuman, published
from sightline.results.rows import ResultRow

_HEADS = ("subj", "object_response", "category", "condition", "imagename")


class ModelVsHumanSuite(Suite):
    """`model-vs-human:ROOT` takes the sets that are there: `NAME/dnn/session-1/NUMBER_SET_dnn_LEVEL_CLASS_...`, and
    `NAME/CLASS/` of edge, silhouette and cue-conflict, below ROOT or `ROOT/datasets`; of `,parts=sketch+rotation` each
    must be there. People's answers are in `raw-data/NAME/*.csv` below ROOT or beside it, or in `,people=FOLDER`.

    One of 16 classes is answered, that of the largest mean softmax over its classes of ImageNet. Images are shown whole
    in every preparation. All sets are one set of images here, and measured by the metric `model_vs_human` alone."""

    name: ClassVar[str] = "model-vs-human"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        place, options = cls.parse(argument, "parts", "people")
        root, names = cls.root(place), cls.chosen(options.get("parts"), published()["sets"], "part")
        found = {name: _stimuli(root, name) for name in names}
        absent = ", ".join(name for name in names if not found[name])
        looked = f"(looked for NAME/dnn/session-1/ or NAME/CLASS/ in {root} and its datasets/)"
        missing = [f"{cls.name}: no images of {absent} {looked}"] if absent else []
        if not any(found.values()) or (absent and "parts" in options):
            raise InputError(f"suite {missing[0]}")
        near = (root / "raw-data", root.parent / "raw-data")
        answers = cls.root(options["people"]) if "people" in options else next(filter(Path.is_dir, near), near[0])
        found = {name: _with_people(some, answers / name) for name, some in found.items()}
        if alone := ", ".join(name for name, some in found.items() if some and "people" not in some[0].slices):
            missing.append(f"{cls.name}: people's answers to {alone} (looked for {answers}/NAME/*.csv)")
        # The first of each class and set before a second one: those are taken where some are.
        seen, images = Counter[tuple[str, int]](), [one for some in found.values() for one in some]
        images.sort(key=lambda one: seen.update([(one.slices["set"], one.label)]) or seen[one.slices["set"], one.label])
        source = SuiteImages(root, synsets(), images)
        source.transform = Whole()
        scoring = Scoring(cls.name, groups=published()["classes"], metrics=(ModelVsHuman.name,))
        part = EvalSet(cls.name, source, TEST, (scoring,), imagenet=True)
        return OpenedSuite((part,), tuple(missing), (root, answers))


def _stimuli(root: Path, name: str) -> list[LabelledFile]:
    """The images of a set, with what their names say; none where it is not there."""
    labels, in_classes = {one: some[0] for one, some in published()["classes"].items()}, name in published()["classed"]
    places = (place / name / ("" if in_classes else "dnn") for place in (root, root / "datasets"))
    folder, images = next(filter(Path.is_dir, places), None), list[LabelledFile]()
    for path in [] if folder is None else sorted(images_below(folder, []), key=natural_key):
        words, slices = Path(path).name.split("_"), {"set": name}
        kind = Path(path).parent.name if in_classes else words[4] if len(words) > 5 else ""
        if name == CUES:
            # dog10-bird2.png has the shape of a dog and the texture of a bird.
            slices["texture"] = re.sub(r"\d", "", words[-1].split(".")[0].split("-")[-1])
        if kind not in labels or slices.get("texture", kind) not in labels:
            forms = "NUMBER_SET_dnn_LEVEL_CLASS_..., CLASS/IMAGE or cue-conflict/SHAPE/SHAPE1-TEXTURE2.png"
            raise InputError(f"{path}: its name says no class (expected {forms}, of {', '.join(labels)})")
        slices |= {} if in_classes else _level(name, words[3])
        images.append(LabelledFile(path, path[len(f"{root}/") :], labels[kind], slices))
    return images


def _level(name: str, level: str) -> dict[str, str]:
    """A level as results name it: a number as short as it can be, else small letters; none of a set without levels."""
    short = f"{float(level):g}" if re.fullmatch(r"inf|\d+(\.\d+)?", level) else level.lower()
    return {} if name in published()["flat"] else {"level": short}


def _with_people(images: list[LabelledFile], folder: Path) -> list[LabelledFile]:
    """The same with what people made of each, where anybody was asked; models, whose answers may lie beside theirs, are
    left out."""
    people: dict[str, dict[tuple[str | float, ...], str]] = {}
    for file in sorted(folder.glob("*.csv")):
        head, _, rest = read_text(file, RECORD, "people's answers").partition("\n")
        lines = csv.DictReader(io.StringIO(f"{head.lower()}\n{rest}", newline=""), restval="")
        if absent := set(_HEADS).difference(lines.fieldnames or ()):
            raise InputError(f"{file}: has no column {min(absent)} (expected {', '.join(_HEADS)})")
        for line in (one for one in lines if one["subj"].startswith("subject-")):
            key = image_key({"set": folder.name, **_level(folder.name, line["condition"])}, line["imagename"])
            people.setdefault(line["subj"], {})[key] = str(int(line["object_response"] == line["category"]))
    said, keys = [people[one] for one in sorted(people)], [image_key(one.slices, one.name) for one in images]
    signs = ["".join(some.get(key, "-") for some in said) for key in keys]
    made = [replace(one, slices={**one.slices, "people": some}) for one, some in zip(images, signs, strict=True)]
    return made if any(one.strip("-") for one in signs) else images


def error_consistency(first: StoredLogits, second: StoredLogits) -> list[ResultRow]:
    """Cohen's kappa of what two models name rightly (Geirhos et al. 2020), on the images that both have: as rows of the
    first have it of people, the mean over sets, and of each set the mean over the levels that count.

    Raises:
        InputError: they are not of that suite, or share no image.
    """
    scored = second.scored()[0]
    right = map(str, (scored.logits.argmax(axis=1) == scored.labels).astype(int))
    # A model is one more person.
    signs = dict(zip(map(image_key, second.slices, second.names), right, strict=True))
    keys = map(image_key, first.slices, first.names)
    slices = [{**some, "people": signs.get(key, "-")} for some, key in zip(first.slices, keys, strict=True)]
    rows = [row for row in rescore(replace(first, slices=slices)) if row.metric == "error_consistency"]
    if not rows:
        raise InputError("error consistency: the two files of logits share no image of the suite model-vs-human")
    return rows


def image_key(slices: Mapping[str, str | float], name: str) -> tuple[str | float, ...]:
    """The set and level of an image, and what it is called whoever was shown it: the last two parts of its name where
    the first of these is a synset (n02951358_5952.JPEG), else the last one."""
    *_, before, last = ["", *name.rpartition("/")[2].split("_")]
    called = f"{before}_{last}" if before.startswith("n0") else last
    return slices.get("set", ""), slices.get("level", ""), called
