"""A model in the hands of others: its mode, its features by hand, torch.func, quantisation, wrong inputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.models import VisionTransformer, create_model
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

SMALL: dict[str, Any] = {"dim": 48, "depth": 2, "heads": 4, "num_classes": 5, "image_size": 16}


def model(**options: Any) -> VisionTransformer:
    torch.manual_seed(0)
    return randomise_parameters(create_model("vit_micro_patch4", **{**SMALL, **options})).eval()


@pytest.fixture(scope="module")
def listed() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 8, 12, generator=generator), torch.randn(3, 16, 20, generator=generator)]


@torch.no_grad()
@pytest.mark.parametrize("pool", ["cls", "mean", "attention"])
def test_a_pack_is_never_pooled_as_one_image(pool: str, listed: list[Tensor]) -> None:
    ours = model(pool=pool)
    patches, layout = ours.prepare(listed)
    packed, expected = ours.forward_features(patches, layout=layout), ours(listed)
    torch.testing.assert_close(ours.forward_head(packed), expected)
    torch.testing.assert_close(ours.forward_head(packed, layout=layout), expected)
    assert type(ours.forward_head(packed)) is Tensor
    changed = packed * 2
    with pytest.raises(InputError, match="of a pack") as raised:
        ours.forward_head(changed)
    assert "\n" not in str(raised.value)
    torch.testing.assert_close(ours.forward_head(changed / 2, layout=layout), expected)
    # Taken apart they are images.
    pieces = [piece[0] for piece in layout.split(packed)]
    assert torch.allclose(ours.forward_head(pieces), expected, atol=1e-6)
    # A pack of one image with padding is no image either.
    patches, one = ours.prepare(listed[:1])
    padded = one.pad_to(one.slots + 3)
    junk = torch.nn.functional.pad(patches, (0, 0, 0, 3), value=7.0)
    assert torch.allclose(ours.forward_head(ours.forward_features(junk, layout=padded)), expected[:1], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("listed_so", [False, True])
def test_tokens_without_a_patch_are_no_image(listed_so: bool) -> None:
    ours = model(pool="cls")
    features = torch.zeros(1, 1, ours.embed_dim)
    with pytest.raises(InputError, match="1 tokens an image, expected 1 prefix tokens and one patch or more"):
        ours.forward_head([features[0]] if listed_so else features)


@pytest.mark.parametrize("encoding", ["lookhere_90", "rpe_learned", "rope_mixed+learned_1d"])
def test_gradients_by_torch_func(encoding: str) -> None:
    ours = model(encoding=encoding)
    images, names = torch.randn(3, 3, 16, 20), dict(ours.named_parameters())

    def loss(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
        return torch.func.functional_call(ours, parameters, (images,)).square().mean()

    found = torch.func.grad(loss)(names, images)
    loss(names, images).backward()
    for name, parameter in names.items():
        assert torch.allclose(found[name], parameter.grad, atol=1e-5, rtol=1e-4), name
    # The gradient of each image, as differential privacy takes it.
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(names, images.unsqueeze(1))
    for name in names:
        assert torch.allclose(each[name].mean(0), found[name], atol=1e-5, rtol=1e-3), name


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("options", [{}, {"qkv_bias": "qv", "pool": "attention"}, {"pool": "mean"}])
def test_quantised_layers_leave_the_trunk_whole(options: dict[str, Any], listed: list[Tensor]) -> None:
    if "none" in torch.backends.quantized.supported_engines and len(torch.backends.quantized.supported_engines) == 1:
        pytest.skip("torch has no quantised kernels here")
    ours = model(**options)
    small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(ours), {nn.Linear}, dtype=torch.qint8)
    assert not isinstance(small.patch_embed.proj.weight, Tensor)
    said, expected = small(listed), ours(listed)
    assert (said - expected).abs().max() < 0.2 * expected.abs().max()
    assert torch.equal(small.forward_head(small.forward_features(listed)), said)
    small.reset_classifier(3)
    assert small(listed).shape == (2, 3)


_OK = torch.zeros(3, 16, 16)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(1, 3, 16, 16, dtype=torch.float64), "images: is torch.float64, expected torch.float32"),
        (torch.zeros(1, 3, 16, 16, dtype=torch.bfloat16), "images: is torch.bfloat16, expected torch.float32"),
        (torch.zeros(1, 3, 16, 16, device="meta"), "images: is on the meta device, and has no values"),
        (torch.zeros(1, 3, 16, 16, dtype=torch.int32), "images: expected normalised floating point values"),
        (torch.zeros(1, 3, 16, 16, dtype=torch.complex64), "images: expected normalised floating point values"),
        ([_OK, _OK.double()], "image 1: is torch.float64, expected torch.float32"),
        ([_OK.half(), _OK], "image 0: is torch.float16, expected torch.float32"),
        ([_OK, _OK.to("meta")], "image 1: is on the meta device"),
        ([_OK, _OK.byte()], "image 1: expected normalised floating point values, got torch.uint8"),
    ],
)
def test_images_of_another_kind(images: Any, words: str) -> None:
    ours = model()
    for call in (ours, ours.forward_features, ours.forward_intermediates):
        with pytest.raises(InputError) as raised:
            call(images)
        assert str(raised.value).startswith(words)
        assert "\n" not in str(raised.value)


def test_patches_of_another_kind() -> None:
    ours, layout = model(), TokenLayout.uniform((4, 4), 1)
    for patches in (torch.zeros(1, 16, 48).double(), torch.zeros(1, 16, 48, device="meta")):
        with pytest.raises(InputError, match="patches: is "):
            ours(patches, layout=layout)
