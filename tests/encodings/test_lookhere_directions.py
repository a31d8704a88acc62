"""Free directions of LookHere: any direction, any field of view, any slope, any number of heads."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sightline.attention.pattern import FieldOfView
from sightline.encodings import create_encoding
from sightline.encodings.pattern.lookhere import assign_preset_heads, field_of_view
from sightline.errors import InputError
from tests.contract import contract

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "encodings.md"
FREE = [(30, 90, 0.5), (-75.3, 200, 0.25), (180, 33, 0.0), (0, 360, 0.1)]
# Heads of the presets with 12 heads, in the order of the public code.
SPELLED = {
    "lookhere_180": (180, [0, 180, 270, 90, 45, 315, 135, 225]),
    "lookhere_90": (90, [0, 180, 270, 90, 315, 45, 225, 135]),
    "lookhere_45": (45, [337.5, 202.5, 292.5, 67.5, 22.5, 157.5, 247.5, 112.5]),
}


def lookhere(views, heads: int = 4, depth: int = 2, **options):
    return create_encoding("lookhere", depth=depth, heads=heads, dim=4 * heads, views=views, **options)


def displacements(size: int = 20) -> tuple[Tensor, Tensor]:
    """(dy, dx) of a rectangle around (0, 0), as wide again as high."""
    dy, dx = torch.meshgrid(torch.arange(-size, size + 1), torch.arange(-2 * size, 2 * size + 1), indexing="ij")
    return dy, dx


def away(direction: float, dy: Tensor, dx: Tensor) -> Tensor:
    """Degrees between a displacement and a direction, by its angle clockwise from up."""
    angle = torch.rad2deg(torch.atan2(dx.double(), -dy.double()))
    return ((angle - direction + 180) % 360 - 180).abs()


@pytest.mark.parametrize("grid", [(3, 5), (7, 2), (1, 6)])
@pytest.mark.parametrize("preset", SPELLED)
def test_a_list_that_spells_a_preset_is_that_preset(preset: str, grid: tuple[int, int]) -> None:
    angle, directions = SPELLED[preset]
    views = [[direction, angle, 0.5] for direction in directions] + [[7, 360, 4.0**-n] for n in range(1, 5)]
    preset_encoding = create_encoding(preset, depth=2, heads=12, dim=48, global_slope=1.3)
    for layer in range(2):
        ours = lookhere(views, 12, global_slope=1.3).bias_matrix(grid, layer)
        assert torch.equal(ours.view(torch.int32), preset_encoding.bias_matrix(grid, layer).view(torch.int32))


def test_degrees_run_clockwise_from_up() -> None:
    bias = lookhere([(0, 90, 1), (90, 90, 1), (180, 90, 1), (270, 90, 1)]).bias_matrix((3, 3), num_prefix_tokens=0)
    above, right, below, left = 1, 5, 7, 3
    for head, cell in enumerate((above, right, below, left)):
        assert [key for key in (above, right, below, left) if bias[head, 4, key] > -100] == [cell]


@pytest.mark.parametrize("angle", [0.5, 13, 45, 90, 120, 179.9, 180, 180.1, 233.3, 270, 359, 360])
@pytest.mark.parametrize("direction", [0, 30, 45, 77.7, 171, -100.25, 245, 1e6 + 0.5])
def test_a_view_is_what_the_angle_says(direction: float, angle: float) -> None:
    dy, dx = displacements()
    seen = field_of_view(direction, angle).visible(dy, dx)
    distance = away(direction, dy, dx)
    own = (dy == 0) & (dx == 0)
    assert seen[own].all()
    clear = ~own & ((distance - angle / 2).abs() > 1e-9)
    assert torch.equal(seen[clear], (distance <= angle / 2)[clear])
    # Borders are included.
    assert seen[~own & (distance <= angle / 2)].all()


def test_every_direction_turns_the_same_view() -> None:
    """A view of 90 degrees at 30 is the one at 0, turned by 30."""
    dy, dx = displacements()
    for turn in (30, 211.5):
        sine, cosine = math.sin(math.radians(turn)), math.cos(math.radians(turn))
        back_y, back_x = cosine * dy - sine * dx, cosine * dx + sine * dy
        border = (back_y.abs() - back_x.abs()).abs() < 1e-6
        expected = -back_y >= back_x.abs()
        assert torch.equal(field_of_view(turn, 90).visible(dy, dx)[~border], expected[~border])


@pytest.mark.parametrize(("dy", "dx"), [(1, 2), (-3, 1), (5, -7), (-40, -39)])
def test_cells_on_a_border_are_seen(dy: int, dx: int) -> None:
    """Also where degrees, a binary fraction, cannot say the direction exactly."""
    border = math.degrees(math.atan2(dx, -dy))
    steps = torch.arange(1, 100)
    for direction in (border - 25, border + 25):
        assert field_of_view(direction, 50).visible(steps * dy, steps * dx).all()
        assert not field_of_view(direction, 49.99).visible(steps * dy, steps * dx).any()


def test_a_list_for_each_layer() -> None:
    turned = [(direction + 10, angle, slope) for direction, angle, slope in FREE]
    both = lookhere([FREE, turned], layer_slopes=(1.0, 1.0))
    for layer, views in enumerate((FREE, turned)):
        alone = lookhere(views, layer_slopes=(1.0, 1.0))
        assert torch.equal(both.bias_matrix((3, 5), layer), alone.bias_matrix((3, 5), layer))
    assert not torch.equal(both.bias_matrix((3, 5), 0), both.bias_matrix((3, 5), 1))


TWELVE = [*FREE[:2], (135, 61, 0.3), FREE[3]] * 3


@pytest.mark.parametrize("check", contract.ONCE + contract.FOR_EACH_POOL[1:])
def test_contract(check, monkeypatch: pytest.MonkeyPatch) -> None:
    build = partial(contract.build, encoding_options={"views": TWELVE})
    monkeypatch.setattr(contract, "build", build)
    check("lookhere")


@pytest.mark.parametrize(
    ("views", "field", "value"),
    [
        ([], "views", []),
        ("0 90 0.5", "views", "0 90 0.5"),
        ({0: 90}, "views", {"0": 90}),
        (45, "views", 45),
        ([FREE, 3], "views[1]", 3),
        ([FREE, [*FREE[:3], (0, 90, -1)]], "views[1][3][2]", -1),
        ([*FREE[:3], (0, 90)], "views[3]", [0, 90]),
        ([*FREE[:3], (0, 90, 1, 1)], "views[3]", [0, 90, 1, 1]),
        ([*FREE[:3], 7], "views[3]", 7),
        ([[], *FREE[1:]], "views[0]", []),
        (["0 90 0.5"] * 4, "views[0]", "0 90 0.5"),
        ([*FREE[:3], ("up", 90, 1)], "views[3][0]", "up"),
        ([*FREE[:3], (math.nan, 90, 1)], "views[3][0]", math.nan),
        ([*FREE[:3], (math.inf, 90, 1)], "views[3][0]", math.inf),
        ([*FREE[:3], (True, 90, 1)], "views[3][0]", True),
        ([*FREE[:3], (0, 0, 1)], "views[3][1]", 0),
        ([*FREE[:3], (0, 1e-6, 1)], "views[3][1]", 1e-6),
        ([*FREE[:3], (0, 361, 1)], "views[3][1]", 361),
        ([*FREE[:3], (0, -90, 1)], "views[3][1]", -90),
        ([*FREE[:3], (0, math.nan, 1)], "views[3][1]", math.nan),
        ([*FREE[:3], (0, None, 1)], "views[3][1]", None),
        ([*FREE[:3], (0, 90, -1e-9)], "views[3][2]", -1e-9),
        ([*FREE[:3], (0, 90, math.nan)], "views[3][2]", math.nan),
        ([*FREE[:3], (0, 90, [1])], "views[3][2]", [1]),
    ],
)
def test_wrong_views_are_refused_in_one_line(views, field: str, value: object) -> None:
    with pytest.raises(InputError) as raised:
        lookhere(views)
    assert raised.value.field == field
    assert str(raised.value.value) == str(value)
    assert field in str(raised.value)
    assert "\n" not in str(raised.value)


def documented() -> dict[int, list[str]]:
    """Heads -> the cells of the page's table of dealt heads."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| heads |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        heads, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[int(heads)] = cells
    return rows


@pytest.mark.parametrize("preset", SPELLED)
def test_the_documented_table_is_what_is_dealt(preset: str) -> None:
    dy, dx = displacements(9)
    table = documented()
    assert list(table) == [3, 6, 8, 12, 16, 24]
    angle = SPELLED[preset][0]
    for heads, (wide, narrow, undirected) in table.items():
        expected = [(FieldOfView(), Fraction(slope)) for slope in undirected.split(",")]
        for group in (narrow if preset == "lookhere_45" else wide).split(";"):
            directions, slopes = (part.split(",") for part in group.split(":"))
            expected += [(field_of_view(float(one), angle), Fraction(slope)) for one in directions for slope in slopes]
        dealt = assign_preset_heads(preset, heads)

        def seen(view: FieldOfView) -> bytes:
            return view.visible(dy, dx).numpy().tobytes()

        assert Counter((seen(head.view), slope) for head, slope in dealt) == Counter(
            (seen(view), float(slope)) for view, slope in expected
        )
