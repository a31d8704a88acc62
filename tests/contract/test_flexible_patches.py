"""What a model promises whose patches are resized, over every encoding: packs, sizes in any order, folders, exports."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sightline.analysis import attention_distance, patch_filters
from sightline.analysis.memory import estimate_memory
from sightline.encodings import list_encodings
from sightline.errors import InputError
from sightline.export import check_export, export_model
from sightline.hub.fine_tune import create_model
from sightline.hub.load import load_model, save_model
from sightline.models import model_config
from sightline.models.flops import forward_flops
from sightline.models.kernel_resize import axis_inverse, axis_matrix, resize_kernel
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
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


@pytest.mark.parametrize("side", SIZES)
@torch.no_grad()
def test_rows_say_their_patch_size(side):
    """A batch of other patches than those of the model, as training has them."""
    model = flexible()
    other = copy.deepcopy(model)
    other.set_patch_size(side)
    image = pixels(24, 32).unsqueeze(0)
    rows, layout = other.cut(image)
    assert torch.equal(model(rows, layout=layout), other(image))
    with pytest.raises(InputError, match="patches: expected"):
        model(rows[..., :-1], layout=layout)


@pytest.mark.parametrize("rule", RULES)
@torch.no_grad()
def test_save_and_load(rule, tmp_path):
    model = flexible(embedder_options={"rule": rule, "sizes": [2, 4, 8]})
    model.set_patch_size(8)
    save_model(model, tmp_path / "m")
    read = load_model(tmp_path / "m")
    assert read.config.patch_size == 8
    assert read.config.train_grid == model.config.train_grid
    image = pixels(24, 32).unsqueeze(0)
    assert torch.equal(read(image), model(image))
    again = load_model(tmp_path / "m", patch_size=2)
    model.set_patch_size(2)
    assert torch.equal(again(image), model(image))
    with pytest.raises(InputError, match=r"m: patch_size 3: does not divide .* 24x32 .*nearest that do: 2 or 4"):
        load_model(tmp_path / "m", patch_size=3)
    # Divides the images, and was not asked for.
    with pytest.raises(InputError, match=r"patch_size 1: is none of .*sizes \(nearest: 2 or 4\)"):
        load_model(tmp_path / "m", patch_size=1)
    model.set_patch_size((4, 8))
    with pytest.raises(InputError, match="has patches of 4x8 pixels"):
        save_model(model, tmp_path / "oblong")
    assert not (tmp_path / "oblong").exists()


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


@pytest.mark.parametrize("rule", RULES)
def test_the_inverse_of_nothing_is_nothing(rule):
    assert (axis_inverse(7, 7, rule) - torch.eye(7)).abs().max() < 1e-12
    kernel = torch.randn(2, 3, 6, 5)
    assert resize_kernel(kernel, (6, 5), rule) is kernel
    with pytest.raises(InputError, match="kernel rule 'bicubik'"):
        resize_kernel(kernel, (3, 3), "bicubik")
    with pytest.raises(InputError, match="patch size 0x3"):
        resize_kernel(kernel, (0, 3), rule)


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


def test_what_cannot_be_is_refused_and_changes_nothing():
    model = build("learned_1d", patch_norm=True)
    before = model.config
    with pytest.raises(InputError, match="patch_norm true"):
        model.set_patch_size(8)
    assert model.config == before
    with pytest.raises(InputError, match="patch_norm true"):
        flexible(patch_norm=True)
    for size, said in ((5, "nearest that do: 4 or 8"), (0, "patch_size 0"), ((4, 4, 4), "patch_size")):
        model = flexible()
        with pytest.raises(InputError, match=said):
            model.set_patch_size(size)
        assert model.config == flexible().config
    head = build("learned_1d", head="pix", task="segmentation")
    with pytest.raises(InputError, match="head pix has weights for patches of 4 pixels"):
        head.set_patch_size(8)
    assert head.config.patch_size == 4
    with pytest.raises(InputError, match="embedder_options: rule"):
        flexible(embedder_options={"rule": "nearest"})
    with pytest.raises(InputError, match="embedder_options"):
        flexible(embedder_options={"bas": 3})
    padded = flexible(fit="pad")
    padded.set_patch_size(5)
    assert padded(pixels(24, 32).unsqueeze(0)).shape == (1, 5)
    with pytest.raises(InputError, match="fit pad"):
        padded.set_patch_size((4, 8))


@torch.no_grad()
def test_a_head_of_all_tokens_goes_with_its_patches():
    model = build(
        "rope_axial", head="linear_map", task="segmentation", embedder="flexible", embedder_options={"base": 8}
    )
    image = pixels(24, 32).unsqueeze(0)
    for side in (4, 8):
        model.set_patch_size(side)
        (found,) = model(image)
        assert found.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_export_at_a_patch_size(to, tmp_path):
    model = flexible("lookhere_90")
    for side in (4, 8):
        model.set_patch_size(side)
        file = tmp_path / f"{side}{'.pt2' if to == 'torch' else '.onnx'}"
        assert export_model(model, file, to=to).patch_size == side
        rows = check_export(file, model, [(5 * side, 3 * side), (2 * side, 7 * side)], batches=(1, 2))
        assert max(row.difference for row in rows) < 1e-4
    assert model.config.embedder == "flexible"


def test_analyse_and_costs():
    model = flexible("lookhere_90")
    costs = []
    for side in (8, 4):
        model.set_patch_size(side)
        distances = attention_distance(model, pixels(24, 32).unsqueeze(0))
        assert distances.about["patch_size"] == side
        (found,) = patch_filters(model, components=3).arrays.values()
        assert found["pictures"].shape == (3, side, side, 3)
        config = model.config
        cells = config.grid_of((24, 32)).cells
        costs.append((forward_flops(config, [cells]), estimate_memory(config, (24, 32)).total))
    assert costs[0] < costs[1]


def test_the_resize_of_the_kernel_is_all_that_is_not_counted():
    """Once a batch, however many images it has."""
    model = flexible("none", "mean")
    model.set_patch_size(8)
    # Rows, then columns: [8, 12] x [12, 12], [8, 12] x [12, 8].
    resize = 2 * model.config.dim * 3 * (8 * 12 * 12 + 8 * 12 * 8)
    for images in (1, 5):
        layout = TokenLayout.uniform(Grid(3, 5), images, num_prefix_tokens=0)
        rows, expected = torch.randn(images, 15, 3 * 64), forward_flops(model.config, [15] * images)
        for gradients_too in (True, False):
            with (
                torch.set_grad_enabled(gradients_too),
                sdpa_kernel(SDPBackend.MATH),
                FlopCounterMode(display=False) as counter,
            ):
                model(rows, layout)
            assert counter.get_total_flops() - expected == resize
    # The figure of its docstring.
    of_b = 2 * 768 * 3 * (16 * 32 * 32 + 16 * 32 * 16)
    base = model_config("vit_base_patch16", embedder="flexible", embedder_options={"base": 32}, pool="mean")
    assert 0.0025 < of_b / forward_flops(base, [196]) < 0.0035
    of_48 = 2 * 768 * 3 * (48 * 32 * 32 + 48 * 32 * 48)
    largest = base.replace(patch_size=48, image_size=240)
    assert 0.1 < of_48 / forward_flops(largest, [25]) < 0.15


@torch.no_grad()
def test_a_compiler_sees_the_inverse_as_numbers():
    """Whatever it makes of the resize, no decomposition is among its steps."""
    embedder, steps = flexible().patch_embed, []

    def backend(graph, _):
        steps.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    found = torch.compile(lambda: embedder.kernel((8, 8)) + 0, backend=backend)()
    assert (found - embedder.kernel((8, 8))).abs().max() < 1e-6
    assert any("matmul" in step for step in steps)
    assert not any(word in step for step in steps for word in ("pinv", "svd", "interpolate"))


@pytest.mark.parametrize("size", [(8, 8), (8, 5)])
def test_a_compiler_takes_the_resize_with_its_gradients(size) -> None:
    embedder = flexible().patch_embed
    compiled = torch.compile(lambda: embedder.kernel(size).square().sum(), backend="aot_eager")
    found, expected = compiled(), embedder.kernel(size).square().sum()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    both = [torch.autograd.grad(one, embedder.proj.weight)[0] for one in (found, expected)]
    torch.testing.assert_close(*both, atol=1e-5, rtol=1e-5)
