"""`create_model(init_from=)`: everything but what was asked to be another thing, and that is named."""

from __future__ import annotations

import logging

import pytest
import torch

import sightline
from sightline.encodings import list_encodings
from sightline.encodings.knob import without_knobs
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters

SMALL = {"image_size": 16, "depth": 2, "dim": 48, "heads": 12, "num_classes": 5}


@pytest.fixture
def trained(tmp_path):
    model = create_model(
        "vit_micro_patch4", encoding="learned_1d", class_names=tuple("abcde"), mean=(0.1, 0.2, 0.3), **SMALL
    )
    sightline.save_model(randomise_parameters(model), tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("encoding", [name for name in list_encodings() if name != "learned_1d"])
def test_another_encoding_keeps_all_else(encoding, trained, caplog):
    before = sightline.load_model(trained)
    with caplog.at_level(logging.WARNING, "sightline"):
        after = sightline.create_model(init_from=trained, encoding=encoding)
    assert after.config.encoding == encoding
    assert after.training
    assert (after.config.class_names, after.config.mean) == (tuple("abcde"), (0.1, 0.2, 0.3))
    ours, theirs = without_knobs(after.state_dict()), before.state_dict()
    kept = {name for name in theirs if not name.startswith("encoding.")}
    assert kept == {name for name in ours if not name.startswith("encoding.")}
    assert all(torch.equal(ours[name], theirs[name]) for name in kept)
    assert after.reinitialized == tuple(name for name in ours if name.startswith("encoding."))
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"encoding {encoding} instead of learned_1d" in line
    assert "not used: encoding.table, encoding.prefix" in line
    for name in after.reinitialized:
        assert name in line
    # It computes and learns.
    loss = after(torch.randn(2, 3, 16, 20)).square().sum()
    loss.backward()
    assert loss.isfinite()


def test_the_same_encoding_is_kept_with_its_options(tmp_path, caplog):
    options = {"interpolation": "bicubic_antialias", "prefix": False}
    model = create_model("vit_micro_patch4", encoding="learned_1d", encoding_options=options, **SMALL)
    sightline.save_model(randomise_parameters(model), tmp_path / "m")
    with caplog.at_level(logging.WARNING, "sightline"):
        again = sightline.create_model("vit_micro_patch4", init_from=tmp_path / "m", depth=2, dim=48, drop_path=0.2)
    assert not caplog.records
    assert again.encoding.config.interpolation == "bicubic_antialias"
    assert again.config.drop_path == 0.2
    assert again.reinitialized == ()
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))


def test_another_number_of_classes_is_a_new_head(trained):
    before = sightline.load_model(trained)
    after = sightline.create_model(init_from=before, num_classes=3, encoding="rope_mixed")
    assert after.num_classes == 3
    assert after.config.class_names is None
    assert after.reinitialized == ("encoding.freqs", "head.weight", "head.bias")
    assert torch.equal(after.blocks[1].mlp.fc1.weight, before.blocks[1].mlp.fc1.weight)
    # A model that was given is not changed.
    assert before.num_classes == 5


@pytest.mark.parametrize("trunk", [{}, {"pool": "attention"}, {"pool": "mean", "final_norm": "both"}])
def test_another_kind_of_head_is_new_and_said(trunk, tmp_path, caplog):
    """A classifier's trunk learns another task, also of as many classes, and so does that of one dense head another."""
    labels = create_model("vit_micro_patch4", **SMALL, **trunk)
    sightline.save_model(labels, tmp_path / "m")
    dense = {"task": "segmentation", "class_names": tuple("abcde")}
    with caplog.at_level(logging.WARNING, "sightline"):
        maps = sightline.create_model(
            init_from=tmp_path / "m", head="pix", head_options={"background_bias": 1.0}, **dense
        )
    assert maps.reinitialized == ("head.fc.weight", "head.fc.bias")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "new: head.fc.weight, head.fc.bias; not used: " in line
    assert ("attn_pool.latent" in line) == (trunk.get("pool") == "attention")
    assert torch.equal(maps.blocks[1].mlp.fc1.weight, labels.blocks[1].mlp.fc1.weight)
    other = sightline.create_model(init_from=maps, head="linear_map")
    assert all(name.startswith("head.") for name in other.reinitialized)
    assert other.reinitialized
    asked = sightline.create_model(init_from=other, head="eomt")
    assert asked.config.head_options == {}
    back = sightline.create_model(init_from=maps, task="classification")
    assert back.config.head == "linear"
    assert {name.partition(".")[0] for name in back.reinitialized} <= {"head", "attn_pool", "fc_norm"}
    assert torch.equal(back.norm.weight, labels.norm.weight)


@pytest.mark.parametrize("encoding", ["rope_axial", "lookhere_90"])
def test_the_knob_goes_along_with_its_encoding(encoding, tmp_path):
    model = create_model("vit_micro_patch4", encoding=encoding, **SMALL)
    value = model.knob.default * 1.5
    model.set_knob(value)
    sightline.save_model(model, tmp_path / "m")
    for source in (model, tmp_path / "m"):
        assert sightline.create_model(init_from=source, num_classes=3).knob.value == value
    # Another configuration of it has its own.
    other = {"theta": 50.0} if encoding == "rope_axial" else {"global_slope": 2.0}
    after = sightline.create_model(init_from=model, encoding_options=other)
    assert after.knob.value == after.knob.default
