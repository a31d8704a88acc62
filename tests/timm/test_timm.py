"""Our models by timm's registry, through what timm and its training script do with a model."""

from __future__ import annotations

import argparse
import copy
import json
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image

import sightline.timm
from sightline.encodings import create_encoding, list_encodings
from sightline.models import VisionTransformer, list_models
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

timm = sightline.timm.timm
losses, optim, scheduler, utils = (import_module(f"timm.{name}") for name in ("loss", "optim", "scheduler", "utils"))
SMALL, MICRO = "sightline_vit_small_patch16", "sightline_vit_micro_patch4"
SIZES = [(160, 288)]
ENCODINGS = [*list_encodings(), "rope_mixed+learned_1d", "lookhere_90+alibi_2d"]
TINY = {"embed_dim": 48, "depth": 2, "num_classes": 5}


def randomised(name: str = MICRO, **arguments) -> VisionTransformer:
    return randomise_parameters(timm.create_model(name, **{**TINY, **arguments}))


def test_every_size_is_registered() -> None:
    names = timm.list_models("sightline_*")
    assert sorted(names) == [f"sightline_{size}" for size in list_models()]
    assert all(timm.is_model(name) for name in names)
    assert timm.list_models("sightline_*", pretrained=True) == []
    assert SMALL in timm.list_models(module="timm")
    assert timm.get_pretrained_cfg(SMALL).input_size == (3, 224, 224)
    assert timm.get_pretrained_cfg(MICRO).input_size == (3, 32, 32)
    # A star import takes what `__all__` names.
    assert all(callable(getattr(sightline.timm, name)) for name in names)
    assert set(names) < set(sightline.timm.__all__)
    assert getattr(sightline.timm, MICRO)(**TINY).num_classes == 5


def test_six_heads_are_the_public_code_s() -> None:
    """Four directed heads, clockwise from up, and two that see all: "triangles-none", up to the heads' order."""
    model = timm.create_model(SMALL, encoding="lookhere_90", depth=2)
    theirs = create_encoding("lookhere", depth=2, heads=6, dim=384, directions="triangles-none")
    segment = TokenLayout.uniform((3, 5), 1, num_prefix_tokens=1).segments[0]
    for layer in range(2):
        ours = model.encoding.layer_pattern(layer).bias(segment, segment, 1, 1)[0]
        # up, right, down, left against up, down, left, right.
        assert torch.equal(ours[[0, 2, 3, 1, 4, 5]], theirs.layer_pattern(layer).bias(segment, segment, 1, 1)[0])
    assert timm.create_model(SMALL, encoding="lookhere_90", num_heads=12, depth=1).config.heads == 12


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", SIZES)
def test_every_encoding_trains(size: tuple[int, int], encoding: str) -> None:
    model = randomised(SMALL, encoding=encoding, depth=2, embed_dim=96).train()
    logits = model(torch.randn(2, 3, *size))
    assert logits.shape == (2, 5)
    logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_every_encoding_keeps_its_weights(encoding: str, tmp_path) -> None:
    options = {"encoding": encoding, "embed_dim": 96}
    model = randomised(**options).eval()
    images = torch.randn(2, 3, 12, 20)
    expected = model(images)
    assert expected.std() > 0.02
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "run.pth.tar")
    other = timm.create_model(MICRO, **TINY | options).eval()
    assert not torch.equal(other(images), expected)
    timm.models.load_checkpoint(other, str(tmp_path / "weights.pth"))
    assert torch.equal(other(images), expected)
    loaded = timm.create_model(MICRO, **TINY | options, checkpoint_path=str(tmp_path / "run.pth.tar")).eval()
    assert torch.equal(loaded(images), expected)
    assert torch.equal(copy.deepcopy(model)(images), expected)
    model.reset_classifier(8)
    assert model(images).shape == (2, 8)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [(12, 20)])
