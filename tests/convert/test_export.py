"""Models that were made here, as others can load them: the same outputs there, or a line that names what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline import load_model, save_model
from sightline.convert import export_weights, import_weights
from sightline.distributed.machine import import_timm
from sightline.encodings import list_encodings
from sightline.errors import InputError
from sightline.models import VisionTransformer, create_model
from tests.contract.randomise import randomise_parameters
from tests.convert.originals import compare, takes_any_size
from tests.parity.toy_models import toy_model

_LIKE_TIMM = {"interpolation": "bicubic_antialias"}
_BEIT: dict[str, Any] = {"qkv_bias": "qv", "class_token": True, "pool": "mean", "final_norm": "after_pool"}


def ours(encoding: str, options: dict[str, Any] | None = None, **more: Any) -> VisionTransformer:
    given: dict[str, Any] = {"num_classes": 5, "depth": 2, "dim": 48, "heads": 3, **more}
    model = create_model("vit_micro_patch4", encoding=encoding, encoding_options=options or {}, **given)
    return randomise_parameters(model).eval()


def as_timm(model: VisionTransformer) -> Any:
    """timm's own module from what is exported; at any size where it can."""
    state, given = export_weights(model, "timm")
    module = import_timm().create_model(given.pop("model"), **given).eval()
    module.load_state_dict(state)
    return module


# Every encoding that timm has, with the options that are its own.
TO_TIMM: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("none", {}, {}),
    ("learned_1d", _LIKE_TIMM, {}),
    ("learned_1d", _LIKE_TIMM, {"image_size": (24, 40), "channels": 4}),
    ("learned_1d", _LIKE_TIMM, {"pool": "mean"}),
    ("learned_1d", _LIKE_TIMM, {"pool": "mean", "num_registers": 2, "final_norm": "after_pool"}),
    ("learned_1d", {**_LIKE_TIMM, "prefix": False}, {"num_registers": 2, "layer_scale": 0.5}),
    ("learned_1d", _LIKE_TIMM, {"pool": "attention", "gelu": "tanh"}),
    ("learned_1d", _LIKE_TIMM, {"pool": "attention", "class_token": True, "pool_prefix": True}),
    ("learned_1d", _LIKE_TIMM, {"norm_pre": True, "patch_bias": False, "norm_eps": 1e-5, "gelu": "quick"}),
    ("learned_1d", _LIKE_TIMM, {"qkv_bias": False, "qk_norm": True, "fit": "pad", "mlp_ratio": 2.7}),
    ("learned_1d", _LIKE_TIMM, {"attn_norm": True, "mlp_norm": True, "num_classes": 0}),
    ("learned_1d", _LIKE_TIMM, {"final_norm": "none", "norm": "rms"}),
    ("rope_axial", {}, {"layer_scale": 0.5}),
    ("rope_axial", {"theta": 30.0, "axis_order": "yx"}, {"pool": "mean", "num_registers": 1}),
    ("rope_axial", {"coordinates": "squeezed"}, {"image_size": (16, 24)}),
    ("rope_axial", {}, {"pool": "attention", "norm_eps": 1e-5, "layer_scale": 0.5}),
    ("rope_axial", {"coordinates": "squeezed"}, {"pool": "attention", "norm_eps": 1e-5, "pool_heads": 2}),
    ("rope_axial", {}, {"pool": "attention", "pool_mlp_ratio": 1.7}),
    ("rope_axial", {"coordinates": "centred", "axis_order": "yx"}, {}),
    ("rope_axial", {}, {"mlp": "swiglu", "qkv_bias": "qv", "mlp_norm": True, "attn_norm": True}),
    ("rope_axial+learned_1d", _LIKE_TIMM, {"final_norm": "after_pool"}),
    ("rope_mixed", {}, {}),
    ("rope_mixed", {"theta": 5.0}, {"image_size": (24, 16), "layer_scale": 0.1}),
    ("rope_mixed+learned_1d", {**_LIKE_TIMM, "prefix": False}, {}),
    ("rope_dinov3", {}, {"num_registers": 4, "layer_scale": 0.5, "norm_eps": 1e-5}),
    ("rope_dinov3", {}, {"mlp": "swiglu", "qkv_bias": False, "pool": "mean"}),
    ("rpe_learned", {}, _BEIT),
    ("rpe_learned", {}, {"qkv_bias": "qv", "layer_scale": 0.5, "image_size": (16, 24)}),
    ("rpe_learned_shared", {}, {**_BEIT, "layer_scale": 0.5}),
    ("learned_1d+rpe_learned", {"learned_1d.interpolation": "bicubic_antialias"}, _BEIT),
    ("learned_2d", {"lookup": "aspect", **_LIKE_TIMM}, {"pool": "mean", "final_norm": "after_pool"}),
    ("learned_2d", {"lookup": "aspect", **_LIKE_TIMM}, {"pool": "mean", "layer_scale": 0.5}),
    ("learned_2d", {"lookup": "aspect", "interpolation": "bilinear_antialias"}, {"pool": "mean"}),
    ("learned_2d", {"lookup": "aspect", "interpolation": "corner_aligned"}, {"pool": "mean"}),
    ("learned_1d", {"interpolation": "bilinear", "prefix": False}, {"pool": "mean"}),
    ("learned_1d", {"interpolation": "bicubic", "prefix": False}, {"class_token": True}),
    ("factorized", {"new_grid": "aspect"}, {"pool": "mean", "num_registers": 2}),
    ("factorized", {"new_grid": "resize"}, {"pool": "attention", "layer_scale": 0.5, "image_size": (16, 24)}),
]


