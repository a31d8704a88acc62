"""Golden cases of results: metrics of fixed outputs, what is computed of stored logits, and passes of tiny models."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from sightline.analysis.analyse import analysed
from sightline.analysis.labels import split_batches
from sightline.analysis.measures.base import measure_classes
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.data.targets import IGNORE
from sightline.encodings import list_encodings
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.cascade import CascadeConfig, measure
from sightline.evaluation.class_effects import class_effects
from sightline.evaluation.class_tables import class_rows, stored_tables
from sightline.evaluation.compared import compare_runs
from sightline.evaluation.logits import StoredLogits, find_logits, read_logits, rescore, write_logits
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.temperature import fit_temperature, temperatures_from_logits
from sightline.metrics.base import metrics_of
from sightline.metrics.box_ap import BoxAp
from sightline.metrics.iou import MeanIou
from sightline.models import ViTConfig, create_model
from sightline.results.classes import ClassStudy
from sightline.tasks.base import make_task
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.batches import labelled
from tests.compared import made_runs
from tests.contract.randomise import randomise_parameters
from tests.golden.data_cases import config_of, prepared
from tests.golden.forms import fixed_attention
from tests.golden.records import plain

COCO = Path(__file__).parents[1] / "metrics" / "coco_cases"
# Of the machine and the moment.
UNRECORDED = ("seconds", "commit", "hardware", "threads")


def rows_of(rows: Sequence[Any]) -> dict[str, Any]:
    """What all rows say once, then of each row the rest: value, stderr, interval and count of its metric and slices."""
    each = []
    for row in rows:
        fields = {one.name: getattr(row, one.name) for one in dataclasses.fields(row) if one.name not in UNRECORDED}
        each.append(plain({name: value for name, value in fields.items() if value not in (None, "", (), {})}))
    shared = {name: value for name, value in each[0].items() if all(one.get(name) == value for one in each)}
    return {"shared": shared, "rows": [{k: v for k, v in one.items() if k not in shared} for one in each]}


def draws(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def metrics() -> dict[str, Any]:
    """Every metric of a classifier, of maps and of boxes, of outputs that are given."""
    found = {}
    for link in ("softmax", "sigmoid"):
        rng = draws(1)
        logits, labels = rng.standard_normal((60, 7)) * 3, rng.integers(0, 7, 60)
        logits[np.arange(60), labels] += rng.uniform(0, 4, 60)
        logits[7] = logits[8]
        task: Any = make_task("classification", ViTConfig(num_classes=7, score_link=link), {})
        task.names, task.groups = [f"class {number}" for number in range(7)], {"low": [0, 1, 2], "high": [3, 4]}
        measures = metrics_of(task)
        slices = [{"size": float(number % 11), "group": "ab"[number % 2]} for number in range(60)]
        for start in (0, 25):
            part = slice(start, 25 if start == 0 else 60)
            for one in measures:
                one.update(torch.tensor(logits[part], dtype=torch.float32), labelled(labels[part], slices[part]))
        found[link] = rows_of([row for one in measures for row in one.rows()])
        found[f"{link}/temperature"] = plain(fit_temperature(logits.astype(np.float32), labels, link))
    return found | {"maps": _maps()} | {f"boxes/{name}": rows for name, rows in _boxes().items()}


def _maps() -> list[Any]:
    rng, classes = draws(2), 5
    names = ("background", *"abcd")
    config = ViTConfig(patch_size=4, num_classes=classes, class_names=names, head="pix", image_size=8)
    metric = MeanIou(make_task("segmentation", config, {}))
    for _ in range(6):
        true = rng.integers(0, classes, (8, 12)).repeat(3, 0)[:8]
        said = np.where(rng.random((8, 12)) < 0.6, true, rng.integers(0, classes, (8, 12)))
        true = np.where(rng.random((8, 12)) < 0.1, IGNORE, true)
        layout = TokenLayout.packed([Grid(2, 3)])
        batch = dataclasses.replace(
            labelled([0]), layout=layout, targets={"pixels": [torch.from_numpy(true.astype(np.uint8))]}
        )
        metric.update([torch.eye(classes)[torch.from_numpy(said)].permute(2, 0, 1)[None]], batch)
    return rows_of(metric.rows())


def _boxes() -> dict[str, Any]:
    """Average precision of the committed cases of pycocotools and LVIS."""
    found = {}
    for file in ("pycocotools", "lvis_hotcoco"):
        text = json.loads((COCO / f"{file}.json").read_text())
        for number, case in enumerate(text["cases"]):
            size, classes = (
                tuple(text["size"]),
                1 + max(int(one[4]) for image in case["images"] for part in ("there", "found") for one in image[part]),
            )
            config = ViTConfig(num_classes=classes, class_names=tuple(map(str, range(classes))), task="detection")
            metric = BoxAp(
                SimpleNamespace(config=config, names=list(config.class_names), options=SimpleNamespace(most=100))
            )
            metric.restore([_seen(image, size) for image in case["images"]])
            found[f"{file}/{number}"] = rows_of(metric.rows())
    return found


def _seen(image: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    there = np.array(image["there"], np.float64).reshape(-1, len(image["there"][0]) if image["there"] else 5)
    found = np.array(image["found"], np.float64).reshape(-1, 6)
    count = len(there)
    objects: dict[str, Any] = {"boxes": there[:, :4].reshape(-1, 4), "size": size}
    objects["labels"] = there[:, 4].astype(np.int64) if count else np.zeros(0, np.int64)
    wide = count and there.shape[1] > 5
    objects["crowd"] = there[:, 5].astype(bool) if wide else np.zeros(count, bool)
    areas = (objects["boxes"][:, 2:] - objects["boxes"][:, :2]).prod(axis=1)
    objects["areas"] = there[:, 6] if wide else areas
    return {
        "boxes": found[:, :4],
        "labels": found[:, 4].astype(np.int64),
        "scores": found[:, 5] / 12,
        "objects": objects,
    }


def tiny_model(data: str = "scenes", encoding: str = "lookhere_90", seed: int = 0, **options: Any) -> Any:
    source = open_source(data)
    classes = {"class_names": tuple(source.classes), "num_classes": len(source.classes)}
    shape = {"image_size": 16, "depth": 2, "dim": 48, "heads": 4}
    model = create_model("vit_micro_patch4", encoding=encoding, **{**shape, **classes, **options})
    return randomise_parameters(model, seed).eval()


def stored_logits() -> dict[str, Any]:
    """What is computed of stored logits: rows again, temperatures, tables of classes, effects and comparisons."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for encoding in ("lookhere_90", "learned_1d"):
            for seed in (0, 1):
                _store(folder, encoding, seed)
        files = sorted(find_logits(folder), key=lambda one: one.name)
        fitted = temperatures_from_logits(files)
        for file in files:
            stored = read_logits(file)
            key = "/".join(str(stored.measured[one]) for one in ("run", "split", "resolution"))
            found[f"rows/{key}"] = rows_of(rescore(stored, temperature=fitted.of(stored)))
        tables = stored_tables([file for file in files if read_logits(file).measured["split"] == "test"])
        found["tables"] = rows_of([row for one in tables for row in class_rows(one)])
        found["effects"] = [plain(one) for one in class_effects(ClassStudy(tables))]
        kinds: dict[str, list[Any]] = {}
        for row in compare_runs(made_runs(folder / "compared")):
            kinds.setdefault(type(row).__name__, []).append(row)
        found |= {f"compared/{number}": rows_of(kinds[kind]) for number, kind in enumerate(kinds)}
    return found


