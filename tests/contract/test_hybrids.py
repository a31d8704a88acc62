"""What every model promises, of hybrids: any size, packed as alone, saved and read, counted, refused in one line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import sightline
from sightline.analysis.memory import estimate_memory
from sightline.convert import import_weights
from sightline.data.batch import collate_packed, collate_uniform, normalize
from sightline.export import export_model
from sightline.models import Model, create_model
from sightline.models.embedders.resnet import StemPatchifier
from sightline.models.flops import forward_flops
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters
from tests.convert.originals import original

SMALL = {"width_factor": 0.125, "groups": 4}
# A patch of one cell, and one of several (the stem alone, and under one stage).
STEMS = {"r16": ([1, 1, 1], 16), "cell": ([2, 1], 8), "alone": ([], 16), "stage": ([1], 8)}
# Odd, even, one that is all patches, one whose stem has more cells than pixels of whole patches, and two alike.
SIZES = ((33, 29), (32, 48), (61, 18), (30, 47), (33, 29))


def build(stem: str = "cell", seed: int = 0, **changes: Any) -> Model:
    layers, patch = STEMS[stem]
    options = {"layers": layers, **SMALL, **changes.pop("options", {})}
    torch.manual_seed(seed)
    settings = {"dim": 32, "depth": 1, "heads": 4, "image_size": (48, 64), "num_classes": 5, "encoding": "learned_1d"}
    settings |= {"patch_size": patch, "embedder": "resnet", "embedder_options": options, "fit": "crop", **changes}
    return randomise_parameters(create_model("vit_micro_patch4", **settings), seed).eval()


def images(sizes: Any = SIZES, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, *size, generator=generator, dtype=dtype) for size in sizes]


CASES = [
    *itertools.product(STEMS, ("pad", "crop"), ("learned_1d",), ("cls",)),
    ("cell", "pad", "rope_mixed", "attention"),
    ("r16", "crop", "lookhere_90", "mean"),
    ("alone", "resize", "rpe_learned", "query"),
]


@pytest.mark.parametrize(("stem", "fit", "encoding", "pool"), CASES)
def test_packed_is_alone_with_its_gradients(stem: str, fit: str, encoding: str, pool: str) -> None:
    model = build(stem, fit=fit, encoding=encoding, pool=pool).double()
    together = model(images())
    alone = torch.cat([model(image[None]) for image in images()])
    assert together.std() > 0.02
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)
    torch.testing.assert_close(model(images()[::-1]), alone.flip(0), rtol=0, atol=1e-9)
    grads = []
    for out in (together, alone):
        grads.append(torch.autograd.grad(out.square().sum(), list(model.parameters()), allow_unused=True))
    for (name, _), one, other in zip(model.named_parameters(), *grads, strict=True):
        assert one is not None, name
        assert one.norm() > 0, name
        # Tables and frequencies are taken in float32.
        assert (one - other).norm() <= (1e-6 if name.startswith("encoding") else 1e-8) * other.norm(), name


def test_what_lies_beyond_an_image_does_not_matter() -> None:
    """Rows hold padding where the patch does not divide an image, and the stem is not shown it."""
    for stem, fit in itertools.product(STEMS, ("pad", "crop")):
        model = build(stem, fit=fit).double()
        rows, layout = model.prepare(images()[0][None])
        grid, patchifier = layout.segments[0].grid, model.patch_embed.patchifier
        assert isinstance(patchifier, StemPatchifier)
        assert layout.segments[0].pixels == (33, 29)
        own = patchifier(torch.ones(1, 3, 33, 29))[0]
        assert (own == 0).any()
        assert torch.equal(model(rows + 9 * (1 - own), layout=layout), model(rows, layout=layout))
        # Whoever does not know the size takes it for a part of the image.
        other = TokenLayout.uniform(grid, 1, num_prefix_tokens=layout.num_prefix_tokens)
        assert (model(rows, layout=other) - model(rows, layout=layout)).abs().max() > 1e-6


@pytest.mark.parametrize("fit", ["pad", "crop"])
@torch.no_grad()
def test_what_workers_make_of_an_image(fit: str) -> None:
    """uint8 pictures by the embedder's half, arranged as the loader does: what the model makes of normalised images."""
    for stem in STEMS:
        model = build(stem, fit=fit)
        draws = np.random.default_rng(0)
        pictures = [draws.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
        config, make = model.config, model.image_rows
        rows, grids = zip(*(make(one) for one in pictures), strict=True)
        pixels = [make.patchifier.valid_size(*one.shape[:2]) for one in pictures]
        assert [make.patchifier.grid_of(*one.shape[:2]) for one in pictures] == list(grids)
        inputs, layout = collate_packed(rows, grids, [None] * len(rows), model.num_prefix_tokens, pixels)
        found = model(normalize(inputs, config.mean, config.std), layout=layout)
        tensors = [(torch.tensor(one).permute(2, 0, 1) / 255 - 0.5) / 0.5 for one in pictures]
        torch.testing.assert_close(found, model(tensors), rtol=0, atol=2e-5)
        inputs, layout = collate_uniform(
            [rows[0], rows[4]], [grids[0]] * 2, [None] * 2, model.num_prefix_tokens, [pixels[0]] * 2
        )
        alike = model(normalize(inputs, config.mean, config.std), layout=layout)
        torch.testing.assert_close(alike, model(torch.stack([tensors[0], tensors[4]])), rtol=0, atol=2e-5)


@pytest.mark.parametrize("pad", [False, True])
@torch.no_grad()
def test_timm_with_a_patch_of_several_cells(pad: bool) -> None:
    """Its grid is that of the stem's real map: passed over, or padded on the map (`dynamic_img_pad`)."""
    given = {"embed_dim": 48, "depth": 1, "img_size": 64, "num_classes": 5, "dynamic_img_pad": pad}
    theirs = original("vit_tiny_r_s16_p8_224", **given)
    ours = import_weights("timm", theirs.state_dict(), {"model": "vit_tiny_r_s16_p8_224", **given})
    assert ours.config.fit == ("pad" if pad else "exact")
    ours = sightline.create_model(init_from=ours, fit="pad" if pad else "crop")
    for height, width in ((64, 64), (61, 93), (69, 101), (33, 66)):
        seen = torch.randn(1, 3, height, width)
        theirs.patch_embed.strict_img_size = False
        embedded = theirs.patch_embed(seen)
        rows, layout = ours.prepare(seen)
        assert tuple(layout.segments[0].grid) == tuple(embedded.shape[1:3]) or min(height, width) < 32
        found = ours.patch_embed(rows, layout).unflatten(1, tuple(layout.segments[0].grid))
        torch.testing.assert_close(found, embedded, rtol=0, atol=5e-4)


@pytest.mark.parametrize("stem", STEMS)
def test_operations_are_those_that_torch_counts(stem: str) -> None:
    model = build(stem, encoding="none", pool="mean")
    patch = model.config.patch_size
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(torch.randn(2, 3, 3 * patch, 4 * patch))
    assert counter.get_total_flops() == forward_flops(model.config, [12, 12])


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("form", ["official", "timm"])
def test_memory_of_a_step_is_what_the_stem_keeps(stem: str, form: str) -> None:
    model = build(stem, options={"standardisation": form, "width_factor": 0.5, "groups": 8})
    embed, held = model.patch_embed, {}

    def note(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    size = 4 * model.config.patch_size
    rows, layout = model.prepare(torch.randn(4, 3, size, size))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        embed(rows, layout)
    known = {one.untyped_storage().data_ptr() for one in (rows, *embed.parameters())}
    kept = sum(count for place, (count, _) in held.items() if place not in known)
    of_patch, of_pass = type(embed).held(model.config, True)
    assert 0.8 <= (4 * 16 * of_patch + of_pass) * 4 / kept <= 1.25
    least = estimate_memory(model.config, size, batch=4, training=True).activations
    assert least >= kept
    assert estimate_memory(model.config, size, batch=4).activations < least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "stem", "fit"), [("torch", "cell", "pad"), ("onnx", "cell", "crop"), ("torch", "alone", "exact")]
)
@torch.no_grad()
def test_exported_for_any_size_of_patches(to: str, stem: str, fit: str, tmp_path: Path) -> None:
    model = build(stem, fit=fit)
    file = tmp_path / ("m.onnx" if to == "onnx" else "m.pt2")
    export_model(model, file, to=to)
    patch = model.config.patch_size
    for rows, cols in ((3, 5), (4, 2)):
        given = torch.randn(2, 3, rows * patch, cols * patch)
        if to == "onnx":
            run: Any = pytest.importorskip("onnxruntime").InferenceSession(str(file)).run
            (found,) = run(None, {"images": given.numpy()})
            found = torch.tensor(found)
        else:
            found = torch.export.load(file).module()(given)
        torch.testing.assert_close(found, model(given), rtol=0, atol=2e-5)
