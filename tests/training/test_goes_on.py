"""A run of any kind, stopped and resumed, ends with the weights, the state and the log of one that never was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sightline.data.config import MixingConfig, PackingConfig, PatchSizes
from sightline.errors import StoppedError
from sightline.training.config import OptimizerConfig, TrainConfig
from tests.clips import make
from tests.tiny import EVENTFUL, MODEL, TRAINING, digest, log_lines, pictures, tiny_config, train

AUGMENT = {
    "three_augment": {},
    "colour_jitter": {"hue": 0.1},
    "rand_augment": {"operations": 1},
    "random_erasing": {"chance": 0.5},
}
SMALL = tiny_config(images=24, batch_size=4, checkpoint_every=8)
DROPPED = {"drop": "constant", "drop_options": {"drop": 0.2}}
DRAWN = tiny_config(
    data="scenes", resolution=24, images=76, batch_size=8, checkpoint_every=8, encoding="rope_axial+learned_1d",
    model_options={**MODEL, "embedder": "flexible", "embedder_options": {"base": 8}},
    patch_sizes=PatchSizes((8, 6, 4), (1.0, 2.0, 1.0)), optimizer=OptimizerConfig(ema=0.5),
)  # fmt: skip
DRAWN_PACKED = dataclasses.replace(
    DRAWN, data="digits", packing=PackingConfig(tokens=64, resolutions=(8, 20), aspect="square", **DROPPED)
)
# Seven steps: 3 of 8 px, 2 of 16, 2 of 24.
GROWING = tiny_config(
    data="scenes", resolution=24, progressive=(8, 16), images=52, batch_size=8, checkpoint_every=8,
    encoding="rope_axial+learned_1d", optimizer=OptimizerConfig(ema=0.5),
)  # fmt: skip
CLIPS = dataclasses.replace(
    SMALL, data="clips", model_options={**MODEL, "embedder": "tubelets", "embedder_options": {"frames": 2}},
    resolution=8, frames=4,
)  # fmt: skip
WORDS = {"embed_dim": 16, "vocab_size": 300, "text": {"dim": 16, "depth": 1, "heads": 2, "length": 12}}
PROBE = dataclasses.replace(
    SMALL, data="scenes:pairs", images=48, batch_size=16, model_options={}, init_from="begun", frozen=True,
    task="segmentation", task_options={"head": "linear_map"},
)  # fmt: skip
LAYERS = {"head": "upernet", "head_options": {"layers": [0, 0, 0, 0], "channels": 4}}
OPTIMIZERS = {
    "adam": OptimizerConfig(lr=1e-2, name="adam", layer_decay=0.7, schedule="rsqrt", cooldown=2),
    "lamb": OptimizerConfig(lr=1e-2, name="lamb", head_decay=1.0, schedule="linear"),
}
# What is trained, and after how many steps it is stopped.
RUNS = {
    "adam": (dataclasses.replace(SMALL, optimizer=OPTIMIZERS["adam"]), 3),
    "lamb": (dataclasses.replace(SMALL, optimizer=OPTIMIZERS["lamb"]), 3),
    "augmented": (
        dataclasses.replace(SMALL, data="images", images=25, augment=AUGMENT, parts="simple", repeats=2), 4
    ),
    "patch sizes, packed": (DRAWN_PACKED, 3),
    "as the size changes": (GROWING, 3),
    "clips": (CLIPS, 3),
    "pairs": (dataclasses.replace(SMALL, data="scenes:captions", task="contrastive", task_options=WORDS), 3),
    "clips, mixed": (dataclasses.replace(CLIPS, mixing=MixingConfig(cutmix=1.0)), 3),
    "clips, packed": (dataclasses.replace(CLIPS, batch_size=None, packing=PackingConfig(tokens=40, **DROPPED)), 3),
    "a probe": (PROBE, 2),
    "a probe of layers": (dataclasses.replace(PROBE, task_options=LAYERS), 2),
    "masked patches": (
        tiny_config(task="masked_patches", images=128, checkpoint_every=64, encoding="rope_axial+learned_1d"), 3
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the runs are of, and one that others begin with."""
    folder = tmp_path_factory.mktemp("places")
    trunk = tiny_config(data="scenes:pairs", images=16, batch_size=16, model_options=EVENTFUL.model_options)
    train(trunk, folder / "begun")
    return {
        "images": pictures(folder / "images", count=5),
        "clips": f"clips:{make(folder / 'clips')}",
        "begun": str(folder / "begun"),
    }


@pytest.mark.parametrize("name", RUNS)
def test_it_goes_on_to_the_bit(name: str, places: dict[str, str], tmp_path: Path) -> None:
    config, stop = RUNS[name]
    begun = config.init_from and places[config.init_from]
    config: TrainConfig = dataclasses.replace(config, data=places.get(config.data, config.data), init_from=begun)
    train(config, tmp_path / "whole")
    asked = iter(range(1, 100))
    with pytest.raises(StoppedError):
        # Workers do not change what is seen.
        train(dataclasses.replace(config, workers=stop % 2), tmp_path / "parts", stop=lambda: next(asked) == stop)
    assert len(log_lines(tmp_path / "parts")) == stop
    train(config, tmp_path / "parts", resume=True)
    assert log_lines(tmp_path / "parts") == log_lines(tmp_path / "whole")
    for file in ("model.safetensors", TRAINING):
        assert digest(tmp_path / "parts/checkpoint" / file) == digest(tmp_path / "whole/checkpoint" / file)
