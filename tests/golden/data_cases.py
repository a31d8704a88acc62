"""Golden cases of data and training: scenes, batches, plans, and weights after three steps."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sightline.data.config import MixingConfig, PackingConfig, PatchSizes
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.evaluation.predict import plan_split
from sightline.models import create_model
from sightline.recipes import list_recipes, recipe
from sightline.tasks.base import Task, task_class
from sightline.training.config import OptimizerConfig, TrainConfig
from sightline.training.plan import TrainingPlan, as_trained_on, training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from tests.golden.forms import fixed_attention
from tests.golden.records import digest, plain, summary
from tests.tiny import train

CPU = torch.device("cpu")
MODEL = {"depth": 2, "dim": 48, "heads": 4}
TUBELETS = {"embedder": "tubelets", "embedder_options": {"frames": 2}}
AUGMENTATIONS = {
    "rand_augment": {}, "three_augment": {}, "colour_jitter": {"hue": 0.1}, "random_erasing": {},
}  # fmt: skip
DROPS: dict[str, dict[str, Any]] = {
    "constant": {"drop": 0.3}, "beta": {}, "length": {}, "schedule": {},
}  # fmt: skip
# Weights move by the gradient itself: Adam's steps are as large where a gradient is rounding alone.
SGD = OptimizerConfig(name="sgd", lr=0.05, clip=None)


def config_of(**changes: Any) -> TrainConfig:
    config = TrainConfig(
        data="digits", model_options=dict(MODEL), encoding="learned_1d", resolution=16, images=96, batch_size=8,
        precision="float32", validation=None, optimizer=SGD, seed=3,
    )  # fmt: skip
    return dataclasses.replace(config, **changes)


def packed(tokens: int = 128, **options: Any) -> dict[str, Any]:
    return {"batch_size": None, "packing": PackingConfig(tokens=tokens, **options)}


def pictures(folder: Path) -> str:
    """A folder of noisy pictures of many sizes and two classes, upright and wide."""
    draws = np.random.Generator(np.random.Philox(11))
    for split, name, number in itertools.product(("train", "test"), ("a", "b"), range(6)):
        place = folder / split / name
        place.mkdir(parents=True, exist_ok=True)
        pixels = draws.integers(0, 256, (*draws.integers(12, 60, 2).tolist(), 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return f"imagefolder:{folder}"


def runs(folder: str) -> dict[str, TrainConfig]:
    """Configurations whose batches are recorded; `folder` is that of `pictures`."""
    scenes = {"data": "scenes", "resolution": 24}
    found = {
        "digits": config_of(epochs=0.1, images=None),
        "digits_workers": config_of(epochs=0.1, images=None, workers=2),
        "scenes": config_of(**scenes),
        "scenes_parts": config_of(**scenes, parts=0.5, flip=0.5, interpolation="bicubic"),
        "progressive": config_of(data="scenes", resolution=24, progressive=(8, 16)),
        "repeats": config_of(data=folder, repeats=3, augment={"three_augment": {}}),
        "simple": config_of(data=folder, parts="simple"),
        "mixup": config_of(data=folder, mixing=MixingConfig(mixup=0.8)),
        "cutmix": config_of(data=folder, mixing=MixingConfig(mixup=0.8, cutmix=1.0)),
        "flexi": config_of(
            data="scenes", resolution=24, patch_sizes=PatchSizes((4, 6, 8)),
            model_options={**MODEL, "embedder": "flexible"},
        ),
        "packed_scenes": config_of(data="scenes", **packed(resolutions=(8, 32))),
        "packed_native": config_of(data=folder, resolution=32, **packed(256)),
        "packed_native_workers": config_of(data=folder, resolution=32, **packed(256), workers=2),
        "packed_square": config_of(data=folder, **packed(resolutions=(8, 24), aspect="square", measure="area")),
        "packed_padded": config_of(data="scenes", **packed(resolutions=(8, 32), padded=(64, 96, 128))),
        "packed_best_fit": config_of(data="scenes", **packed(resolutions=(8, 32), algorithm="best_fit")),
        "packed_most": config_of(data="scenes", **packed(resolutions=(8, 32), most_images=4, most_tokens=36)),
        "packed_mixed": config_of(data=folder, **packed(resolutions=(8, 24)), mixing=MixingConfig(cutmix=1.0)),
        "packed_flexi": config_of(
            data="scenes", patch_sizes=PatchSizes((4, 8)), model_options={**MODEL, "embedder": "flexible"},
            **packed(resolutions=(16, 32)),
        ),
        "clips": config_of(data="moving", resolution=8, frames=4, model_options={**MODEL, **TUBELETS}),
        "clips_strided": config_of(
            data="moving", resolution=8, frames=4, frame_stride=2, model_options={**MODEL, **TUBELETS}
        ),
        "segmentation": config_of(**scenes, task="segmentation", parts=0.5),
        "detection": config_of(**scenes, task="detection", parts=0.5),
        "masked_patches": config_of(**scenes, task="masked_patches"),
    }  # fmt: skip
    found |= {name: config_of(data=folder, augment={name: options}) for name, options in AUGMENTATIONS.items()}
    for name, options in DROPS.items():
        found[f"drop_{name}"] = config_of(data="scenes", **packed(resolutions=(8, 32), drop=name, drop_options=options))
    return found


def prepared(config: TrainConfig) -> tuple[TrainConfig, Source, Any, Task, TrainingPlan]:
    source = as_trained_on(open_training_data(config), config)
    config = resolve(config, source, CPU)
    model = build_model(config, source)
    task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
    return config, source, model, task, training_plan(config, model.config, source)


def batch_record(batch: Any) -> dict[str, Any]:
    layout = batch.layout
    where = [[list(one.grid), digest(one.indices)] for one in layout.segments]
    return {
        "inputs": plain(batch.inputs),
        "layout": digest(layout.rows, layout.num_prefix_tokens, layout.padding, where),
        "indices": batch.indices.tolist(),
        "names": digest([Path(name).name for name in batch.names]),
        "targets": plain({name: one for name, one in batch.targets.items() if name != "objects"}),
        "objects": [plain([one.boxes, digest(one.labels)]) for one in batch.targets.get("objects", ())],
    }


def scenes() -> dict[str, Any]:
    """Pictures and what is said of them, of every task and split."""
    found = {}
    for task in ("glyphs", "pairs", "search", "many"):
        source = open_source(f"scenes:{task}")
        for split, size in itertools.product(source.splits, ((32, 32), (24, 56))):
            one = [source.example(split, index, size, seed=5) for index in (0, 1, 17, 1000)]
            found[f"{task}/{split}/{size[0]}x{size[1]}"] = {
                "pictures": digest(*(each.image for each in one)),
                "labels": [int(each.target.label) for each in one],
                "names": [each.name for each in one],
                "objects": [summary(each.target.objects.boxes) for each in one[:2]],
            }
    moving = open_source("moving")
    clips = [moving.example("train", index, (16, 16), seed=5) for index in range(3)]
    return found | {"moving": {"pictures": digest(*(each.image for each in clips))}}


def batches() -> dict[str, Any]:
    """The first batches of each of `runs`."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in runs(pictures(Path(folder))).items():
            _, _, model, task, plan = prepared(config)
            steps = plan.batches(model.image_rows, task)
            found[name] = [batch_record(parts[0]) for _, parts in itertools.islice(steps, 2)]
            steps.close()
    return found


