"""A trunk of stages: patches are merged on the way, and what leaves it is wider and stands elsewhere."""

import torch
from torch import nn

from sightline import create_model
from sightline.models.block import Block
from sightline.models.trunk import Trunk
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout


class Merging(nn.Module):
    """The mean of each row of patches, twice as wide: the simplest stage."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, 2 * dim)

    def forward(self, x, layout):
        pairs = zip(layout.split(x), layout.segments, strict=True)
        parts = [one.unflatten(1, tuple(piece.grid)).mean(2) for one, piece in pairs]
        return self.fc(torch.cat(parts, dim=1))


class Staged(Trunk):
    takes_tiles = False

    def layout_after(self, layer, layout):
        if layer < 1:
            return layout
        segments = [Segment.from_grid(Grid(one.grid.rows, 1), layout.device) for one in layout.segments]
        return layout.cached("merged", lambda: TokenLayout(segments, rows=layout.rows, num_prefix_tokens=0))

    def layer_inputs(self, layer, tokens, layout, encoding):
        return layout if layer else super().layer_inputs(layer, tokens, layout, encoding)


def staged():
    torch.manual_seed(0)
    plain = create_model(
        "vit_tiny_patch16", dim=24, heads=3, depth=2, pool="mean", num_classes=5, image_size=64, encoding="lookhere_90"
    )
    kind = type(plain)

    class Vit(kind):
        @classmethod
        def last_stage(cls, config):
            return config.replace(dim=48)

        def make_trunk(self, config):
            return Staged([Block(config, 0), Merging(config.dim)])

    return Vit(plain.config).eval()


def test_what_leaves_the_trunk_is_pooled_where_it_stands():
    model = staged()
    images = [torch.randn(3, 48, 80), torch.randn(3, 64, 32)]
    packed = model(images)
    assert packed.shape == (2, 5)
    for one, logits in zip(images, packed, strict=True):
        torch.testing.assert_close(model(one.unsqueeze(0))[0], logits, atol=1e-6, rtol=0)
    assert (model.embed_dim, model.num_features) == (24, 48)
    assert [one.shape for one in model.forward_features(images)] == [(3, 48), (4, 48)]


def test_each_layer_is_given_where_it_stands():
    model = staged()
    images = torch.randn(2, 3, 48, 80)
    maps = model.forward_intermediates(images, intermediates_only=True)
    assert [one.shape for one in maps] == [(2, 24, 3, 5), (2, 48, 3, 1)]
    final = model.norm(maps[1].flatten(2).transpose(1, 2))
    torch.testing.assert_close(model.forward_features(images), final)
