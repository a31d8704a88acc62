"""Hybrids against vision_transformer and timm (golden_families/hybrid_*): stems, tokens, features and logits.

The originals ran their stems in float64, so ours is tried in both precisions.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.convert import counted_weights, export_weights, import_weights
from sightline.models import Model
from sightline.models.embedders.resnet import resnet_options
from sightline.models.resnet_stem import standardize_weight
from tests.parity.family_files import assert_close, files, read, timm_name, weights
from tests.parity.timm_toys import toy_stems

pytestmark = pytest.mark.slow

FILES = files("hybrid")
STEM = {torch.float32: 5e-4, torch.float64: 1e-5}
OUTPUTS = 5e-5


def given_of(file: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The project, and the arguments that it takes."""
    if (name := timm_name(file)) is not None:
        aside = ("sizes", "stem_chs", "channels", "group_norm_groups")
        return "timm", {"model": name, **{key: value for key, value in args.items() if key not in aside}}
    given = {key: value for key, value in args.items() if key != "sizes"}
    return "vision_transformer", {**given, "image_size": next(iter(args["sizes"].values()))}


@pytest.fixture
def toys() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        yield lambda file, args: toy_stems(patch, args) if timm_name(file) else None


def imported(file: str, toys: Any) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    tensors, args = read(file)
    toys(file, args)
    project, given = given_of(file, args)
    model = import_weights(project, weights(tensors), given)
    back, again = export_weights(model, project)
    # Today's flax numbers modules otherwise than the published files do, whose names are given back.
    theirs = counted_weights(project, weights(tensors), back)
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.items())
    assert import_weights(project, back, json.loads(json.dumps(again))).config == model.config
    return model, tensors, args


def images_of(tensors: dict[str, Tensor], tag: str) -> Tensor:
    nhwc = tensors.get(f"in.{tag}_nhwc")
    return tensors[f"in.{tag}"] if nhwc is None else nhwc.permute(0, 3, 1, 2).contiguous()


def one_cell(file: str) -> bool:
    """A patch is one cell of the stem's map: nothing can be padded there, and nothing is passed over."""
    proj = weights(read(file)[0])
    sides = proj["patch_embed.proj.weight"].shape[2:] if timm_name(file) else proj["embedding/kernel"].shape[:2]
    return tuple(sides) == (1, 1)


FITS = [(file, None, torch.float32) for file in FILES]
FITS += [(file, "pad" if one_cell(file) else None, torch.float64) for file in FILES]


@pytest.mark.parametrize(("file", "fit", "dtype"), FITS)
@torch.no_grad()
def test_parity(file: str, fit: str | None, dtype: torch.dtype, toys: Any) -> None:
    model, tensors, args = imported(file, toys)
    of_timm = timm_name(file) is not None
    # Of several cells a patch takes sizes that it does not divide by `crop` alone, which is asked for.
    model = _refitted(model, fit or "crop")
    model, stem = model.to(dtype), STEM[dtype]
    sequence: Any = model.patch_embed
    for tag in args["sizes"]:
        images = images_of(tensors, tag).to(dtype)
        to_ours = (lambda x: x) if of_timm else (lambda x: x.permute(0, 3, 1, 2))
        if (root := tensors.get(f"out.{tag}.root_after_gn")) is not None:
            first = sequence.backbone.stem
            assert_close(first.norm(*first.conv([images])), to_ours(root), stem)
        maps = [one for (one,) in sequence.backbone.steps([images])]
        theirs = ("stem", "stage", 0) if of_timm else ("", "block", 1)
        named = [theirs[0], *(f"{theirs[1]}{number + theirs[2]}" for number in range(8))]
        for name, one in zip(named, maps, strict=False):
            if (expected := tensors.get(f"out.{tag}.{name}")) is not None:
                assert_close(one, to_ours(expected), stem)
        rows, layout = model.prepare(images)
        embedded = tensors[f"out.{tag}.embedding"]
        assert tuple(layout.segments[0].grid) == embedded.shape[1:3]
        assert_close(sequence(rows, layout).unflatten(1, tuple(embedded.shape[1:3])), embedded, stem)
        placed = model
        if not of_timm and f"pos.{tag}" in tensors:
            # There a table of that grid stood in place of the model's.
            placed = _with_table(model, tensors[f"pos.{tag}"], layout.segments[0].grid)
        features = tensors[f"out.{tag}.{'features' if of_timm else 'encoded'}"]
        # The stem's own error, in the precision that it runs in.
        assert_close(placed.forward_features(images), features, max(stem, OUTPUTS))
        assert_close(placed(images), tensors[f"out.{tag}.logits"], OUTPUTS)
        if (hidden := tensors.get(f"out.{tag}.pre_logits")) is not None:
            head: Any = model.head
            pooled = placed.pool(placed.encode(rows, layout), layout)
            assert_close(head.fc1(pooled).tanh(), hidden, OUTPUTS)


def _refitted(model: Model, fit: Any) -> Model:
    again = type(model)(model.config.replace(fit=fit)).eval()
    again.load_state_dict(model.state_dict())
    return again


