"""Models of clips: what every family promises, with each encoding that knows three axes, or refuses in a line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sightline import analysis, create_model
from sightline.analysis.memory import estimate_memory
from sightline.attention import use_backend
from sightline.encodings import list_encodings
from sightline.encodings.create import registry
from sightline.errors import InputError
from sightline.models import Model
from sightline.models.flops import forward_flops
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

SMALL: dict[str, Any] = {
    "dim": 48, "depth": 2, "heads": 4, "num_classes": 5, "patch_size": 4, "image_size": (12, 20), "clip_frames": 6,
    "embedder": "tubelets", "embedder_options": {"frames": 2},
}  # fmt: skip
KNOWS_CLIPS = [name for name in list_encodings() if registry()[name].axes != 2]
JOINED = ["rope_mixed+learned_1d", "lookhere_90+factorized"]
POOLS = ["cls", "mean", "attention", "query"]


def model_of(encoding: str, pool: str = "cls", **changes: Any) -> Model:
    torch.manual_seed(0)
    # Of fewer heads LookHere has none that looks into the past or the future alone.
    fields = {**SMALL, "num_registers": 1, "heads": 12 if "lookhere" in encoding else 4, **changes}
    model = create_model("vit_micro_patch4", **fields, encoding=encoding, pool=pool)
    return randomise_parameters(model).eval()


def clips() -> list[Tensor]:
    """Of the training's size, an image, a clip whose frames the tubelet does not divide, and a small one."""
    sizes = ((6, 12, 20), (12, 8), (5, 8, 16), (2, 4, 4))
    return [torch.randn(3, *size, generator=torch.Generator().manual_seed(sum(size))) for size in sizes]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("encoding", [*KNOWS_CLIPS, *JOINED])
