"""Exported programs have the numbers of the model at sizes that were never traced."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.errors import NonFiniteError
from sightline.export import LIMIT, check_export, export_model
from tests.contract.contract import PATCH, SPREAD, build
from tests.export.models import UNSEEN, assert_the_same, session, small


@pytest.mark.slow
def test_onnx_on_a_large_grid(exported):
    """Angles and distances are large there; 35 x 50 patches."""
    model = small("lookhere_90+rope_mixed")
    assert_the_same(exported(model), model, [(35 * PATCH, 50 * PATCH)])


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "rule"), [
    ("learned_1d", "bicubic_antialias"), ("rpe_learned", "bicubic"),
])  # fmt: skip
def test_onnx_resizes_tables_by_each_rule(encoding, rule, exported):
    model = small(encoding, encoding_options={"interpolation": rule})
    assert_the_same(exported(model), model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "options"),
    [
        ("attention", {"depth": 2}),
        ("mean", {"num_registers": 0, "num_classes": 0}),
        ("cls", {"qk_norm": True, "layer_scale": 0.1, "head": "mlp", "final_norm": "after_pool", "gelu": "tanh"}),
        ("mean", {"channels": 1, "fit": "resize", "patch_size": 6, "image_size": (36, 48)}),
    ],
)
def test_every_kind_of_model_exports_to_onnx(pool, options, exported):
    model = small("lookhere_90", pool, **{key: options[key] for key in options if key != "num_classes"})
    if "num_classes" in options:
        model.reset_classifier(0)
    file, patch = exported(model), model.config.patch_size
    rows = check_export(file, model, [(3 * patch, 5 * patch), (9 * patch, 4 * patch)])
    assert all(row.difference < LIMIT and row.spread > SPREAD for row in rows)
    names = [one.name for one in session(file).get_outputs()]
    assert names == (["features"] if "num_classes" in options else ["logits"])


@pytest.mark.slow
@pytest.mark.parametrize(("head", "options"), [("fcos", {}), ("eomt", {"queries": 3})])
def test_heads_of_all_tokens_are_compared_in_all_that_they_say(head, options, tmp_path):
    task = "detection" if head in ("fcos", "detr_queries") else "segmentation"
    model = small("rope_axial", "cls", head=head, head_options=options, task=task)
    export_model(model, tmp_path / "model.pt2", to="torch")
    for row in check_export(tmp_path / "model.pt2", model, UNSEEN):
        assert row.difference < LIMIT
        assert row.same_top1 == 1
        assert row.spread > 0.01
        assert row.images == 4


@pytest.mark.slow
def test_the_knob_is_exported_as_it_is_set(exported):
    model = small("lookhere_90")
    model.set_knob(model.knob.candidates[-1])
    file = exported(model)
    assert_the_same(file, model)
    model.set_knob(model.knob.default)
    assert max(row.difference for row in check_export(file, model, UNSEEN)) > LIMIT


def test_another_models_file_is_found_out(onnx_file):
    """The comparison can fail: other weights, and the same with one number changed a little."""
    assert all(row.difference > 100 * LIMIT for row in check_export(onnx_file, build("learned_1d", "mean", seed=1)))
    model = small()
    with torch.no_grad():
        model.head.bias[2] += 2 * LIMIT
    assert all(row.difference > LIMIT for row in check_export(onnx_file, model, UNSEEN))


@pytest.mark.slow
def test_int8_says_its_error(exported):
    import onnx

    model = small("lookhere_90")
    file = exported(model, int8=True)
    assert "MatMulInteger" in {node.op_type for node in onnx.load(file).graph.node}
    assert session(file).get_modelmeta().custom_metadata_map["encoding"] == "lookhere_90"
    for row in check_export(file, model, UNSEEN, batches=(1, 31)):
        assert row.images == 32
        assert all(map(math.isfinite, (row.difference, row.mean_difference, row.spread)))
        assert LIMIT < row.difference < row.spread
        assert 0 < row.mean_difference < 0.1 * row.spread
        assert 0.8 <= row.same_top1 <= 1


def test_outputs_that_are_not_finite_are_no_match(onnx_file):
    model = small()
    with torch.no_grad():
        model.head.bias[0] = math.inf
    with pytest.raises(NonFiniteError):
        check_export(onnx_file, model, UNSEEN)
