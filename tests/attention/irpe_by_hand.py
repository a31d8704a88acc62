"""iRPE from its definition, pair by pair and without any of the package's forms: what the fast ones are held to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.encodings import PositionEncoding


def piecewise_by_hand(x: float, ratio: float) -> int:
    """Python's own round is half to even, too, and int() truncates."""
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    if abs(x) <= alpha:
        return int(x)
    far = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
    return int(math.copysign(1, x) * min(far, beta))


def bucket_by_hand(method: str, ratio: float, dy: int, dx: int) -> dict[str, int]:
    """The bucket in each table of a displacement of the token whose content is used less the other."""
    reach = int(2 * ratio)
    rows, cols = (piecewise_by_hand(one, ratio) + reach for one in (dy, dx))
    if method == "product":
        return {"table": rows * (2 * reach + 1) + cols}
    if method == "cross":
        return {"rows": rows, "cols": cols}
    size = dy * dy + dx * dx
    return {"table": piecewise_by_hand(round(math.sqrt(size)) if method == "euclidean" else size, ratio) + reach}


def attention_by_hand(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Sequence[tuple[int, int]],
    keys: Sequence[tuple[int, int]],
    before_q: int,
    before_k: int,
    layer: int = 0,
) -> Tensor:
    """Attention of one image: q [heads, before_q + queries, head_dim] and so on, patches at these (y, x); in the
    precision of `q`."""
    config = encoding.config
    scale = q.shape[-1] ** -0.5
    ask, asked = [None] * before_q + list(queries), [None] * before_k + list(keys)

    def index(where: str, part: str, i: int, j: int) -> int | None:
        """Of a table, the bucket of query i and key j; None: nothing."""
        table = getattr(encoding, f"{where}_{part}")
        axis = 2 if config.mode == "bias" or where == "v" else 3
        if ask[i] is None or asked[j] is None:
            return table.shape[axis] - 1 if encoding.shape.num_prefix_tokens else None
        dy, dx = (a - b for a, b in zip(ask[i], asked[j], strict=True))
        dy, dx = (-dy, -dx) if where == "q" else (dy, dx)
        return bucket_by_hand(config.method, config.ratio, dy, dx)[part]

    def vectors(where: str, part: str) -> Tensor:
        """What each pair reads of a table: [1 or heads, queries, keys, ...]."""
        table = getattr(encoding, f"{where}_{part}")[layer].to(q)
        if config.mode == "contextual" and where != "v":
            table = table.transpose(1, 2)
        table = torch.cat((table, torch.zeros_like(table[:, :1])), dim=1)
        nothing = table.shape[1] - 1
        at = [[index(where, part, i, j) for j in range(len(asked))] for i in range(len(ask))]
        return table[:, torch.tensor([[nothing if one is None else one for one in row] for row in at])]

    parts = ("rows", "cols") if config.method == "cross" else ("table",)
    scores = (q * scale) @ k.transpose(-1, -2)
    for part in parts:
        if "k" in config.on:
            own = vectors("k", part)
            scores = scores + (own if config.mode == "bias" else torch.einsum("hid,hijd->hij", q * scale, _all(own, q)))
        if "q" in config.on:
            own = vectors("q", part)
            scores = scores + (own if config.mode == "bias" else torch.einsum("hjd,hijd->hij", k * scale, _all(own, q)))
    attention = scores.softmax(-1)
    out = attention @ v
    if "v" in config.on:
        for part in parts:
            out = out + torch.einsum("hij,hijd->hid", attention, _all(vectors("v", part), q))
    return out


def _all(own: Tensor, q: Tensor) -> Tensor:
    return own.expand(q.shape[0], *own.shape[1:])
