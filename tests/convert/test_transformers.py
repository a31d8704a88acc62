"""transformers' vision models: defaults, names of version 4, folders, preparation, refusals, and the way back."""

from __future__ import annotations

import json

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from sightline import create_model, load_model, save_model
from sightline.analysis.measures.logit_lens import lens
from sightline.convert import export_weights, import_weights
from sightline.convert.hf_folder import read_transformers_folder
from sightline.convert.hf_pair import PAIRS
from sightline.convert.transformers import FAMILIES
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.runs import Run
from tests.contract.contract import build
from tests.contract.randomise import randomise_parameters
from tests.hub.test_sources import LocalHub
from tests.repository.test_examples import run

# Where torchvision does not fit torch, what it lacks is put in its place.
import_timm()
import transformers as hf  # noqa: E402

VISION = [kind for kind in FAMILIES if kind not in PAIRS]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 16, "patch_size": 4}
LABELS = {"id2label": {0: "disc", 1: "square", 2: "cross"}, "num_labels": 3}
OWN = {"beit": {"use_relative_position_bias": True}, "vit_mae": {"mask_ratio": 0.0}}
CLASSES = {
    "vit": hf.ViTForImageClassification, "deit": hf.DeiTForImageClassificationWithTeacher, "vit_mae": hf.ViTMAEModel,
    "beit": hf.BeitForImageClassification, "dinov2": hf.Dinov2ForImageClassification,
    "dinov2_with_registers": hf.Dinov2WithRegistersForImageClassification, "dinov3_vit": hf.DINOv3ViTModel,
    "siglip_vision_model": hf.SiglipVisionModel, "clip_vision_model": hf.CLIPVisionModel,
}  # fmt: skip
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))


def saved(kind, folder, cls=None, **options):
    """A toy of transformers with random weights, and its folder."""
    cls = cls or CLASSES[kind]
    hidden = {} if kind.startswith("dinov2") else {"intermediate_size": 48}
    labels = LABELS if "Classification" in cls.__name__ else {}
    config = cls.config_class(**{**SIZES, **hidden, **OWN.get(kind, {}), **labels, **options})
    model = randomise_parameters(cls(config)).eval()
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def output_of(model):
    """Logits, or what the class pools, or the first token."""
    if isinstance(model, hf.ViTMAEModel):
        return model(IMAGES, noise=torch.arange(16).float().expand(2, -1)).last_hidden_state[:, 0]
    found = model(IMAGES)
    return found.logits if hasattr(found, "logits") else found.pooler_output


def state_of(folder):
    return read_transformers_folder(folder)[:2]


@torch.no_grad()
def same(ours, theirs):
    return (ours(IMAGES) - output_of(theirs)).abs().max() <= 5e-5


@pytest.mark.parametrize("kind", VISION)
def test_defaults_are_those_of_transformers(kind):
    there = CLASSES[kind].config_class()
    for key, value in FAMILIES[kind].arguments.items():
        # Every model with registers has its mask token; how images are prepared stands in a file of its own.
        if hasattr(there, key) and key not in ("model_type", "id2label"):
            assert getattr(there, key) == value, key
        else:
            assert key in ("model_type", "id2label", "preprocessor_config", "use_mask_token")


@pytest.mark.parametrize(
    ("kind", "there"), [("clip", hf.CLIPConfig), ("siglip", hf.SiglipConfig), ("siglip2", hf.Siglip2Config)]
)
def test_defaults_of_texts_are_those_of_transformers(kind, there):
    there = there()
    assert getattr(there, "projection_dim", 512) == 512
    for part, ours in ((there.text_config, PAIRS[kind].text), (there.vision_config, PAIRS[kind].vision.arguments)):
        for key, value in ours.items():
            # SigLIP's width of the space is that of the text tower; NaFlex says no size in pixels.
            if hasattr(part, key) and key not in ("model_type", "id2label", "projection_size"):
                assert getattr(part, key) == value, key


@pytest.mark.parametrize("kind", VISION)
def test_a_folder_of_each_and_the_way_back(kind, tmp_path):
    model = saved(kind, tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert same(ours, model)
    assert ours.config.class_names == (("disc", "square", "cross") if ours.num_classes else None)
    state, config = export_weights(ours, "transformers")
    back = type(model)(type(model).config_class(**{**OWN.get(kind, {}), **config})).eval()
    run("docs/how-to/weights.md", 1, model=ours, export_weights=export_weights, folder=tmp_path / "page")
    assert load_model(tmp_path / "page").config == ours.config
    back.save_pretrained(tmp_path / "back")
    record, written = state_of(tmp_path / "back")
    assert written.keys() == state.keys()
    save_file(state, tmp_path / "back/model.safetensors", {"format": "pt"})
    again = type(model).from_pretrained(tmp_path / "back").eval()
    assert torch.equal(output_of(again), output_of(model))
    assert (record["model_type"], again.config.id2label) == (kind, model.config.id2label)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("dinov2", {"use_swiglu_ffn": True, "mlp_ratio": 3, "qkv_bias": False}),
        ("dinov3_vit", {"use_gated_mlp": True, "hidden_act": "silu", "key_bias": True}),
        ("dinov2_with_registers", {"use_swiglu_ffn": True, "num_register_tokens": 2}),
        ("beit", {"use_relative_position_bias": False, "use_shared_relative_position_bias": True}),
        ("beit", {"use_mean_pooling": False}),
        ("siglip_vision_model", {"hidden_act": "gelu"}),
        ("deit", {"cls": hf.DeiTForImageClassification, "hidden_act": "gelu_new"}),
    ],
)
def test_options_of_a_family(kind, options, tmp_path):
    model = saved(kind, tmp_path, **options)
    assert same(load_model(tmp_path), model)


