"""What a model promises whose patches are resized, over every encoding: packs, sizes in any order, folders, exports."""

from __future__ import annotations

import copy

import pytest
import torch

from sightline.encodings import list_encodings
from sightline.export import check_export, export_model
from sightline.hub.fine_tune import create_model
from sightline.models.kernel_resize import axis_matrix, resize_kernel
from tests.contract.contract import GRADIENTS, LOGITS, assert_spread, build, gradients, loss_of

ENCODINGS = [*list_encodings(), "rope_axial+learned_1d"]
BASE = 12
# 24 x 32 pixels: these divide both sides.
SIZES = (4, 8, 2)
RULES = ["bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear"]


def flexible(name="rope_axial+learned_1d", pool="cls", **more):
    # Whole inputs of 24 x 32 px, cut into patches of 4 px to begin with.
    options = {"base": BASE, **more.pop("embedder_options", {})}
    return build(name, pool, embedder="flexible", embedder_options=options, **more)


def pixels(height, width, seed=0):
    return torch.randn(3, height, width, generator=torch.Generator().manual_seed(seed))


# One encoding is enough for the other pools.
POOLED = [("rope_axial+learned_1d", pool) for pool in ("mean", "attention")]


@pytest.mark.parametrize(("name", "pool"), [*((name, "cls") for name in ENCODINGS), *POOLED])
def test_a_pack_gives_what_each_image_gives_alone(name, pool):
    """At two patch sizes, on grids that are not square, in any order, and so do the gradients."""
    model = flexible(name, pool)
    images = [pixels(24, 40), pixels(8, 16, 1), pixels(40, 8, 2)]
    for side in (4, 8):
        model.set_patch_size(side)
        alone = torch.cat([model(image.unsqueeze(0)) for image in images])
        assert_spread(alone.detach())
        loss_of(alone).backward()
        expected = gradients(model)
        for order in ([0, 1, 2], [2, 0, 1]):
            packed = model([images[number] for number in order])
            assert (packed - alone[order]).abs().max() < LOGITS
            loss_of(packed).backward()
            found = gradients(model)
            assert found.keys() == expected.keys()
            for key, gradient in expected.items():
                assert (found[key] - gradient).norm() <= GRADIENTS * gradient.norm() + 1e-6, key


@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_the_order_of_patch_sizes_does_not_matter(name):
    image, model = pixels(24, 32).unsqueeze(0), flexible(name)
    fresh = {}
    for side in SIZES:
        one = copy.deepcopy(model)
        one.set_patch_size(side)
        fresh[side] = one(image)
        assert one.config.train_grid == model.config.train_grid
    assert (fresh[4] - fresh[8]).abs().max() > 1e-3
    for side in (*SIZES, *reversed(SIZES)):
        model.set_patch_size(side)
        assert torch.equal(model(image), fresh[side])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("old", "new"), [((8, 6), (16, 12)), ((5, 7), (8, 9)), ((4, 4), (4, 7))])
def test_an_enlarged_patch_gives_the_token_that_it_gave(rule, old, new):
    """pinv(B^T) w . (B x) = w . x for every x, where B only enlarges (FlexiViT, section 3.4)."""
    kernel, patch = torch.randn(3, 2, *old, dtype=torch.float64), torch.randn(2, *old, dtype=torch.float64)
    rows, cols = (axis_matrix(*sides, rule) for sides in zip(old, new, strict=True))
    enlarged = rows @ patch @ cols.T
    token = (resize_kernel(kernel, new, rule) * enlarged).sum((1, 2, 3))
    assert (token - (kernel * patch).sum((1, 2, 3))).abs().max() < 1e-10


@pytest.mark.parametrize("rule", RULES)
def test_a_shrunk_patch_is_the_nearest_there_is(rule):
    """Of all kernels of 4 x 3, the one whose tokens of shrunk white noise lie nearest: the residual is orthogonal."""
    kernel = torch.randn(1, 1, 8, 9, dtype=torch.float64)
    shrunk = resize_kernel(kernel, (4, 3), rule)
    rows, cols = axis_matrix(8, 4, rule), axis_matrix(9, 3, rule)
    # The token of B x is (B^T w_new) . x.
    left = kernel - rows.T @ shrunk @ cols
    assert (rows @ left @ cols.T).abs().max() < 1e-10
    assert left.norm() > 0.1 * kernel.norm()


@torch.no_grad()
def test_plain_to_flexible_and_back(caplog):
    """A flexible model of a plain one begins with its logits, and a plain one of it has those of its patches."""
    plain, image = build("learned_1d"), pixels(24, 32).unsqueeze(0)
    model = create_model(init_from=plain, embedder="flexible").eval()
    assert model.config.embedder_options == {"base": 4}
    assert torch.equal(model(image), plain(image))
    assert not model.reinitialized
    for side in SIZES:
        model.set_patch_size(side)
        back = create_model(init_from=model, embedder="patches").eval()
        assert back.config.embedder_options == {}
        assert back.patch_embed.proj.weight.shape[1] == 3 * side**2
        assert (back(image) - model(image)).abs().max() < LOGITS
        at_once = create_model(init_from=plain, patch_size=side).eval()
        assert (at_once(image) - model(image)).abs().max() < LOGITS
        assert "patches of" in caplog.text or side == 4
        resized = copy.deepcopy(plain)
        resized.set_patch_size(side)
        assert torch.equal(resized(image), at_once(image))
    named = create_model("vit_micro_patch4", init_from=plain, patch_size=8, dim=96, depth=2)
    assert named.config.patch_size == 8


@pytest.mark.slow
@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_export_at_a_patch_size(to, tmp_path):
    model = flexible("lookhere_90")
    for side in (4, 8) if to == "torch" else (8,):
        model.set_patch_size(side)
        file = tmp_path / f"{side}{'.pt2' if to == 'torch' else '.onnx'}"
        assert export_model(model, file, to=to).patch_size == side
        rows = check_export(file, model, [(5 * side, 3 * side), (2 * side, 7 * side)], batches=(1, 2))
        assert max(row.difference for row in rows) < 1e-4
    assert model.config.embedder == "flexible"


@pytest.mark.parametrize("size", [(8, 8), (8, 5)])
def test_a_compiler_takes_the_resize_with_its_gradients(size) -> None:
    embedder = flexible().patch_embed
    compiled = torch.compile(lambda: embedder.kernel(size).square().sum(), backend="aot_eager")
    found, expected = compiled(), embedder.kernel(size).square().sum()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    both = [torch.autograd.grad(one, embedder.proj.weight)[0] for one in (found, expected)]
    torch.testing.assert_close(*both, atol=1e-5, rtol=1e-5)
