"""The attention of one query, computed again from queries, keys and the pattern: what a page asks for at each click.

`attention_blocks` goes through all queries of a call; one row of the matrix needs no more than the keys and a slice of
the table of displacements.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sightline.attention.content_bias import TokenPairs, content_of_scores
from sightline.attention.dispatch import AttentionRecord
from sightline.attention.pattern import BFLOAT16_MAX, Pattern
from sightline.tokens.segment import Segment


def attention_of(call: AttentionRecord, query: int) -> Tensor:
    """What one token of an image attends to: softmax(q K^T / sqrt(head_dim) + bias) (ViT appendix A), in float32.

    Args:
        call: of one image alone, its patches in row-major order.
        query: the token's slot, prefix tokens first.

    Returns:
        float32 [heads, slots]; each row sums to 1.
    """
    q, k = call.q[0, :, query].float(), call.k[0].float()
    scores = (k @ (q * q.shape[-1] ** -0.5).unsqueeze(-1)).squeeze(-1)
    for added in (bias_of(call, query), _content_of(call, query)):
        scores = scores if added is None else scores + added
    # As the back ends: a mask of the smallest bfloat16 and one of minus infinity both give nothing.
    return torch.softmax(scores, dim=-1)


def _content_of(call: AttentionRecord, query: int) -> Tensor | None:
    """What terms of queries and keys add to the scores of one token: float32 [heads, slots], or None."""
    if call.pattern is None:
        return None
    before, image = call.keys.num_prefix_tokens, call.keys.segments[0]
    patch = max(0, query - before)
    asking = Segment(image.grid, image.coords[:, patch : patch + (query >= before)], complete=False)
    q, k = call.q[:1, :, query : query + 1].float(), call.k[:1].float()
    content = content_of_scores(call.pattern, q, k, TokenPairs(asking, image, int(query < before), before))
    return None if content is None else content[0, :, 0]


def visible_to(call: AttentionRecord, query: int) -> Tensor:
    """Which tokens one token may attend to, as far as the pattern masks: bool [heads, slots]; arguments as
    `attention_of`. A penalty hides nothing, however large."""
    bias = bias_of(call, query)
    if bias is None:
        return torch.ones(call.q.shape[1], call.keys.slots, dtype=torch.bool, device=call.q.device)
    return bias > -BFLOAT16_MAX


def bias_of(call: AttentionRecord, query: int) -> Tensor | None:
    """What the pattern adds to the scores of one token: float32 [heads, slots], or None; as `attention_of`."""
    pattern, before, image = call.pattern, call.keys.num_prefix_tokens, call.keys.segments[0]
    if pattern is None:
        return None
    if query < before:
        # Prefix tokens ask together: terms of images are rendered so.
        nobody = Segment(image.grid, image.coords[:, :0], complete=False)
        return pattern.bias(nobody, image, before, before)[0, :, query]
    if pattern.of_images or len(image.grid) != 2:
        asking = Segment(image.grid, image.coords[:, query - before : query - before + 1], complete=False)
        return pattern.bias(asking, image, 0, before)[0, :, 0]
    return patch_bias(pattern, before, image)(query - before)


def patch_bias(pattern: Pattern, before: int, image: Segment) -> Callable[[int], Tensor]:
    """From a patch of a whole grid in rows to what a pattern adds to its scores, float32 [heads, slots]: one slice of
    the table of displacements, and one number a head for `before` prefix keys."""
    (rows, cols), device = image.grid, image.coords.device
    table, by_key = pattern.tables(image.grid, device, image.window_grid)
    on_prefix = table.new_zeros(1, before)
    for term in pattern.terms:
        extra = term.prefix()
        if extra is not None:
            on_prefix = on_prefix + extra[1].to(on_prefix).unsqueeze(-1)

    def of(patch: int) -> Tensor:
        row, col = divmod(patch, cols)
        bias = table[:, rows - 1 - row : 2 * rows - 1 - row, cols - 1 - col : 2 * cols - 1 - col]
        bias = (bias if by_key is None else bias + by_key).flatten(1)
        return torch.cat((on_prefix.expand(len(bias), -1), bias), dim=1)

    return of