def test_names_of_version_4(tmp_path):
    """Towers within `vision_model.`, tables of places, and decoders."""
    for kind in ("clip_vision_model", "siglip_vision_model", "beit"):
        model = saved(kind, tmp_path / kind)
        config, state = state_of(tmp_path / kind)
        if kind == "beit":
            state["beit.encoder.layer.0.attention.attention.relative_position_index"] = torch.zeros(17, 17).long()
        else:
            state = {f"vision_model.{name}": one for name, one in state.items()}
            state["vision_model.embeddings.position_ids"] = torch.arange(17)[None]
        assert same(import_weights("transformers", state, config), model)
    saved("vit_mae", tmp_path / "mae", hf.ViTMAEForPreTraining, decoder_hidden_size=16)
    state = state_of(tmp_path / "mae")[1]
    assert any(name.startswith("decoder.") for name in state)
    back, _ = export_weights(load_model(tmp_path / "mae"), "transformers")
    assert {f"vit.{name}" for name in back} == {name for name in state if name.startswith("vit.")}


def test_what_the_patch_does_not_divide(tmp_path):
    saved("vit", tmp_path, num_channels=1, image_size=18)
    model = load_model(tmp_path)
    assert (model.config.image_size, model.config.fit, model.config.train_grid) == ((18, 18), "crop", (4, 4))
    _, config = export_weights(model, "transformers")
    assert (config["num_channels"], config["image_size"]) == (1, 18)


def test_several_files_half_precision_and_a_hub(tmp_path, monkeypatch):
    folder = tmp_path / "hub/owner/name"
    model = saved("vit", tmp_path / "whole").half()
    model.save_pretrained(folder, max_shard_size="20KB")
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
    assert not (folder / "model.safetensors").exists()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", LocalHub(tmp_path / "hub").snapshot_download)
    for source in (folder, f"local-dir:{folder}", "hf-hub:owner/name"):
        ours = load_model(source)
        assert same(ours, model.float())
        assert ours.config.mean == (0.1, 0.2, 0.3)
    assert Run.open(folder).model.config == ours.config
    assert load_model(folder, num_classes=7)(IMAGES).shape == (2, 7)
    for file in ("model-00002-of-*", "model.safetensors.index.json"):
        next(folder.glob(file)).unlink()
        with pytest.raises(InputError, match=r"model-00002-of|has a config.json"):
            load_model(folder)


CROP = {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}}


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ({}, {"image_size": (16, 16), "mean": (0.5,) * 3, "interpolation": "bicubic", "crop_mode": "center"}),
        ({"size": 32, "resample": 1}, {"image_size": (32, 32), "interpolation": "lanczos", "crop_mode": "squash"}),
        ({"size": {"shortest_edge": 32}, **CROP}, {"image_size": (28, 28), "crop": 0.875, "crop_mode": "center"}),
        ({"size": {"height": 32, "width": 32}, **CROP}, {"image_size": (28, 28), "crop_mode": "squash", "crop": 0.875}),
        ({"size": 35, "feature_extractor_type": "CLIPFeatureExtractor", **CROP}, {"crop": 0.8, "crop_mode": "center"}),
        ({"do_normalize": False, "do_resize": False, "size": 20}, {"mean": (0.0,) * 3, "image_size": (16, 16)}),
        ({"image_mean": [1, 1, 1], "rescale_factor": 1 / 127.5}, {"mean": (0.5,) * 3, "std": (0.5,) * 3}),
        ({"size": {"height": 18, "width": 30}}, {"image_size": (18, 30), "fit": "crop", "table_grid": (4, 4)}),
    ],
)
def test_preparation(said, fields, tmp_path):
    saved("vit", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    config = load_model(tmp_path).config
    for key, value in fields.items():
        assert getattr(config, key) == (value if isinstance(value, str) else pytest.approx(value)), key
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": said}))
    assert load_model(tmp_path).config == config


def test_the_table_keeps_the_size_that_it_was_trained_for(tmp_path):
    """As DINOv2, which was trained at 518 px, and whose images are prepared for 224 px."""
    model = saved("dinov2", tmp_path, image_size=24)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 16, "width": 16}}))
    ours = load_model(tmp_path)
    assert (ours.config.image_size, ours.config.train_grid) == ((16, 16), (6, 6))
    assert same(ours, model)
    assert export_weights(ours, "transformers")[1]["image_size"] == 24


