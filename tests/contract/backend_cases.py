"""Encodings, layouts and inputs on which every back end is held to `dense`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention import AttentionSpec, Pattern, attend, rotate, use_backend
from sightline.attention.dispatch import choose_backend
from sightline.attention.sdpa import supports_form
from sightline.encodings import PositionEncoding, create_encoding, list_encodings
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

HEAD_DIM = 8
OUTPUT, GRADIENTS = 1e-5, 1e-4

# Two half-planes that meet, one, any of two, none, and a narrow one; slopes of 0 keep their masks.
VIEWS = [(0, 90, 0.5), (37.5, 180, 0.25), (200, 300, 0.0), (0, 360, 0.125), (315, 1.5, 0.0), (90, 45, 0.0)]

# Options of encodings; of LookHere each kind of pattern that it can make.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name} exact": (name, {"rounding": "exact"}) for name in ("lookhere_180", "lookhere_90", "lookhere_45")},
    "max official": ("lookhere_90", {"fill": "max"}),
    "max exact": ("lookhere_45", {"fill": "max", "rounding": "exact"}),
    "zero official": ("lookhere_45", {"fill": "zero"}),
    "zero exact": ("lookhere_180", {"fill": "zero", "rounding": "exact"}),
    "sqrt": ("lookhere_90", {"distance": "sqrt", "rounding": "exact"}),
    "square": ("lookhere_45", {"distance": "square"}),
    "center": ("lookhere", {"directions": "center"}),
    "center exact": ("lookhere", {"directions": "center", "rounding": "exact"}),
    "slope 0": ("lookhere_45", {"global_slope": 0.0}),
    "slope 0 exact": ("lookhere_90", {"global_slope": 0.0, "rounding": "exact"}),
    "zerocorners": ("lookhere", {"directions": "zerocorners"}),
    "views": ("lookhere", {"views": VIEWS, "rounding": "exact"}),
    "views max": ("lookhere", {"views": VIEWS, "fill": "max"}),
    "rotated": ("rope_axial+lookhere_90", {}),
    "rotated and added": ("rope_mixed+lookhere_45+learned_1d", {}),
    "sum": ("lookhere_90+alibi_2d", {}),
    "sum of masks": ("lookhere_180+lookhere_45", {}),
    "sum with a table": ("lookhere_90+rpe_learned", {}),
    "cross per head": ("irpe", {"method": "cross", "on": "qkv", "shared_heads": False}),
    "euclidean on v": ("irpe", {"method": "euclidean", "on": "v"}),
    "quantised per head": ("irpe", {"method": "quantised", "on": "qk", "shared_heads": False, "ratio": 6.0}),
    "sum of content and a mask": ("lookhere_90+irpe_qkv", {}),
    "rotated content": ("rope_axial+irpe_qk+irpe_bias", {"irpe_bias.method": "cross"}),
    # A mask, a penalty by key and a greatest penalty in one sum.
    "sum by key": ("lookhere_45+lookhere", {"lookhere.directions": "center", "lookhere.fill": "max"}),
}
ENCODINGS = [*list_encodings(), *OPTIONS]


class Where(NamedTuple):
    """Images of a batch: one grid on two rows, or several packed in one row."""

    grids: tuple[tuple[int, int], ...]
    rows: int = 2
    dropped: bool = False
    tile: Grid | None = None

    @property
    def heads(self) -> int:
        """12, which have all eight directions; 4 where that would take long."""
        return 12 if max(rows * cols for rows, cols in self.grids) <= 200 else 4

    def layout(self, prefix: int) -> TokenLayout:
        if len(self.grids) == 1:
            layout = TokenLayout.uniform(self.grids[0], self.rows, num_prefix_tokens=prefix, tile=self.tile)
        else:
            layout = TokenLayout.packed(self.grids, num_prefix_tokens=prefix, tile=self.tile)
        if not self.dropped:
            return layout
        generator = torch.Generator().manual_seed(0)
        kept = []
        for rows, cols in self.grids:
            orders = [torch.randperm(rows * cols, generator=generator) for _ in range(layout.rows)]
            kept.append(torch.stack(orders)[:, : max(1, rows * cols // 2)])
        return layout.keep(kept[0] if len(kept) == 1 else [one[0] for one in kept])


PACKS = {"pack": ((3, 5), (1, 7), (17, 9), (14, 14)), "pack of equals": ((5, 3), (5, 3), (1, 1))}
TILE = Grid(8, 16)
WHERE: dict[str, Where] = {
    **{f"{grid[0]}x{grid[1]}": Where((grid,)) for grid in [(1, 1), (1, 7), (3, 5), (5, 3), (14, 14), (17, 9)]},
    "32x32": Where(((32, 32),), rows=1),
    **{name: Where(grids, rows=1) for name, grids in PACKS.items()},
    "17x9 dropped": Where(((17, 9),), dropped=True),
    "pack dropped": Where(PACKS["pack"], rows=1, dropped=True),
    "17x9 in tiles": Where(((17, 9),), tile=TILE),
    "pack in tiles": Where(PACKS["pack"], rows=1, tile=TILE),
}
PREFIXES = (0, 1, 5)
# As the model gives them, views of one tensor with heads side by side in each token; or each its own memory.
FORMS = ("views", "contiguous")


@dataclass(frozen=True)
class Case:
    encoding: str
    where: str
    prefix: int
    form: str
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.encoding} | {self.where} | {self.prefix} | {self.form}"


def pairwise_cases() -> list[Case]:
    """Each encoding on each layout; the other factors turn, so that any two values of two factors meet."""
    cases = []
    for e, encoding in enumerate(ENCODINGS):
        for w, where in enumerate(WHERE):
            cases.append(Case(encoding, where, PREFIXES[(e + w) % 3], FORMS[(e + w // 2) % 2]))
    return cases


def make_encoding(name: str, heads: int, prefix: int, exact: bool) -> PositionEncoding:
    """An encoding of `ENCODINGS` with random parameters; `exact`: no penalty is rounded."""
    name, options = OPTIONS.get(name, (name, {}))
    if exact:
        parts = name.split("+")
        keys = [part + "." if len(parts) > 1 else "" for part in parts if part.startswith("lookhere")]
        options = {**options, **{f"{key}rounding": "exact" for key in keys}}
    if "views" in options:
        options = {**options, "views": (options["views"] * 2)[:heads]}
    encoding = create_encoding(
        name, depth=1, heads=heads, dim=heads * HEAD_DIM, train_grid=(6, 8), num_prefix_tokens=prefix, **options
    )
    return randomise_parameters(encoding)


def make_qkv(form: str, layout: TokenLayout, heads: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """The leaf that q, k and v are views of: random values, sharper scores in some heads than in others."""
    generator = torch.Generator().manual_seed(seed)
    shape = (layout.rows, layout.slots, 3, heads, HEAD_DIM)
    spread = torch.linspace(0.5, 1.7, heads).unsqueeze(-1)
    values = torch.randn(shape, generator=generator) * spread
    if form == "contiguous":
        values = values.permute(2, 0, 3, 1, 4).contiguous()
    return values.to(dtype).requires_grad_()


def split(qkv: Tensor, form: str) -> tuple[Tensor, ...]:
    return (qkv if form == "contiguous" else qkv.permute(2, 0, 3, 1, 4)).unbind(0)


class Computed(NamedTuple):
    """Who computed it, and what: with gradients of q, k, v and of the encoding's parameters, and without."""

    backend: str
    backend_without: str
    values: dict[str, Tensor]


