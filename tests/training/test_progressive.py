"""Images that grow over a run: each step's size is a function of its number, and a run goes on on either side of it."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

from sightline.data.config import PackingConfig
from sightline.errors import InputError, StoppedError
from sightline.models.flops import training_flops
from sightline.tasks.base import task_class
from sightline.training.config import OptimizerConfig
from sightline.training.plan import SizeSchedule, as_trained_on, training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from tests.tiny import TRAINING, digest, log_lines, tiny_config, train

# Seven steps: 3 of 8 px, 2 of 16, 2 of 24.
GROWING = tiny_config(
    data="scenes", resolution=24, progressive=(8, 16), images=52, batch_size=8, checkpoint_every=8,
    encoding="rope_axial+learned_1d", optimizer=OptimizerConfig(ema=0.5),
)  # fmt: skip


def resolved(config):
    source = as_trained_on(open_training_data(config), config)
    return resolve(config, source, torch.device("cpu")), source


def test_the_size_of_every_step():
    config, source = resolved(GROWING)
    model = build_model(config, source)
    task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
    plan = training_plan(config, model.config, source)
    seen, before = [], (0, 0, 0)
    for step, (batch,) in plan.batches(model.image_rows, task):
        (segment,) = batch.layout.segments
        seen.append((segment.grid.rows * 4, len(batch)))
        assert step.before == before
        before = step.after
        assert batch.inputs.shape[:2] == (len(batch), segment.grid.cells)
    assert seen == [(8, 8)] * 3 + [(16, 8)] * 2 + [(24, 8), (24, 4)]
    patches = [side**2 // 16 for side, count in seen for _ in range(count)]
    prefix = model.config.num_prefix_tokens
    assert before == (52, sum(patches) + 52 * prefix, sum(training_flops(model.config, [one]) for one in patches))


@pytest.mark.parametrize(("steps", "sides"), [(1, 1), (1, 3), (2, 3), (7, 3), (100, 4), (3, 5)])
def test_parts_are_equal_and_cover_the_run(steps, sides):
    begins = SizeSchedule(sides, ()).begins(steps)
    assert (begins[0], begins[-1]) == (0, steps)
    lengths = [after - before for before, after in itertools.pairwise(begins)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("stop", [2, 3, 4, 6])
def test_a_run_goes_on_on_either_side_of_a_change(stop, tmp_path):
    train(GROWING, tmp_path / "whole")
    asked = iter(range(100))
    with pytest.raises(StoppedError):
        train(GROWING, tmp_path / "parts", stop=lambda: next(asked) >= stop - 1)
    train(dataclasses.replace(GROWING, workers=2 * (stop == 4)), tmp_path / "parts", resume=True)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
    for name in ("checkpoint/model.safetensors", f"checkpoint/{TRAINING}"):
        assert digest(tmp_path / "whole" / name) == digest(tmp_path / "parts" / name)
    tokens = [json.loads(line)["tokens"] for line in log_lines(tmp_path / "whole")]
    assert np.all(np.diff(tokens) > 0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"progressive": (16, 8)}, r"progressive \[16, 8\]: expected sides that rise, as \[8, 16\]"),
        ({"progressive": (8, 8)}, r"progressive \[8, 8\]: expected sides that rise, as \[8\]"),
        ({"progressive": (0,)}, "progressive"),
        ({"progressive": (8, 24)}, r"progressive \[8, 24\]: ends at 24 px, expected sides below the resolution of 24"),
        ({"progressive": (10,)}, r"progressive: .*10"),
        ({"packing": PackingConfig(tokens=64)}, r"progressive \[8, 16\]: packs draw their own sizes"),
    ],
)
def test_what_does_not_grow_is_refused_before_the_run(changes, says, tmp_path):
    with pytest.raises(InputError, match=says):
        train(dataclasses.replace(GROWING, **changes), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()