@pytest.mark.parametrize(("encoding", "options", "more"), TO_TIMM)
def test_to_timm(encoding: str, options: dict[str, Any], more: dict[str, Any]) -> None:
    model = ours(encoding, options, **more)
    theirs = as_timm(model)
    assert takes_any_size(theirs) or "rpe" in encoding
    compare(model, theirs)
    again = import_weights("timm", *export_weights(model, "timm"))
    images = torch.randn(2, model.config.channels, 12, 28)
    with torch.no_grad():
        assert torch.equal(model(images), again(images))


def test_every_encoding_goes_to_timm_or_is_refused_by_name() -> None:
    held = {part for encoding, _, _ in TO_TIMM for part in encoding.split("+")}
    for encoding in set(list_encodings()) - held:
        with pytest.raises(InputError, match=rf"timm: cannot hold encoding = '{encoding.split('_')[0]}"):
            export_weights(ours(encoding, heads=12), "timm")


# Models that a project holds, and then one field at a time that it does not.
HOLDS: dict[str, dict[str, Any]] = {
    "big_vision": {"encoding": "sincos_2d", "gelu": "tanh", "pool": "attention"},
    "big_vision_flexi": {
        "encoding": "learned_1d", "options": {"interpolation": "bilinear_antialias", "prefix": False}, "gelu": "tanh",
        "pool": "mean", "embedder": "flexible", "embedder_options": {"base": 4, "rule": "bilinear"},
    },
    "lookhere": {"encoding": "lookhere_45", "heads": 12, "head": "mlp", "norm_eps": 1e-5, "layer_scale": 1.0},
    "rope_vit": {"encoding": "rope_axial", "layer_scale": 1.0},
    "deit": {"encoding": "learned_1d", "options": {"interpolation": "bicubic"}},
    "dinov3": {"encoding": "rope_dinov3", "mask_token": True, "num_classes": 0, "layer_scale": 1.0},
    "vision_transformer": {
        "encoding": "learned_1d", "options": {"interpolation": "corner_aligned"}, "gelu": "tanh",
    },
    "timm": {"encoding": "learned_1d", "options": _LIKE_TIMM},
    "navit": {
        "encoding": "factorized", "pool": "query", "patch_norm": True, "qkv_bias": False, "block_bias": "mlp",
        "qk_norm": "heads", "norm": "layer_no_bias", "norm_eps": 1e-5, "final_norm": "both", "head_bias": False,
    },
}  # fmt: skip
# Field -> a value, and who holds it.
FIELDS: dict[str, tuple[Any, set[str]]] = {
    "norm": ("rms", {"timm"}),
    "norm_eps": (1e-4, set()),
    "norm_pre": (True, set()),
    "attn_norm": (True, {"timm"}),
    "mlp_norm": (True, {"timm"}),
    "mlp": ("swiglu", {"dinov3"}),
    "patch_bias": (False, set()),
    "patch_norm": (True, {"navit"}),
    "block_bias": (False, set()),
    "head_bias": (False, {"navit", "dinov3"}),
    "qkv_bias": ("qv", {"dinov3"}),
    "final_norm": ("after_pool", {"timm"}),
    "num_registers": (2, {"timm", "dinov3"}),
    "qk_norm": (True, {"timm"}),
    "gelu": ("quick", {"timm"}),
    "head": ("mlp", {"lookhere", "vision_transformer", "dinov3"}),
    "fit": ("pad", {"timm"}),
    "pool": ("mean", {"timm", "big_vision", "big_vision_flexi", "vision_transformer"}),
    "channels": (4, set(HOLDS)),
    "image_size": ((16, 24), set(HOLDS) - {"dinov3"}),
    "mlp_ratio": (2.7, set(HOLDS)),
    "pool_heads": (2, set(HOLDS) - {"big_vision", "navit"}),
    "pool_mlp_ratio": (2.0, set(HOLDS) - {"big_vision"}),
    "class_token": (True, set(HOLDS) - {"big_vision", "big_vision_flexi", "navit"}),
}