@torch.no_grad()
def test_every_encoding_gives_features(size: tuple[int, int], encoding: str) -> None:
    """The maps of a pruned model are those of the whole one, in image order."""
    options = {"encoding": encoding, "embed_dim": 96, "depth": 4}
    whole = randomised(**options).eval()
    pruned = randomised(**options, features_only=True, out_indices=(2, 0)).eval()
    pruned.model.load_state_dict(whole.state_dict(), strict=False)
    images = torch.randn(2, 3, *size)
    maps = pruned(images)
    assert [one.shape for one in maps] == [(2, 96, size[0] // 4, size[1] // 4)] * 2
    for one, other in zip(maps, whole.forward_intermediates(images, [0, 2], intermediates_only=True), strict=True):
        assert torch.equal(one, other)
    assert len(pruned.model.blocks) == 3
    assert pruned.feature_info.module_name() == ["blocks.0", "blocks.2"]
    assert pruned.feature_info.channels() == [96, 96]
    assert pruned.feature_info.reduction() == [4, 4]
    assert [tuple(one.shape) for one in pruned(list(images))[0]] == [tuple(maps[0].shape[1:])] * 2


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"num_classes": 7, "in_chans": 1}, {"num_classes": 7, "channels": 1}),
        ({"img_size": (16, 24)}, {"image_size": (16, 24)}),
        ({"img_size": 16, "image_size": (16, 16)}, {"image_size": (16, 16)}),
        ({"drop_path_rate": 0.2, "init_values": 0.1}, {"drop_path": (0.0, 0.2), "layer_scale": 0.1}),
        ({"drop_path": 0.2}, {"drop_path": 0.2}),
        ({"global_pool": "token", "reg_tokens": 2}, {"pool": "cls", "num_registers": 2}),
        ({"global_pool": "avg", "class_token": True}, {"pool": "mean", "class_token": True}),
        ({"global_pool": "map", "pool_include_prefix": True}, {"pool": "attention", "pool_prefix": True}),
        ({"num_heads": 6, "mlp_ratio": 2.0, "qkv_bias": False}, {"heads": 6, "mlp_ratio": 2.0, "qkv_bias": False}),
        ({"scale_attn_norm": True, "scale_mlp_norm": True}, {"attn_norm": True, "mlp_norm": True}),
        ({"dynamic_img_pad": True, "dynamic_img_size": True}, {"fit": "pad"}),
        ({"encoding": "rope_axial", "encoding_options": {"theta": 50.0}}, {"encoding_options": {"theta": 50.0}}),
        # What timm's script passes where nothing is asked for.
        (
            {"drop_rate": 0.0, "drop_block_rate": None, "bn_momentum": None, "bn_eps": None, "scriptable": False},
            {"drop_path": 0.0},
        ),
        ({"weight_init": "", "fix_init": False, "strict_img_size": False, "proj_bias": True}, {"fit": "exact"}),
    ],
)
def test_timm_s_arguments(arguments: dict, fields: dict) -> None:
    model = timm.create_model(MICRO, **{**TINY, **arguments})
    for name, value in fields.items():
        assert getattr(model.config, name) == value
    channels, images = model.config.channels, model.config.image_size
    height, width = (images, images) if isinstance(images, int) else images
    assert timm.data.resolve_model_data_config(model)["input_size"] == (channels, height, width)
    assert model.in_chans == channels
    assert model(torch.randn(1, channels, 8, 12)).shape == (1, model.num_classes)


@torch.no_grad()
def test_to_a_folder_of_timm_s_and_back(tmp_path) -> None:
    """What `push_to_hf_hub` writes holds the weights, the encoding and the preparation."""
    options = {"theta": 30.0}
    model = randomised(encoding="rope_mixed", encoding_options=options, global_pool="map", img_size=(16, 24)).eval()
    images = torch.randn(2, 3, 8, 12)
    expected = model(images)
    timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
    assert json.loads((tmp_path / "config.json").read_text())["architecture"] == MICRO
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert torch.equal(again(images), expected)
    assert again.config == model.config
    other = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=9).eval()
    assert other(images).shape == (2, 9)
    assert torch.equal(other.forward_features(images), model.forward_features(images))
    with pytest.raises(RuntimeError, match=r"size mismatch for patch_embed.proj.weight"):
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True, in_chans=1)
    file = next(tmp_path.glob("*.safetensors"))
    overlay = {"file": str(file), "num_classes": -1}
    options = {"encoding": "rope_mixed", "global_pool": "map", "img_size": (16, 24)}
    tuned = timm.create_model(MICRO, pretrained=True, pretrained_cfg_overlay=overlay, **TINY | options).eval()
    assert torch.equal(tuned.encoding.freqs, model.encoding.freqs)
    assert not torch.equal(tuned.head.weight, model.head.weight)


@pytest.fixture
def image_folder(tmp_path):
    """Six images of two classes, of other sizes and shapes, bright or dark."""
    generator = np.random.default_rng(0)
    for label, level in (("bright", 200), ("dark", 20)):
        for split, count in (("train", 4), ("validation", 2)):
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                noise = generator.integers(0, 55, (20 + 3 * number, 31, 3), dtype=np.uint8)
                Image.fromarray(noise + np.uint8(level)).save(folder / f"{number}.png")
    return tmp_path