def test_a_clip_packed_with_images_gives_what_it_gives_alone(encoding: str, pool: str) -> None:
    """Gradients too, whatever stands before it."""
    model, given = model_of(encoding, pool), clips()
    packed, turned = model(given), model(given[::-1])
    alone = torch.cat([model(one.unsqueeze(0)) for one in given])
    assert alone.std() > 1e-3
    assert (packed - alone).abs().max() < 1e-5
    assert (turned.flip(0) - alone).abs().max() < 1e-5
    weights = [one for one in model.parameters() if one.requires_grad]
    both = [torch.autograd.grad(out.square().sum(), weights, allow_unused=True) for out in (packed, alone)]
    for one, other in zip(*both, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (one - other).norm() <= 1e-4 * other.norm() + 1e-5


@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_mixed", "factorized"])
@torch.no_grad()
def test_a_batch_is_its_clips_on_any_grid(encoding: str) -> None:
    model = model_of(encoding)
    for size in ((6, 12, 20), (9, 8, 4), (1, 20, 12)):
        batch = torch.randn(2, 3, *size)
        assert (model(batch) - model(list(batch))).abs().max() < 1e-5
    image = torch.randn(2, 3, 8, 16)
    # An image is a clip of one frame, which stands still for a tubelet.
    still = image.unsqueeze(2).expand(-1, -1, 2, -1, -1)
    assert torch.equal(model(image), model(image.unsqueeze(2)))
    assert (model(image) - model(still)).abs().max() < 1e-5


@torch.no_grad()
def test_time_is_looked_at() -> None:
    """A clip that runs backwards is another one, but where nothing says what stands where."""
    clip = clips()[0].unsqueeze(0)
    for encoding in KNOWS_CLIPS:
        model = model_of(encoding)
        backwards = model.patch_embed.patchifier.unpatchify(*model.patch_embed.patchifier(clip))
        # Tubelets change places, and each stays as it is.
        backwards = backwards.unflatten(2, (3, 2)).flip(2).flatten(2, 3)
        same = (model(clip) - model(backwards)).abs().max() < 1e-5
        assert same == (encoding in ("none", "alibi_2d")), encoding


@torch.no_grad()
def test_dropped_tubelets_and_padding() -> None:
    model = model_of("lookhere_90")
    rows, layout = model.cut(clips())
    kept = [torch.arange(0, one.patches, 2) for one in layout.segments]
    parts = zip(rows.split([one.patches for one in layout.segments], 1), kept, strict=True)
    some = torch.cat([part[:, index] for part, index in parts], 1)
    packed = model(some, layout=layout.keep(kept))
    padded = layout.keep(kept).pad_to(layout.slots)
    extra = some.new_full((1, padded.padding, some.shape[-1]), torch.nan)
    assert (model(torch.cat((some, extra), 1), layout=padded) - packed).abs().max() < 1e-5
    first = TokenLayout.packed([layout.segments[0].grid], num_prefix_tokens=model.num_prefix_tokens).keep(kept[:1])
    assert (model(some[:, : len(kept[0])], layout=first) - packed[:1]).abs().max() < 1e-5


@pytest.mark.parametrize("backend", ["sdpa", "tiles", "flex", "varlen"])
@torch.no_grad()
def test_every_back_end_gives_the_same_or_leaves_it_to_another(backend: str) -> None:
    model = model_of("lookhere_90")
    expected = model(clips())
    with use_backend(backend):
        assert (model(clips()) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("inflation", ["central", "average"])
@pytest.mark.parametrize("encoding", ["learned_1d", "factorized", "rope_mixed", "fourier", "lookhere_90", "none"])
@torch.no_grad()
def test_a_model_of_images_becomes_one_of_clips(encoding: str, inflation: str) -> None:
    """Of a clip that stands still each frame's tubelets are the image's patches; what time does begins with nothing."""
    frames = 3
    fields = {key: SMALL[key] for key in ("dim", "depth", "heads", "num_classes", "patch_size", "image_size")}
    torch.manual_seed(0)
    images = create_model("vit_micro_patch4", **fields, encoding=encoding, patch_norm=True, pool="mean").eval()
    # Dual PatchNorm looks at the whole tubelet: of one that stands still it is that of a frame.
    cut = {"embedder": "tubelets", "embedder_options": {"frames": frames, "inflation": inflation}, "clip_frames": 6}
    model = create_model(init_from=images, **cut).eval()
    assert model.config.train_grid == Grid(2, 3, 5)
    assert model.reinitialized == ()
    image = torch.randn(1, 3, 12, 20)
    still = image.unsqueeze(2).expand(-1, -1, 6, -1, -1)
    rows, layout = model.prepare(still)
    tokens = model.embed(rows, layout)
    added = model.encoding.added(0, layout)
    tokens = tokens if added is None else tokens + added
    there, plain = images.prepare(image)
    expected = images.embed(there, plain)
    added = images.encoding.added(0, plain)
    expected = expected if added is None else expected + added
    by_frame = tokens.unflatten(1, (2, -1))
    assert (by_frame - expected.unsqueeze(1)).abs().max() < 1e-4
    if encoding != "lookhere_90":
        # Nothing tells one frame from another, and each token sees its copies alike.
        assert (model(still) - images(image)).abs().max() < 1e-4


def test_a_model_of_clips_begins_with_one_of_images_as_far_as_it_can() -> None:
    fields = {key: SMALL[key] for key in ("dim", "depth", "heads", "num_classes", "patch_size", "image_size")}
    images = create_model("vit_micro_patch4", **fields, encoding="learned_1d")
    model = create_model(init_from=images, embedder="tubelets", clip_frames=4, encoding="rope_axial", num_classes=2)
    assert sorted(model.reinitialized) == ["head.bias", "head.weight"]
    assert torch.equal(model.blocks[0].attn.qkv.weight, images.blocks[0].attn.qkv.weight)
    # Another size than the tables', which they keep.
    larger = create_model(init_from=images, embedder="tubelets", clip_frames=4, image_size=24)
    assert larger.config.train_grid == Grid(2, 3, 5)
    assert larger.config.grid_of(larger.config.image_size) == Grid(2, 6, 6)
    assert larger(torch.randn(1, 3, 4, 24, 24)).shape == (1, 5)
    fourier = create_model("vit_micro_patch4", **fields, encoding="factorized", encoding_options={"table": "fourier"})
    with pytest.raises(InputError, match="factorized: Fourier features of images have none of frames"):
        create_model(init_from=fourier, embedder="tubelets", clip_frames=4)


def test_operations_and_memory_count_the_frames() -> None:
    model = model_of("lookhere_90", pool="mean", class_token=False, num_registers=0)
    config = model.config
    still = config.replace(embedder="patches", embedder_options={}, clip_frames=None)
    assert forward_flops(config, [45]) - forward_flops(still, [45]) == 2 * 45 * 48 * 48
    one, other = (estimate_memory(config.replace(clip_frames=frames), (12, 20), training=True) for frames in (6, 24))
    assert (one.tokens, other.tokens) == (45, 180)
    assert other.activations > 3.5 * one.activations
    assert one.built == 4 * sum(parameter.numel() for parameter in model.parameters())


def test_the_distance_of_attention_is_that_in_space_and_time() -> None:
    """Where every head looks everywhere alike it is the mean distance of two tubelets."""
    model = model_of("none", num_registers=0, pool="mean", class_token=False)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.zero_()
            block.attn.qkv.bias.zero_()
    found = analysis.attention_distance(model, torch.randn(1, 3, 6, 12, 20))
    sides = [torch.arange(side).double() for side in (3, 3, 5)]
    places = torch.cartesian_prod(*sides)
    expected = torch.cdist(places, places).mean().item()
    (arrays,) = found.arrays.values()
    assert arrays["distance"] == pytest.approx(expected, abs=1e-4)