def chosen_backend(pattern: Pattern | None, layout: TokenLayout, q: Tensor) -> str:
    """The back end of a call; `auto` too where a form that was asked for does not support it."""
    backend = choose_backend(pattern, layout, layout, AttentionSpec.of_values(q))
    if backend in ("flex", "varlen", "auto"):
        return backend
    able = all(supports_form(backend, pattern, one, True, q) for one in layout.segments)
    return backend if able else "auto"


def compute(case: Case, name: str) -> Computed:
    """Attention of a case where the back end `name` is asked for."""
    where = WHERE[case.where]
    layout = where.layout(case.prefix)
    encoding = make_encoding(case.encoding, where.heads, case.prefix, case.exact)
    qkv = make_qkv(case.form, layout, where.heads)
    with use_backend(name):
        q, k, v = split(qkv, case.form)
        rotation = encoding.rotation(0, layout)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        for one in (q, k, v):
            one.retain_grad()
        pattern = encoding.pattern(0, layout)
        chosen = chosen_backend(pattern, layout, q)
        out = attend(q, k, v, pattern, layout)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
        (out * weights).sum().backward()
        with torch.no_grad():
            chosen_without = chosen_backend(pattern, layout, q)
            without = attend(q.detach(), k.detach(), v.detach(), encoding.pattern(0, layout), layout)
    values = {"output": out.detach(), "output without gradients": without}
    values |= {f"gradient of {key}": x.grad for key, x in zip("qkv", (q, k, v), strict=True)}
    values |= {f"gradient of {key}": x.grad for key, x in encoding.named_parameters() if x.grad is not None}
    return Computed(chosen, chosen_without, values)


@functools.lru_cache(maxsize=8)
def by_dense(case: Case) -> dict[str, Tensor]:
    return compute(case, "sdpa").values


def check_against_dense(case: Case, name: str) -> Computed:
    """What `name` supports equals `sdpa`; the rest is computed by another back end."""
    # FlexAttention computes penalties in float32 and does not round them.
    case = replace(case, exact=name == "flex")
    expected, found = by_dense(case), compute(case, name)
    assert found.values.keys() == expected.keys()
    for key, theirs in expected.items():
        ours = found.values[key]
        who = found.backend_without if key == "output without gradients" else found.backend
        assert ours.shape == theirs.shape
        assert ours.isfinite().all(), (str(case), key, who)
        if who == "sdpa":
            assert torch.equal(ours, theirs), (str(case), key)
        else:
            bound = GRADIENTS if key.startswith("gradient") else OUTPUT
            size = theirs.norm()
            if size <= 1e-6 * expected["gradient of v"].norm():
                # 0 but for rounding: a lone token's attention is 1 whatever its score is, and a row of scores may all
                # have the same bias.
                bound, size = 1e-6, expected["gradient of v"].norm()
            difference = (ours - theirs).norm()
            assert difference <= bound * size, (str(case), key, who, float(difference / size))
    assert expected["output"].std() > 0.05, "the outputs hardly differ: nothing would be shown"
    return found
