"""Heads that say where objects are: what detection asks of a model."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.models.head import TokenHead
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

BoxOutputs = dict[str, Tensor]
"""What is predicted of the images of one segment, by name:

`logits` [rows, predictions, classes]: of each class by itself (a sigmoid makes scores of them);
`boxes` [rows, predictions, 4]: (y0, x0, y1, x1) in patch units from the image's corner;
`quality` [rows, predictions]: logit of how well the box fits, of heads that say it;
`places` [rows, predictions, 3]: (y, x) and reach of what predicts, in patch units, of heads that predict by place.
"""

PRIOR = 0.01
"""Score of every class before the first step, so that the many predictions of nothing do not drown the few of something
(Lin et al. 2017, section 3.3)."""


class BoxHead(TokenHead):
    """Classes and boxes of objects; `forward` gives `BoxOutputs` for each segment of the layout.

    Attributes:
        matching: `places`: each prediction answers for what is at its place, and several may say the same, of which
            the best is kept afterwards; `sets`: each object is one prediction's, and nothing is suppressed.
    """

    matching: ClassVar[Literal["places", "sets"]]


def prior_bias() -> float:
    """The logit of `PRIOR`."""
    return math.log(PRIOR / (1 - PRIOR))


def centres(segment: Segment) -> Tensor:
    """The middle of each patch (y, x) in patch units, in `patch_tokens`' order: float32 [1 or rows, patches, 2]."""
    here = segment.from_grid(segment.grid, segment.coords.device) if segment.complete else segment
    return here.coords.float() + 0.5


def small_linear(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """A last layer: weights of std 0.01, so that it begins with its bias (Tian et al. 2019)."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.constant_(layer.bias, bias)
    return layer


def mlp(inputs: int, hidden: int, outputs: int, layers: int = 3) -> nn.Sequential:
    """Linear layers with a GELU between them."""
    parts: list[nn.Module] = []
    for number in range(layers - 1):
        parts += [nn.Linear(hidden if number else inputs, hidden), nn.GELU()]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs))


class DensePredictor(nn.Module):
    """What one vector says of the object at its place (FCOS, Tian et al. 2019, section 3.1): classes, the distances to
    the four sides of the box, and how well that box fits.

    Distances are exp(x) times the reach of the place, in patch units: an object at twice the size is as many more
    patches, wherever it is. Each is measured from the far side of the place's own patch rather than from its middle, so
    that a box beside the middle can be said too: whatever lies around a point of the patch. All begin as that patch.
    """

    def __init__(self, dim: int, num_classes: int, hidden: int) -> None:
        """Args: hidden: width of a layer before these, 0 for none."""
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(dim, hidden), nn.GELU()) if hidden else nn.Identity()
        width = hidden or dim
        self.classes = small_linear(width, num_classes, prior_bias())
        self.sides = small_linear(width, 4)
        self.quality = small_linear(width, 1)

    def forward(self, features: Tensor, places: Tensor) -> BoxOutputs:
        """Features [rows, n, dim] at places [1 or rows, n, 3], as `BoxOutputs` has them."""
        hidden = self.hidden(features)
        places = places.expand(features.shape[0], -1, -1)
        # In float32, and bounded: a box is no larger than the largest image.
        far = (at_least_float32(self.sides(hidden)).clamp(max=10).exp() - 0.5) * places[..., 2:]
        centre = places[..., :2]
        boxes = torch.cat((centre - far[..., :2], centre + far[..., 2:]), dim=-1)
        quality = self.quality(hidden).squeeze(-1)
        return {"logits": self.classes(hidden), "boxes": boxes, "quality": quality, "places": places}


def grid_sides(segment: Segment, layout: TokenLayout) -> Tensor:
    """(rows, cols, rows, cols) of a segment's grid, by which what is said in fractions of an image becomes patches:
    float32 [4]."""
    rows, cols = segment.grid.planar("boxes")
    return torch.tensor([rows, cols] * 2, dtype=torch.float32, device=layout.device)