def test_convert_and_verify(cli, refused, tmp_path):
    folder, out = tmp_path / "theirs", tmp_path / "ours"
    model = saved("deit", folder)
    assert cli("convert", "transformers", folder, out)[0] == 0
    assert same(load_model(out), model)
    assert load_model(out).config.class_names == ("disc", "square", "cross")
    assert cli("verify", out, "--against", folder, "--project", "transformers")[0] == 0
    file, config = folder / "model.safetensors", folder / "config.json"
    assert cli("convert", "transformers", file, tmp_path / "file", "--config", config)[0] == 0
    refused("convert", "timm", folder, tmp_path / "no", says=["transformers"])
    with pytest.raises(InputError, match="transformers"):
        import_weights("deit", state_of(folder)[1], {"embed_dim": 24})


@pytest.mark.parametrize(
    ("kind", "changed", "says"),
    [
        ("dinov3_vit", {"use_gated_mlp": True, "hidden_act": "gelu"}, "hidden_act"),
        ("dinov3_vit", {"proj_bias": False}, "proj_bias"),
        ("vit", {"hidden_act": "relu"}, "hidden_act"),
        ("vit", {"model_type": "swin"}, "model_type"),
        ("vit", {"patch_size": [4, 8]}, "patch_size"),
        ("vit", {"hidden_size": 36}, "projection.weight"),
        ("beit", {"use_relative_position_bias": False}, "relative"),
        ("beit", {"use_absolute_position_embeddings": True}, "use_absolute_position_embeddings"),
    ],
)
def test_what_is_refused_is_named(kind, changed, says, tmp_path):
    saved(kind, tmp_path)
    record = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**record, **changed}))
    with pytest.raises(InputError, match=says) as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_pooler_is_left_out_with_a_line(tmp_path, caplog):
    saved("vit", tmp_path, hf.ViTModel)
    load_model(tmp_path)
    assert [one.name for one in caplog.records] == ["sightline"]
    assert "pooler" in caplog.records[0].getMessage()


BICUBIC = {"encoding_options": {"interpolation": "bicubic"}}
SMOOTH = {"encoding_options": {"interpolation": "bicubic_antialias"}}


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "learned_1d", **BICUBIC},
        {"encoding": "rope_dinov3", "qkv_bias": "qv", "layer_scale": 0.1, "num_classes": 0, "num_registers": 2},
        {"encoding": "learned_1d", "num_registers": 3, "layer_scale": 1.0, "pool": "cls_mean", **SMOOTH},
    ],
)
def test_a_model_trained_here_goes_there(options):
    model = randomise_parameters(create_model("vit_micro_patch4", **{"num_classes": 3, **options})).eval()
    state, config = export_weights(model, "transformers")
    with torch.no_grad():
        # A register that had a vector in the table has it now itself.
        assert torch.allclose(import_weights("transformers", state, config)(IMAGES), model(IMAGES), atol=1e-5)


def test_what_cannot_go_there_is_named():
    for encoding in ("lookhere_45", "learned_1d", "rope_mixed"):
        with pytest.raises(InputError, match="transformers: cannot hold"):
            export_weights(build(encoding, dim=48, heads=12), "transformers")


def test_two_heads_and_tokens_side_by_side(tmp_path):
    """What DeiT and DINOv2 read is saved, takes other classes and other heads, and gives the same in a list."""
    for pool, head, registers in (("prefix", "distilled", 1), ("cls_mean", "linear", 2), ("cls_mean", "mlp", 0)):
        model = create_model("vit_micro_patch4", pool=pool, head=head, num_registers=registers, num_classes=3)
        save_model(randomise_parameters(model).eval(), tmp_path / f"{pool}{head}")
        again = load_model(tmp_path / f"{pool}{head}")
        with torch.no_grad():
            assert torch.equal(again(IMAGES), model(IMAGES))
            assert torch.allclose(model(list(IMAGES)), model(IMAGES), atol=1e-5)
            assert model([]).shape == (0, 3)
            rows, layout = model.prepare(IMAGES)
            assert lens(model, model.embed(rows, layout), layout).shape == (2, 17 + registers, 3)
            model.reset_classifier(0)
            assert model(IMAGES).shape == (2, model.config.pooled_dim)
            model.reset_classifier(4, "avg")
            assert (model(IMAGES).shape, model.config.head == "mlp") == ((2, 4), head == "mlp")
        assert "head.weight" in create_model(init_from=again, pool="cls", head="linear").reinitialized
    for wrong in ({"pool": "cls_mean", "class_token": False}, {"head": "distilled"}):
        with pytest.raises(InputError, match="pool"):
            create_model("vit_micro_patch4", **wrong)


def test_timm_in_its_wrapper_is_timms():
    model = build("rope_mixed", dim=48, depth=1, heads=4)
    state, given = export_weights(model, "timm")
    found = import_weights("timm", {f"timm_model.{name}": one for name, one in state.items()}, given)
    assert all(torch.equal(one, found.state_dict()[name]) for name, one in model.state_dict().items())