def _with_table(model: Model, table: Tensor, grid: Any) -> Model:
    """The same model with another table, made for a grid."""
    again = type(model)(model.config.replace(table_grid=tuple(grid))).eval().to(model.anchor.dtype)
    state = dict(model.state_dict())
    prefix = model.num_prefix_tokens
    if prefix:
        state["encoding.prefix"] = table[0, :prefix]
    state["encoding.table"] = table[0, prefix:]
    again.load_state_dict(state)
    return again


JAX = [file for file in FILES if not timm_name(file)]


@pytest.mark.parametrize("file", JAX)
def test_standardised_weights(file: str, toys: Any) -> None:
    model, tensors, *_ = imported(file, toys)
    stem: Any = model.patch_embed
    root = stem.backbone.stem.conv.weight.detach()
    assert_close(standardize_weight(root, "official"), tensors["std.conv_root"].permute(3, 2, 0, 1), 1e-6 * 20)
    assert (standardize_weight(root, "official") - standardize_weight(root, "timm")).abs().max() > 1e-6


@pytest.mark.parametrize("form", ["official", "timm"])
def test_the_two_forms_are_what_is_written(form: Any) -> None:
    """Kernels of a small deviation: their epsilons are of another size, and so is the result."""
    weight = 1e-4 * torch.randn(6, 3, 3, 3, dtype=torch.float64) + 0.3
    mean, variance = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), correction=0, keepdim=True)
    expected = {
        "official": (weight - mean) / (variance.sqrt() + 1e-5),
        "timm": (weight - mean) / (variance + 1e-8).sqrt(),
    }
    torch.testing.assert_close(standardize_weight(weight, form), expected.pop(form), rtol=1e-9, atol=1e-12)
    (other,) = expected.values()
    assert (standardize_weight(weight, form) - other).abs().max() > 0.05


class Written:
    """The stem as the papers write it, in any precision: unfused, SAME by explicit zeros, a loop over units."""

    def __init__(self, stem: nn.Module, form: str, groups: int, eps: float) -> None:
        self.parts, self.form, self.groups, self.eps = dict(stem.named_parameters()), form, groups, eps

    def conv(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = self.parts[f"{name}.weight"]
        centred = weight - weight.mean((1, 2, 3), keepdim=True)
        variance = centred.square().mean((1, 2, 3), keepdim=True)
        scale = variance.sqrt() + 1e-5 if self.form == "official" else (variance + 1e-8).sqrt()
        return F.conv2d(self.same(x, weight.shape[-1], stride), centred / scale, stride=stride)

    def same(self, x: Tensor, kernel: int, stride: int) -> Tensor:
        pads = []
        for side in reversed(x.shape[-2:]):
            total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            pads += [total // 2, total - total // 2]
        return F.pad(x, pads)

    def norm(self, x: Tensor, name: str) -> Tensor:
        apart = x.unflatten(1, (self.groups, -1))
        mean = apart.mean((2, 3, 4), keepdim=True)
        variance = (apart - mean).square().mean((2, 3, 4), keepdim=True)
        normed = ((apart - mean) / (variance + self.eps).sqrt()).flatten(1, 2)
        weight, bias = (self.parts[f"{name}.{part}"].view(-1, 1, 1) for part in ("weight", "bias"))
        return normed * weight + bias

    def __call__(self, x: Tensor, layers: tuple[int, ...]) -> Tensor:
        x = self.norm(self.conv(x, "stem.conv", 2), "stem.norm").relu()
        x = F.max_pool2d(self.same(x, 3, 2), 3, 2)
        for stage, units in enumerate(layers):
            for unit in range(units):
                name, stride = f"stages.{stage}.blocks.{unit}", 2 if stage and not unit else 1
                inner = self.norm(self.conv(x, f"{name}.conv1"), f"{name}.norm1").relu()
                inner = self.norm(self.conv(inner, f"{name}.conv2", stride), f"{name}.norm2").relu()
                inner = self.norm(self.conv(inner, f"{name}.conv3"), f"{name}.norm3")
                if not unit:
                    x = self.norm(self.conv(x, f"{name}.downsample.conv", stride), f"{name}.downsample.norm")
                x = (inner + x).relu()
        return x


@pytest.mark.parametrize("file", FILES)
def test_gradients(file: str, toys: Any) -> None:
    """Of every weight of the stem and of the image, beside the stem written out, at a size with odd sides."""
    model, tensors, args = imported(file, toys)
    model = model.double()
    options = resnet_options(model.config)
    embed: Any = model.patch_embed
    images = images_of(tensors, list(args["sizes"])[-1]).double()
    factors = None
    found = []
    for written in (False, True):
        stem, seen = copy.deepcopy(embed.backbone), images.clone().requires_grad_()
        if written:
            plain = Written(stem, options.standardisation, options.groups, options.norm_eps)
            out = plain(seen, options.layers)
        else:
            (out,) = stem([seen])
        if factors is None:
            factors = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        (out * factors).sum().backward()
        grads = {name: one.grad for name, one in stem.named_parameters()}
        found.append({"image": seen.grad, "out": out.detach(), **grads})
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert (ours[name] - expected).norm() <= 1e-8 * expected.norm(), name
        assert expected.norm() > 0, name
