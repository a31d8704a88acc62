"""Windows as images of a layout: attention over them is that of a mask over the whole image."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention import attend, rotate, sdpa, use_backend
from sightline.attention.pattern import Pattern
from sightline.encodings import create_encoding
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout

HEADS, WIDTH = 12, 8
# (grids of a pack, or one and so many rows), window, shift: divided or not, none of them square.
CASES = [
    ([(6, 8)], 2, (3, 4), (0, 0)),
    ([(6, 8)], 1, (3, 4), (1, 2)),
    ([(7, 10)], 2, (3, 4), (0, 0)),
    ([(7, 10)], 1, (3, 4), (2, 1)),
    ([(5, 9)], 1, (4, 4), (0, 3)),
    ([(2, 3)], 1, (4, 5), (1, 0)),
    ([(7, 10), (3, 5), (6, 8)], 1, (3, 4), (1, 3)),
    ([(2, 5, 6)], 1, (2, 3, 4), (1, 0, 3)),
]


def layout_of(grids: list[tuple[int, ...]], rows: int) -> TokenLayout:
    if len(grids) > 1:
        return TokenLayout.packed(grids, num_prefix_tokens=0)
    return TokenLayout.uniform(grids[0], rows, num_prefix_tokens=0)


def meet(layout: TokenLayout, size: tuple[int, ...], shift: tuple[int, ...]) -> Tensor:
    """bool [slots, slots]: pairs of one image between whose cells no border of a window lies, cell by cell."""
    labels = []
    for number, segment in enumerate(layout.segments):
        for cell in itertools.product(*map(range, segment.grid)):
            labels.append(
                (number, *((one - first) // side for one, first, side in zip(cell, shift, size, strict=True)))
            )
    return torch.tensor([[one == other for other in labels] for one in labels])


def qkv(layout: TokenLayout) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (layout.rows, layout.slots, HEADS, WIDTH)
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in range(3)]


def windowed(given: list[Tensor], pattern: Pattern | None, windows: TokenLayout) -> Tensor:
    """q, k, v [rows, slots, heads, width] of the images, attended in windows and put back."""
    q, k, v = (windows.to_layout_order(one).transpose(1, 2) for one in given)
    return windows.to_row_major(attend(q, k, v, pattern, windows).transpose(1, 2))


def assert_same(found: Tensor, expected: Tensor, given: list[Tensor]) -> None:
    assert (found - expected).abs().max() < 1e-5
    grads = [torch.autograd.grad(out.square().sum(), given) for out in (found, expected)]
    for one, other in zip(*grads, strict=True):
        assert other.abs().max() > 0
        assert (one - other).abs().max() < 1e-5 * max(1.0, float(other.abs().max().detach()))


@pytest.mark.parametrize(("grids", "rows", "size", "shift"), CASES)
def test_attention_is_that_of_a_mask_over_the_image(grids, rows, size, shift) -> None:
    layout = layout_of(grids, rows)
    given = qkv(layout)
    found = windowed(given, None, layout.windows(size, shift))
    mask = meet(layout, size, shift)
    assert not mask.all() or len(grids) == 1
    expected = F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in given), attn_mask=mask).transpose(1, 2)
    assert_same(found, expected, given)


@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiles"])
@pytest.mark.parametrize("name", ["lookhere_90", "alibi_2d", "rpe_learned"])
@pytest.mark.parametrize(("grids", "rows", "size", "shift"), CASES[1:4])
def test_a_pattern_of_displacements_is_the_same_in_windows(grids, rows, size, shift, name, backend) -> None:
    """Where the rule of a table hangs on no grid: BEiT's is read at the grid that it was made for."""
    layout = layout_of(grids, rows)
    windows = layout.windows(size, shift)
    encoding = create_encoding(name, depth=1, heads=HEADS, dim=HEADS * WIDTH, num_prefix_tokens=0)
    pattern = encoding.pattern(0, layout)
    given = qkv(layout)
    with use_backend(backend):
        found = windowed(given, pattern, windows)
    if name == "rpe_learned":
        bias = torch.zeros(1, HEADS, layout.slots, layout.slots)
        back = windows.to_row_major(torch.arange(layout.slots).unsqueeze(0))[0].argsort()
        for window, at in zip(windows.segments, back.split(windows.seqlens), strict=True):
            bias[:, :, at.unsqueeze(1), at.unsqueeze(0)] = pattern.bias(window, window, 0, 0).detach()
    else:
        segment = layout.segments[0]
        bias = pattern.bias(segment, segment, 0, 0)
    bias = bias.masked_fill(~meet(layout, size, shift), -torch.inf)
    expected = F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in given), attn_mask=bias).transpose(1, 2)
    assert_same(found, expected, given)


