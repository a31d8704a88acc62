"""What each head's centre query may attend to, as far as the position encoding says it."""

from __future__ import annotations

import numpy as np
import torch

from sightline.grid import Grid
from sightline.layout import TokenLayout
from sightline.models import Model


def field_of_view(model: Model, layer: int, grid: Grid) -> np.ndarray | None:
    """exp(bias) of the patch at (rows // 2, cols // 2) on every patch: float32 [heads, rows, cols] in [0, 1].

    0 where the key is masked. A learned bias above 0 counts as 1. None where the encoding does not bias the scores.
    """
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0, device=model.anchor.device)
    pattern = model.encoding.pattern(layer, layout)
    if pattern is None:
        return None
    segment = layout.segments[0]
    with torch.inference_mode():
        bias = pattern.bias(segment, segment, 0, 0)[0]
        centre = grid.rows // 2 * grid.cols + grid.cols // 2
        weight = bias[:, centre].exp().clamp(max=1).reshape(-1, grid.rows, grid.cols)
    return weight.float().cpu().numpy()