@pytest.mark.parametrize("field", [None, *FIELDS])
@pytest.mark.parametrize("project", HOLDS)
def test_what_cannot_be_held_names_the_field(project: str, field: str | None) -> None:
    """Neither another model without a word, nor a traceback."""
    value, holders = FIELDS[field] if field else (None, set(HOLDS))
    given = dict(HOLDS[project])
    given |= {field: value} if field else {}
    if (project, field) == ("big_vision_flexi", "patch_norm"):
        # There is no such model of ours.
        with pytest.raises(InputError, match="patch_norm true"):
            ours(given.pop("encoding"), given.pop("options"), **given)
        return
    model = ours(given.pop("encoding"), given.pop("options", None), **given)
    if project in holders:
        again = import_weights(project, *export_weights(model, project))
        with torch.no_grad():
            for size in ((16, 16), (12, 28)):
                images = torch.randn(1, model.config.channels, *size)
                assert (model(images) - again(images)).abs().max() == 0
        assert again.config.mlp_hidden == model.config.mlp_hidden
    else:
        # Without a bias of the patches is how timm builds the norm before the blocks.
        named = "patch_bias" if (project, field) == ("timm", "norm_pre") else field
        with pytest.raises(InputError, match=rf"{project}: cannot hold .*{named}"):
            export_weights(model, project)


@torch.no_grad()
def test_a_turned_knob() -> None:
    """Where the base says all it is exported; learned frequencies that were scaled are nobody's."""
    images = torch.randn(1, 3, 20, 28)
    for project, options in (("rope_vit", {"layer_scale": 1.0}), ("timm", {}), ("dinov3", HOLDS["dinov3"])):
        encoding = "rope_dinov3" if project == "dinov3" else "rope_axial"
        model = ours(encoding, **{key: value for key, value in options.items() if key != "encoding"})
        before = model(images)
        model.set_knob(17.0)
        if project != "rope_vit":
            with pytest.raises(InputError, match=rf"{project}: cannot hold theta = 17\.0 .*; set_knob back first"):
                export_weights(model, project)
        else:
            state, given = export_weights(model, project)
            assert torch.equal(import_weights(project, state, given)(images), model(images))
            assert not torch.equal(before, model(images))
        model.set_knob(100.0)
        assert torch.equal(import_weights(project, *export_weights(model, project))(images), before)
    mixed = ours("rope_mixed", layer_scale=1.0)
    mixed.set_knob(20.0)
    for project in ("rope_vit", "timm"):
        with pytest.raises(InputError, match=rf"{project}: cannot hold theta = 20\.0 .*set_knob back first"):
            export_weights(mixed, project)