def test_timm_s_training_script(image_folder) -> None:
    """Its steps, at an input that is not square: layer decay, EMA, schedule, mixup, clipping, saving, resuming."""
    args = argparse.Namespace(model=MICRO, opt="adamw", lr=2e-3, momentum=0.9, weight_decay=0.05, layer_decay=0.75)

    def build() -> tuple[VisionTransformer, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = timm.create_model(
            MICRO, pretrained=False, in_chans=3, num_classes=2, drop_rate=0.0, drop_path_rate=0.1, global_pool=None,
            drop_block_rate=None, bn_momentum=None, bn_eps=None, scriptable=False, checkpoint_path="",
            encoding="lookhere_90", embed_dim=48, reg_tokens=1,
        )  # fmt: skip
        return model, optim.create_optimizer_v2(model, **optim.optimizer_kwargs(args))

    model, optimizer = build()
    model.set_grad_checkpointing(enable=True)
    data = timm.data.resolve_data_config({"input_size": (3, 16, 24)}, model=model)
    loaders = {}
    for split in ("train", "validation"):
        dataset = timm.data.create_dataset("", root=str(image_folder), split=split)
        loaders[split] = timm.data.create_loader(
            dataset, input_size=data["input_size"], batch_size=4, is_training=split == "train", no_aug=True,
            interpolation=data["interpolation"], mean=data["mean"], std=data["std"], crop_pct=data["crop_pct"],
            num_workers=0, use_prefetcher=False, persistent_workers=False,
        )  # fmt: skip
    schedule, epochs = scheduler.create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=6, warmup_epochs=1, updates_per_epoch=len(loaders["train"])
    )
    ema = utils.ModelEmaV3(model, decay=0.9)
    saver = utils.CheckpointSaver(
        model, optimizer, args=args, model_ema=ema, checkpoint_dir=str(image_folder), recovery_dir=str(image_folder)
    )
    mixup = timm.data.Mixup(mixup_alpha=0.2, num_classes=2)

    def validate(one: VisionTransformer) -> tuple[float, float]:
        top1, loss = utils.AverageMeter(), utils.AverageMeter()
        with torch.no_grad():
            for images, targets in loaders["validation"]:
                assert images.shape[2:] == (16, 24)
                logits = one.eval()(images)
                top1.update(utils.accuracy(logits, targets)[0].item(), len(targets))
                loss.update(torch.nn.functional.cross_entropy(logits, targets).item(), len(targets))
        return top1.avg, loss.avg

    before = validate(model)[1]

    for epoch in range(epochs):
        model.train()
        for images, targets in loaders["train"]:
            images = images.contiguous(memory_format=torch.channels_last)
            mixed, soft = mixup(images, targets)
            loss = losses.SoftTargetCrossEntropy()(model(mixed), soft)
            loss = loss + losses.LabelSmoothingCrossEntropy(0.1)(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            utils.dispatch_clip_grad(timm.models.model_parameters(model), value=1.0, mode="norm")
            optimizer.step()
            ema.update(model, step=epoch)
        schedule.step(epoch + 1)
        saver.save_checkpoint(epoch, metric=validate(model)[0])
    top1, after = validate(model)
    assert top1 == 100.0
    assert after < 0.7 * before

    # Resumed: the weights, the optimizer and the epoch; and the averaged weights for use.
    other, fresh = build()
    resumed = timm.models.resume_checkpoint(other, str(image_folder / "last.pth.tar"), fresh)
    assert resumed == epochs
    images = torch.randn(2, 3, 16, 24)
    with torch.no_grad():
        assert torch.equal(other.eval()(images), model.eval()(images))
        timm.models.load_checkpoint(other, str(image_folder / "last.pth.tar"), use_ema=True)
        assert torch.equal(other(images), ema.module.eval()(images))
        assert not torch.equal(other(images), model(images))
    assert fresh.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def test_layer_decay() -> None:
    """From the stem to the head: scales 0.5^4 ... 1 for a depth of 3, and no decay where there should be none."""
    model = timm.create_model(
        MICRO, **TINY | {"depth": 3}, encoding="rope_mixed+learned_1d", reg_tokens=1, global_pool="map", norm_pre=True,
        qkv_bias="qv", scale_attn_norm=True, scale_mlp_norm=True, mlp="swiglu", norm="rms", init_values=0.1,
    )  # fmt: skip
    optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=1.0, weight_decay=0.1, layer_decay=0.5)
    found = {
        id(parameter): (group["lr_scale"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    groups = {name: found.pop(id(parameter)) for name, parameter in model.named_parameters()}
    assert not found
    head = model.get_classifier()
    assert head.in_features == 48
    for name, (scale, decay) in groups.items():
        if name.startswith("blocks.") and "norm_pre" not in name:
            # As timm's: what stands between the last block and the head shares the last block's group.
            assert scale == 0.5 ** (3 - int(name.split(".")[1])), name
        elif name.startswith(("head", "attn_pool")) or "freqs" in name:
            assert scale == 1, name
        elif name.startswith("norm"):
            assert scale == 0.5, name
        else:
            assert scale == 0.5**4, name
        spared = name.startswith("encoding.") or name in {"cls_token", "reg_token", "attn_pool.latent"}
        one_dimensional = model.get_parameter(name).dim() == 1
        assert decay == (0.0 if spared or one_dimensional else 0.1), name
    assert {"blocks.0.norm_pre.weight", "blocks.2.attn.q_bias", "blocks.1.attn.v_bias"} <= groups.keys()
