"""ViTDet's simple pyramid and OWL-ViT's heads against the public code (golden_families/)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.convert import export_weights, import_weights
from sightline.models import Model, ViTConfig, make_model
from sightline.models.heads.owlvit import OwlVitHead, box_bias
from sightline.models.heads.simple_pyramid import SimplePyramid
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.parity.family_files import assert_close, files, read, weights


@pytest.mark.parametrize("file", files("vitdet_pyramid"))
def test_simple_pyramid(file: str) -> None:
    tensors, said = read(file)
    scales = [float(scale) for scale in said["scale_factors"]]
    names = [round(torch.log2(torch.tensor(said["stride"] / scale)).item()) for scale in scales]
    coarsest = f"out.{next(iter(said['grids']))}.p{names[-1] + 1}" in tensors
    pyramid = SimplePyramid(said["dim"], said["out_channels"], scales, coarsest=coarsest)
    for name, level in zip(names, pyramid, strict=True):
        level.load_state_dict(weights(tensors, f"simfp_{name}."))
    assert sum(len(level.state_dict()) for level in pyramid) == len(weights(tensors))
    for grid in said["grids"]:
        with torch.no_grad():
            made = pyramid(tensors[f"in.{grid}"])
        expected = names + [names[-1] + 1] * coarsest
        for name, ours in zip(expected, made, strict=True):
            assert_close(ours, tensors[f"out.{grid}.p{name}"])
        assert pyramid.strides == [2.0**name / said["stride"] for name in expected]


@pytest.fixture(params=files("owlvit_heads"))
def owl(request: pytest.FixtureRequest) -> tuple[dict[str, Tensor], dict, Model]:
    """The heads of a model with a trunk of our own, of which the reference has the last norm alone."""
    tensors, said = read(request.param)
    config = ViTConfig(
        dim=said["vision_hidden"], heads=1, depth=1, num_classes=said["queries"], patch_size=16, image_size=32,
        encoding_options={"interpolation": "bicubic"}, patch_bias=False, norm_pre=True, norm_eps=1e-5, gelu="quick",
        task="detection", head="owlvit", head_options={"query_dim": said["text_hidden"]},
    )  # fmt: skip
    state, given = export_weights(make_model(config), "owlvit")
    queries = {"query_embeds": tensors["in.query_embeds"][0]}
    model = import_weights("owlvit", state | weights(tensors) | queries, given)
    assert isinstance(model.head, OwlVitHead)
    return tensors, said, model


def owl_boxes(boxes: Tensor, grid: Sequence[int]) -> Tensor:
    """Corners (y, x) in patches as (centre x, centre y, width, height) in fractions of the image."""
    y0, x0, y1, x1 = (boxes / torch.tensor([*grid, *grid])).unbind(-1)
    return torch.stack(((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0), dim=-1)


@pytest.mark.parametrize("file", files("owlvit_model"))
@torch.no_grad()
def test_owlvit_from_pixels(file: str) -> None:
    """The whole model, text tower and all, through `import_weights`; alone, off its size, and in a pack."""
    tensors, said = read(file)
    state = weights(tensors) | {"query_embeds": tensors["in.query_embeds"]}
    model = import_weights("owlvit", state, said)
    # As transformers writes a configuration: without its defaults.
    if said["vision_config"]["hidden_act"] == "quick_gelu":
        assert import_weights("owlvit", state, {"num_attention_heads": model.config.heads}).config == model.config
    sizes = [key.removeprefix("in.") for key in tensors if key.startswith("in.") and key != "in.query_embeds"]
    pack = model([tensors[f"in.{size}"][0] for size in sizes])
    for packed, size in zip(pack, sizes, strict=True):
        images = tensors[f"in.{size}"]
        grid = [side // model.config.patch_size for side in images.shape[-2:]]
        for (found,) in (model(images), [packed]):
            assert_close(found["logits"], tensors[f"out.{size}.logits"])
            assert_close(owl_boxes(found["boxes"], grid), tensors[f"out.{size}.pred_boxes"])


def test_owlvit_boxes_are_in_patches_of_each_grid(owl: tuple[dict[str, Tensor], dict, Model]) -> None:
    tensors, said, model = owl
    head = model.head
    merged: list[Tensor] = []

    def keep(module: object, given: object, made: Any) -> None:
        merged.append(made)

    head.layer_norm.register_forward_hook(keep)
    for name, (rows, cols) in said["grids"].items():
        tokens = model.norm(tensors[f"in.{name}.tokens"])
        layout = TokenLayout.uniform((rows, cols), len(tokens), num_prefix_tokens=1)
        assert_close(box_bias(layout.segments[0])[0], tensors[f"table.{name}.box_bias"])
        with torch.no_grad():
            (found,) = head(tokens, layout)
        assert_close(merged[-1], tensors[f"out.{name}.merged"])
        assert_close(owl_boxes(found["boxes"], (rows, cols)), tensors[f"out.{name}.pred_boxes"])


def test_owlvit_classes(owl: tuple[dict[str, Tensor], dict, Model]) -> None:
    tensors, said, model = owl
    head = model.head
    for name, grid in said["grids"].items():
        tokens = model.norm(tensors[f"in.{name}.tokens"])
        for image, queries in enumerate(tensors["in.query_embeds"]):
            with torch.no_grad():
                head.queries.copy_(queries)
                (found,) = head(tokens[image : image + 1], TokenLayout.uniform(grid, 1, num_prefix_tokens=1))
                told = head.class_head.dense0(tensors[f"out.{name}.merged"][image])
            # A query that is masked has the lowest float there; here no class is.
            asked = ~tensors[f"out.{name}.logits_masked_is_min"][image]
            assert asked.any()
            assert_close(found["logits"][0][asked], tensors[f"out.{name}.logits"][image][asked])
            assert_close(told, tensors[f"out.{name}.class_embeds_no_query"][image])


def test_owlvit_bias_of_a_token_is_that_of_its_place() -> None:
    """Whatever else is there: the tokens that were kept have the bias that they have in the whole image."""
    layout = TokenLayout.packed([(3, 5), (4, 2)], num_prefix_tokens=2)
    kept = layout.keep([[14, 2, 7], [0, 5]])
    for whole, part, indices in zip(layout.segments, kept.segments, ([14, 2, 7], [0, 5]), strict=True):
        assert torch.equal(box_bias(part)[0], box_bias(whole)[0][indices])
    tiled = layout.tiled(Grid(2, 2))
    assert torch.equal(box_bias(tiled.segments[0]), box_bias(layout.segments[0]))