def test_another_pooling_after_import() -> None:
    """What the weights came with no longer says what the model is: it is described anew."""
    model = toy_model("timm_vit_learned")
    model.reset_classifier(6, "mean")
    randomise_parameters(model)
    compare(model, as_timm(model))
    assert export_weights(model, "timm")[1]["global_pool"] == "avg"


def test_a_knob_that_was_turned_after_import() -> None:
    model = toy_model("timm_vit_rope_axial_xy")
    model.set_knob(31.0)
    with pytest.raises(InputError, match=r"timm: cannot hold theta = 31\.0"):
        export_weights(model, "timm")


def test_from_one_project_to_another(tmp_path) -> None:
    """RoPE-ViT's weights become timm's, and a folder between them changes nothing."""
    model = toy_model("ropevit_mixed")
    save_model(model, tmp_path / "m")
    read = load_model(tmp_path / "m")
    compare(model, as_timm(read))
    # Its embedding is resized without smoothing, timm's with: there is a module of one size.
    assert export_weights(toy_model("ropevit_axial_ape"), "timm")[1]["dynamic_img_size"] is False
    with pytest.raises(InputError, match="rope_vit: cannot hold encoding = 'learned_1d'"):
        export_weights(toy_model("timm_vit_learned"), "rope_vit")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoding_options": {"interpolation": "bicubic"}, "num_registers": 2},
        {"encoding": "rope_axial+learned_1d", "pool": "mean"},
    ],
    ids=str,
)
def test_a_table_of_another_rule_goes_to_timm_at_its_training_size(options):
    """The default model's is resized by `bilinear`, timm's by another rule; at the size of training by none."""
    options = dict(options)
    model = ours(options.pop("encoding", "learned_1d"), options.pop("encoding_options", {}), **options)
    state, given = export_weights(model, "timm")
    assert given["dynamic_img_size"] is False
    theirs = import_timm().create_model(given.pop("model"), **given).eval()
    theirs.load_state_dict(state)
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (theirs(batch) - model(batch)).abs().max() < 2e-5
        with pytest.raises(AssertionError):
            theirs(batch[:, :, :24])


@pytest.mark.parametrize(
    ("project", "encoding", "options", "more", "words"),
    [
        ("rope_vit", "rope_axial", {"coordinates": "squeezed"}, {}, "rope_axial coordinates = 'squeezed'"),
        ("rope_vit", "rope_axial", {"axis_order": "yx"}, {}, "rope_axial axis_order = 'yx'"),
        ("rope_vit", "rope_axial", {"pairing": "halves"}, {}, "rope_axial pairing = 'halves'"),
        ("rope_vit", "rope_axial", {"offset": 0.5}, {}, "rope_axial offset = 0.5"),
        ("rope_vit", "rope_mixed+learned_1d", {"prefix": False}, {}, "learned_1d interpolation = 'bilinear'"),
        ("rope_vit", "rope_mixed+learned_1d", {"interpolation": "bicubic"}, {}, "learned_1d prefix = True"),
        ("big_vision", "sincos_2d", {"order": "mae"}, {"gelu": "tanh", "pool": "mean"}, "sincos_2d order = 'mae'"),
        ("big_vision", "sincos_2d", {"temperature": 100.0}, {"gelu": "tanh", "pool": "mean"}, "temperature = 100"),
        ("timm", "factorized", {"new_grid": "aspect", "combine": "product"}, {"pool": "mean"}, "combine = 'product'"),
        ("timm", "learned_2d", {"lookup": "absolute", "interpolation": "bilinear"}, {"pool": "mean"}, "'absolute'"),
        ("timm", "rpe_learned", {}, {}, "qkv_bias = True"),
    ],
)
def test_options_of_encodings_are_named(project: str, encoding: str, options: Any, more: Any, words: str) -> None:
    model = ours(encoding, options, **{"layer_scale": 1.0 if project == "rope_vit" else None, **more})
    with pytest.raises(InputError, match=rf"{project}: cannot hold .*{words}"):
        export_weights(model, project)
