"""Our weights through timm: at another size than they were trained at, and out of a folder of ours."""

from __future__ import annotations

import pytest
import torch

import sightline.timm
from sightline import load_model, save_model
from tests.contract.contract import build
from tests.contract.randomise import randomise_parameters

timm = sightline.timm.timm
NAME, SIZE = "sightline_vit_micro_patch4", {"embed_dim": 48, "depth": 2, "num_classes": 5}


def pictures(*size):
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("learned_1d", {}),
        ("learned_1d", {"interpolation": "bicubic_antialias"}),
        ("learned_1d_every", {}),
        ("learned_2d", {}),
        ("factorized", {"new_grid": "resize"}),
        ("rpe_learned", {}),
        ("rpe_learned_shared", {"interpolation": "bicubic"}),
        ("rope_mixed+learned_1d", {}),
        ("rope_axial", {}),
    ],
)
def test_tables_are_resized_on_loading(encoding, options, tmp_path):
    """To what the model itself makes of them at that size."""
    given = {**SIZE, "encoding": encoding, "encoding_options": options}
    model = randomise_parameters(timm.create_model(NAME, img_size=24, **given)).eval()
    torch.save({"state_dict": model.state_dict()}, tmp_path / "a.pth")
    overlay = {"file": str(tmp_path / "a.pth"), "num_classes": 5}
    for size in (40, (32, 48)):
        other = timm.create_model(NAME, pretrained=True, pretrained_cfg_overlay=overlay, img_size=size, **given).eval()
        assert tuple(other.config.train_grid) == ((10, 10) if size == 40 else (8, 12))
        batch = pictures(*((40, 40) if size == 40 else size))
        with torch.no_grad():
            assert (other(batch) - model(batch)).abs().max() < 2e-5


def test_they_are_what_timm_makes_of_them(tmp_path):
    options = {"encoding_options": {"interpolation": "bicubic_antialias"}}
    model = randomise_parameters(timm.create_model(NAME, img_size=24, **SIZE, **options))
    torch.save(model.state_dict(), tmp_path / "a.pth")
    overlay = {"file": str(tmp_path / "a.pth"), "num_classes": 5}
    other = timm.create_model(
        NAME, pretrained=True, pretrained_cfg_overlay=overlay, img_size=(32, 48), **SIZE, **options
    )
    table = torch.cat((model.encoding.prefix, model.encoding.table)).detach().unsqueeze(0)
    theirs = timm.layers.resample_abs_pos_embed(table, [8, 12])[0]
    assert (other.encoding.table - theirs[1:]).abs().max() < 1e-5
    assert torch.equal(other.encoding.prefix, model.encoding.prefix)


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


def test_a_swin_of_ours_too(tmp_path):
    options = {"depths": [1, 1], "heads": [6, 12], "window": 3}
    model = build("rpe_learned", "mean", architecture="swin", heads=6, architecture_options=options)
    save_model(model, tmp_path / "m")
    found = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    with torch.no_grad():
        assert torch.equal(found(pictures(24, 32)), model(pictures(24, 32)))