def _store(folder: Path, encoding: str, seed: int) -> None:
    """Logits of a run at two sizes and on minival, drawn and not computed."""
    rng, classes = draws(1000 * seed + len(encoding)), 6
    for split, side in (("minival", 16), ("test", 16), ("test", 24), ("test", 48)):
        labels = np.arange(40) % classes
        logits = rng.standard_normal((40, classes)) * 2
        logits[np.arange(40), labels] += 2.5 - side / 32
        measured = {
            "run": f"{encoding}_{seed}", "encoding": encoding, "task": "t", "data": "d", "split": split,
            "train_resolution": 16, "seed": seed, "commit": "c", "hardware": "h", "resolution": side,
            "grid": (side // 4, side // 4), "knob": None, "tuned": False, "seconds": 1.0, "view": "square",
            "patches": float((side // 4) ** 2), "shrunk": None, "tuning": (), "ranks": 1,
        }  # fmt: skip
        task = {
            "score_link": "softmax", "options": {"loss": "ce", "label_smoothing": 0.0}, "groups": {},
            "classes": [f"class {number}" for number in range(classes)],
        }  # fmt: skip
        stored = StoredLogits(
            logits.astype(np.float32), labels.astype(np.int64), np.arange(40, dtype=np.int64),
            [f"{number}.png" for number in range(40)], [{"size": number / 40} for number in range(40)], task, measured,
            f"{encoding}{seed}-work",
        )  # fmt: skip
        write_logits(folder, f"{split}_{encoding}_{seed}_{side}_px.npz", stored)


def evaluations() -> dict[str, Any]:
    """Rows of tiny models: squares, views, tuned, with a temperature, segmentation and detection; a cascade."""
    found = {}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "lookhere_90": ({}, {"resolutions": (16, 24, View("tokens", 30)), "knobs": "both", "tune_images": 12}),
        "rope_axial": ({"encoding": "rope_axial"}, {"resolutions": (32,), "splits": ("test", "heldout_fonts")}),
        "learned_1d": ({"encoding": "learned_1d"}, {"resolutions": (24,), "knobs": "both", "tune_images": 12}),
        "sigmoid": ({"score_link": "sigmoid"}, {"resolutions": (16,), "temperature": True, "temperature_images": 16}),
        "digits": ({"data": "digits", "encoding": "alibi_2d"}, {"resolutions": (View("tokens", 9), 8)}),
        "segmentation": ({"task": "segmentation"}, {"resolutions": (16, 24)}),
        "detection": ({"task": "detection"}, {"resolutions": (16, 24)}),
    }
    for name, (options, config) in cases.items():
        data = options.get("data", "scenes")
        model = _dense_model(options["task"]) if "task" in options else tiny_model(**options)
        identity = RunInfo("name", data, 16, 3)
        asked = EvaluateConfig(**{"images": 16, "precision": "float32", **config})
        with fixed_attention():
            found[name] = rows_of(evaluate(model, open_source(data), asked, identity))
    model, source = tiny_model("digits", "rope_axial", score_link="sigmoid"), open_source("digits")
    config = CascadeConfig((4, 9), (4, 16), alphas=(0.25, 0.5), images=40, aspect="square", precision="float32")
    with fixed_attention():
        rows = measure(model, source, config, RunInfo("one", "digits", 16, 3))
    # Times are of the machine.
    timed = [one.name for one in dataclasses.fields(rows[0]) if "second" in one.name and one.name != "second_budget"]
    found["cascade"] = rows_of([dataclasses.replace(one, **dict.fromkeys(timed)) for one in rows])
    return found


def _dense_model(task: str) -> Any:
    return randomise_parameters(prepared(config_of(data="scenes", resolution=16, task=task))[2]).eval()


def analyses() -> dict[str, Any]:
    """What every measure finds in a tiny model, of images that are not square."""
    found, source = {}, open_source("scenes")
    for encoding in ("lookhere_90", "rope_axial+learned_1d"):
        model = tiny_model(encoding=encoding)
        for name, kind in measure_classes().items():
            shown = split_batches(model, source, "test", range(3), (16, 24))
            # Not every measure is for every encoding.
            with fixed_attention(), contextlib.suppress(InputError):
                analysis = analysed(model, kind, {(16, 24): shown})
                found[f"{encoding}/{name}"] = [plain(one) for one in analysis.arrays.values()]
    return found


def logits() -> dict[str, Any]:
    """Logits of every encoding: images of one size, of several, packed, and with tokens dropped."""
    rng, found = draws(5), {}
    alike = torch.from_numpy(rng.uniform(size=(2, 3, 16, 24)).astype(np.float32))
    mixed = [
        torch.from_numpy(rng.uniform(size=(3, *size)).astype(np.float32)) for size in ((16, 16), (8, 20), (32, 12))
    ]
    for encoding in list_encodings():
        model = tiny_model(encoding=encoding)
        with fixed_attention(), torch.inference_mode():
            found[encoding] = {"alike": plain(model(alike)), "mixed": plain(model(mixed))}
    return found


GROUPS: dict[str, Callable[[], Any]] = {
    "metrics": metrics,
    "stored_logits": stored_logits,
    "evaluations": evaluations,
    "analyses": analyses,
    "logits": logits,
}