@torch.no_grad()
def test_shifted_windows_are_those_of_swin() -> None:
    """By Swin's own rule, where the window divides the image: roll, cut, and mask what came around the border."""
    (rows, cols), (height, width), (down, across) = (6, 12), (3, 4), (1, 2)
    layout = layout_of([(rows, cols)], 1)
    region = torch.zeros(rows, cols)
    spans = [
        [(0, side - window), (side - window, side - shift), (side - shift, side)]
        for side, window, shift in ((rows, height, down), (cols, width, across))
    ]
    for number, ((top, bottom), (left, right)) in enumerate(itertools.product(*spans)):
        region[top:bottom, left:right] = number
    number = torch.arange(rows).unsqueeze(1) // height * (cols // width) + torch.arange(cols) // width
    label = torch.roll(region * 1000 + number, (down, across), (0, 1)).flatten()
    assert torch.equal(label.unsqueeze(1) == label.unsqueeze(0), meet(layout, (height, width), (down, across)))


@pytest.mark.parametrize(("grids", "rows", "size", "shift"), CASES)
def test_reordered_there_and_back(grids, rows, size, shift) -> None:
    layout = layout_of(grids, rows)
    windows = layout.windows(size, shift)
    assert windows.slots == layout.slots
    places = layout.coords.expand(rows, -1, -1)
    laid = windows.to_layout_order(places)
    assert torch.equal(windows.to_row_major(laid), places)
    found = torch.cat([one.image_coords for one in windows.segments], dim=1)
    assert torch.equal(laid[:1], found)
    for window in windows.segments:
        assert window.window is not None
        assert window.window.grid in [segment.grid for segment in layout.segments]
        assert (window.coords[0].max(dim=0).values + 1).tolist() == list(window.grid)
    again = pickle.loads(pickle.dumps(windows))
    assert torch.equal(again.to_layout_order(places), laid)
    assert torch.equal(again.coords, windows.coords)
    padded = layout.pad_to(layout.slots + 3).windows(size, shift)
    assert torch.equal(padded.to_layout_order(F.pad(places, (0, 0, 0, 3)))[:, : layout.slots], laid)


def test_an_encoding_may_stand_in_the_window_or_in_the_image() -> None:
    layout = layout_of([(7, 10)], 1)
    windows = layout.windows((3, 4), (1, 2))
    encoding = create_encoding("rope_axial", depth=1, heads=HEADS, dim=HEADS * WIDTH, num_prefix_tokens=0)
    x = torch.randn(1, HEADS, layout.slots, WIDTH)
    inside, whole = encoding.rotation(0, windows), encoding.rotation(0, layout)
    # The product of two tokens hangs on their displacement alone, which is the same in both.
    turned = rotate(windows.to_layout_order(x.transpose(1, 2)).transpose(1, 2), inside)
    scores = turned @ turned.transpose(2, 3)
    other = windows.to_layout_order(rotate(x, whole).transpose(1, 2)).transpose(1, 2)
    together = torch.block_diag(*(torch.ones(one, one) for one in windows.seqlens)) > 0
    assert ((scores - other @ other.transpose(2, 3)) * together).abs().max() < 1e-4
    assert not torch.allclose(scores, other @ other.transpose(2, 3), atol=1e-2)


def test_equal_windows_are_one_call_and_no_mask_over_the_image_is_made(monkeypatch) -> None:
    """Rows and windows together; as many calls as there are shapes."""
    layout = layout_of([(15, 22)], 2)
    windows = layout.windows((4, 5))
    shapes, real = [], sdpa._sdpa
    spy = lambda *given: shapes.append((given[0].shape, given[3].shape)) or real(*given)  # noqa: E731
    monkeypatch.setattr(sdpa, "_sdpa", spy)
    encoding = create_encoding("lookhere_90", depth=1, heads=HEADS, dim=HEADS * WIDTH, num_prefix_tokens=0)
    with use_backend("sdpa"), torch.no_grad():
        windowed(qkv(layout), encoding.pattern(0, windows), windows)
    assert [(q[0], q[2], bias[0]) for q, bias in shapes] == [(24, 20, 1), (6, 8, 1), (8, 15, 1), (2, 6, 1)]


@pytest.mark.parametrize(
    ("size", "shift", "match"),
    [
        ((0, 4), None, "windows"),
        ((3, 4, 2), None, "windows"),
        ((3, 4), (3, 0), "at most 2"),
        ((3, 4), (-1, 0), "shift"),
        ((3, 4), (1,), "expected 2"),
        ((3, 4), (0.5, 0), "shift"),
    ],
)
def test_refused(size, shift, match) -> None:
    with pytest.raises(InputError, match=match):
        layout_of([(6, 8)], 1).windows(size, shift)


def test_windows_are_of_whole_images_without_prefix_tokens() -> None:
    layout = layout_of([(6, 8)], 1)
    for wrong in (
        TokenLayout.uniform((6, 8), 1),
        layout.keep(torch.tensor([[1, 2]])),
        layout.tiled(layout.segments[0].grid),
        layout.windows(3),
    ):
        with pytest.raises(InputError, match="without prefix tokens"):
            wrong.windows((3, 4))
