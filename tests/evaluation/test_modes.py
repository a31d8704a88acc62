"""What measures a model does so in evaluation mode, whatever mode it is handed over in."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sightline.convert.verify import fingerprint
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.predict_images import predict_images
from sightline.models import VisionTransformer, create_model
from sightline.tasks.base import task_of
from tests.batches import said
from tests.contract.randomise import randomise_parameters


def evaluated(model: VisionTransformer):
    config = EvaluateConfig((16,), images=40, knobs="both", tune_images=5, precision="float32")
    rows = evaluate(model, open_source("digits"), config, RunInfo("name", "digits", 16, 0))
    return [(row.metric, row.value, row.tuned) for row in rows]


@pytest.mark.parametrize("way", ["evaluate", "cascade", "predict", "verify"])
def test_measuring_is_in_evaluation_mode_whatever_the_model_is_in(way: str, tmp_path) -> None:
    Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(tmp_path / "one.png")
    measure = {
        "evaluate": evaluated,
        "cascade": lambda model: said(model, open_source("digits"), "test", range(4), View("tokens", 9)).logits,
        "predict": lambda model: next(predict_images(model, task_of(model), [str(tmp_path / "one.png")]))[
            0
        ].output.numpy(),
        "verify": fingerprint,
    }[way]
    made = create_model(
        "vit_micro_patch4", encoding="alibi_2d", drop_path=0.9, depth=1, dim=48, heads=4, num_classes=10, image_size=16
    )
    model = randomise_parameters(made).eval()
    expected = measure(model)
    model.train()
    model.blocks[0].mlp.eval()
    before = [part.training for part in model.modules()]
    np.testing.assert_equal(measure(model), expected)
    assert [part.training for part in model.modules()] == before
