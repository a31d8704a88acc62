"""Our weights through timm: at another size than they were trained at, and out of a folder of ours."""

from __future__ import annotations

import pytest
import torch

import sightline.timm
from sightline import load_model, save_model
from sightline.encodings import list_encodings
from tests.contract.contract import build
from tests.contract.randomise import randomise_parameters

timm = sightline.timm.timm
NAME, SIZE = "sightline_vit_micro_patch4", {"embed_dim": 48, "depth": 2, "num_classes": 5}


def pictures(*size):
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))


CASES = [
    *((name, {}) for name in list_encodings()),
    ("learned_1d", {"interpolation": "bicubic_antialias"}),
    ("learned_2d", {"lookup": "aspect"}),
    ("factorized", {"new_grid": "resize"}),
    ("factorized", {"new_grid": "aspect", "combine": "product"}),
    ("factorized", {"max_side": 7}),
    ("rpe_learned_shared", {"interpolation": "bicubic"}),
    ("relative_1d", {"shared": True, "prefix": False, "values": True}),
    ("rope_mixed+learned_1d", {}),
    ("rope_axial+relative_1d", {"knob": 150.0}),
]


# Their weights have the same shapes whatever the grid that they count by.
UNTOLD = [
    ("fourier", {}),
    ("rope_axial", {"coordinates": "squeezed"}),
    ("sincos_2d", {"new_grid": "bilinear"}),
    ("factorized", {"table": "fourier"}),
]
SIZES = [(32, 48), *(pytest.param(size, marks=pytest.mark.slow) for size in ((16, 16), (12, 36)))]


def built(encoding, options, **more):
    """The arguments of a model with random weights for images of 24 x 24, and the model."""
    options = dict(options)
    knob = {"knob": options.pop("knob")} if "knob" in options else {}
    given = {**SIZE, "encoding": encoding, "encoding_options": options, **knob, **more}
    return given, randomise_parameters(timm.create_model(NAME, img_size=24, **given)).eval()


def loaded(model, given, folder, **more):
    """The model for images of another size with its weights."""
    torch.save({"state_dict": model.state_dict()}, folder / "weights.pth")
    overlay = {"file": str(folder / "weights.pth"), "num_classes": 5}
    return timm.create_model(NAME, pretrained=True, pretrained_cfg_overlay=overlay, **given, **more).eval()


def assert_same(one, other, size, atol=2e-5):
    with torch.no_grad():
        assert (one(pictures(*size)) - other(pictures(*size))).abs().max() <= atol


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("encoding", "options"), [*CASES, *UNTOLD])
def test_weights_load_at_another_size(encoding, options, size, tmp_path):
    """There the model gives what it gave at that size before."""
    given, model = built(encoding, options)
    told = {"table_grid": (6, 6)} if (encoding, options) in UNTOLD else {}
    other = loaded(model, given, tmp_path, img_size=size, **told)
    assert tuple(other.config.image_size) == size
    assert_same(other, model, size)
    save_model(other, tmp_path / "again")
    assert_same(load_model(tmp_path / "again"), other, size, atol=0)


@pytest.mark.parametrize("size", [(16, 20)])
@pytest.mark.parametrize(("encoding", "options"), [*CASES, *UNTOLD])
def test_a_folder_of_ours_is_opened_at_another_size(encoding, options, size, tmp_path):
    _, model = built(encoding, options)
    save_model(model, tmp_path / "m")
    other = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True, img_size=size).eval()
    assert tuple(other.config.image_size) == size
    assert_same(other, model, size)


@pytest.mark.parametrize("encoding", ["learned_1d_every", "learned_2d", "factorized_fractional", "rpe_learned"])
def test_tables_are_of_the_new_size_afterwards(encoding, tmp_path):
    """So that what is trained on loads again at that size."""
    given, model = built(encoding, {})
    other = loaded(model, given, tmp_path, img_size=(32, 48))
    assert tuple(other.config.train_grid) == (8, 12)
    torch.save(other.state_dict(), tmp_path / "b.pth")
    again = timm.create_model(NAME, checkpoint_path=str(tmp_path / "b.pth"), img_size=(32, 48), **given).eval()
    assert_same(again, other, (32, 48), atol=0)


def test_offsets_of_a_sequence_keep_the_grid_that_they_were_made_for(tmp_path):
    given, model = built("relative_1d", {})
    other = loaded(model, given, tmp_path, img_size=(32, 48))
    assert tuple(other.config.train_grid) == (6, 6)
    torch.save(other.state_dict(), tmp_path / "b.pth")
    place = {"checkpoint_path": str(tmp_path / "b.pth"), "table_grid": (6, 6)}
    assert_same(timm.create_model(NAME, img_size=(32, 48), **place, **given).eval(), other, (32, 48), atol=0)


@pytest.mark.parametrize("encoding", ["rpe_learned", "relative_1d", "learned_2d"])
def test_windows_of_a_swin_become_those_of_smaller_images(encoding, tmp_path):
    swin = {"depths": [1, 1], "heads": [6, 12], "window": 6}
    more = {"architecture": "swin", "architecture_options": swin, "num_heads": 6, "global_pool": "avg"}
    given, model = built(encoding, {}, **more)
    for size in ((16, 16), (32, 32), (64, 96)):
        assert_same(loaded(model, given, tmp_path, img_size=size), model, size)


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("lookhere_90", {"pool": "cls", "num_registers": 2}),
        ("rope_mixed+learned_1d", {"pool": "attention", "mlp": "swiglu"}),
        ("rpe_learned", {"pool": "mean", "class_names": tuple("abcde"), "mean": (0.5, 0.5, 0.5)}),
    ],
)
def test_a_folder_of_ours_is_opened_by_timm(encoding, options, tmp_path):
    model = build(encoding, **options)
    if model.knob is not None:
        model.set_knob(model.knob.candidates[0])
    save_model(model, tmp_path / "m")
    found = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    own = load_model(tmp_path / "m")
    with torch.no_grad():
        assert torch.equal(found(pictures(24, 32)), own(pictures(24, 32)))
    assert found.config.replace(table_grid=None) == own.config.replace(table_grid=None)
    assert timm.data.resolve_model_data_config(found)["mean"] == own.config.mean
    fresh = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True, num_classes=7)
    assert fresh(pictures(24, 32)).shape == (2, 7)