def plan_record(plan: TrainingPlan) -> dict[str, Any]:
    steps = []
    for step, images in itertools.islice(plan.steps(0), 200):
        each = [
            [one.index, one.epoch, list(one.image_size), one.tokens, one.patch_size,
             None if one.patch_indices is None else digest(one.patch_indices)]
            for one in images
        ]  # fmt: skip
        steps.append([step.number, step.epoch, list(step.before), list(step.after), step.begins, step.ends, each])
    ends = steps[-1]
    return {
        "steps": len(steps),
        "images": digest([step[6] for step in steps]),
        "cost": digest([step[2:4] for step in steps]),
        "last": [*ends[:2], *ends[3], ends[4], ends[5]],
    }


def plans() -> dict[str, Any]:
    """Two hundred steps of each of `runs`, and how a split is measured."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pictures(Path(folder))
        for name, config in runs(data).items():
            if config.epochs is None:
                config = dataclasses.replace(config, images=1700)
            found[name] = plan_record(prepared(config)[4])
        model, source = create_model("vit_micro_patch4", num_classes=2), open_source(data)
        for view in (16, View("max", 24), View("tokens", 30), View("native")):
            measured = plan_split(model, source, "test", range(12), view)
            name = f"measured/{getattr(view, 'name', view)}"
            found[name] = [[(one.index, *one.image_size, one.tokens) for one in batch] for batch in measured]
    return plain(found)


def weight_runs() -> dict[str, TrainConfig]:
    scenes = {"data": "scenes", "resolution": 24}
    return {
        "rotary": config_of(
            encoding="rope_mixed+learned_1d", optimizer=dataclasses.replace(SGD, ema=0.7),
            model_options={**MODEL, "drop_path": 0.3},
        ),
        "lookhere": config_of(**scenes, encoding="lookhere_90", loss="ce", label_smoothing=0.1),
        "accumulated": config_of(encoding="rpe_learned", accumulate=2, recompute=True),
        "adamw": config_of(encoding="sincos_2d", optimizer=OptimizerConfig(lr=1e-3, eps=0.05)),
        "packed": config_of(data="scenes", encoding="factorized", **packed(resolutions=(8, 32))),
        "dropped": config_of(
            data="scenes", encoding="lookhere_90",
            **packed(resolutions=(8, 32), drop="constant", drop_options={"drop": 0.4}),
        ),
        "segmentation": config_of(**scenes, task="segmentation", encoding="rope_axial"),
        "detection": config_of(**scenes, task="detection", encoding="alibi_2d"),
        "masked_patches": config_of(**scenes, task="masked_patches"),
        "swin": config_of(**scenes, model="swin_micro_patch4", model_options={}, encoding="relative_1d"),
        "clips": config_of(
            data="moving", resolution=8, frames=4, encoding="factorized", model_options={**MODEL, **TUBELETS}
        ),
    }  # fmt: skip


def weights_after_steps() -> dict[str, Any]:
    """Weights and losses of runs of three steps."""
    found = {}
    for name, config in weight_runs().items():
        steps, losses = 3, []
        if config.packing is None:
            config = dataclasses.replace(config, images=steps * 8)
        else:
            config = dataclasses.replace(config, images=40)
        with tempfile.TemporaryDirectory() as out, fixed_attention():
            model = train(config, Path(out) / "run", observe=lambda at, seen=losses: seen.append(float(at.loss)))
        found[name] = {
            "losses": losses,
            "weights": {key: summary(value) for key, value in _few(model.state_dict()).items()},
        }
    return found


def _few(state: dict[str, Any]) -> Iterator[tuple[str, Any]] | Any:
    """All tensors of floats as a few: each fourth by name, and the norm of all of them."""
    floats = {key: value.double() for key, value in sorted(state.items()) if value.is_floating_point()}
    norms = torch.stack([value.norm() for value in floats.values()])
    return {"norms of all": norms} | {key: floats[key] for key in list(floats)[::4]}


def recipes() -> dict[str, Any]:
    """Every recipe's configuration."""
    return {name: dataclasses.asdict(recipe(name)) for name in list_recipes()}


GROUPS: dict[str, Callable[[], Any]] = {
    "scenes": scenes,
    "batches": batches,
    "plans": plans,
    "weights": weights_after_steps,
    "recipes": recipes,
}
