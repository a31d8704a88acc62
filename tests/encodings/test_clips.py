"""Encodings over (t, y, x): what each pair of tubelets says, written out, on grids of three different sides."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from sightline.attention.pattern import DirectedBias, FieldOfView, Pattern
from sightline.encodings import create_encoding
from sightline.encodings.interpolate import resize_table
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment

CLIP, OTHER = Grid(3, 4, 5), Grid(5, 2, 3)
SHAPE = {"depth": 2, "heads": 12, "dim": 144, "train_grid": CLIP}
# By (dt, dy, dx) = key - query: what a head of the public code's names sees in space.
SPACE = {"up_left_triangle": lambda dy, dx: -dy - dx >= 0, "right": lambda dy, dx: dx >= 0, "all": lambda dy, dx: True}
TIME = {"past": lambda dt: dt <= 0, "future": lambda dt: dt >= 0, "now": lambda dt: dt == 0, "all": lambda dt: True}


def cells(grid: Grid) -> list[tuple[int, int, int]]:
    return [(t, y, x) for t in range(grid[0]) for y in range(grid[1]) for x in range(grid[2])]


@pytest.mark.parametrize("grid", [CLIP, OTHER, Grid(1, 4, 2), Grid(4, 1, 1)])
@pytest.mark.parametrize("time_step", [1.0, 2.5])
def test_lookhere_in_space_and_time_is_its_mask_written_out(grid: Grid, time_step: float) -> None:
    views = ((315.0, 180.0, 0.5), (90.0, 180.0, 0.25), (0.0, 360.0, 0.125)) * 4
    times = tuple(time for time in TIME for _ in SPACE)
    encoding = create_encoding(
        "lookhere", **SHAPE, views=views, times=times, time_step=time_step, rounding="exact", layer_slopes=(1.5, 0.5)
    )
    bias = encoding.bias_matrix(grid, layer=1, num_prefix_tokens=1)
    assert bias.shape == (12, 1 + grid.cells, 1 + grid.cells)
    assert not bias[:, 0].any()
    assert not bias[:, :, 0].any()
    seen_of_space = list(SPACE.values()) * 4
    for head, (space, time) in enumerate(zip(seen_of_space, times, strict=True)):
        slope = 0.5 * views[head][2]
        for i, query in enumerate(cells(grid)):
            for j, key in enumerate(cells(grid)):
                dt, dy, dx = (a - b for a, b in zip(key, query, strict=True))
                expected = -slope * math.sqrt((time_step * dt) ** 2 + dy**2 + dx**2)
                if not (space(dy, dx) and TIME[time](dt)):
                    expected = -math.inf
                found = bias[head, 1 + i, 1 + j].item()
                assert found == expected or abs(found - expected) < 1e-5, (head, query, key)


@pytest.mark.parametrize("name", ["lookhere_45", "lookhere_90", "lookhere_180"])
def test_directions_in_space_are_those_of_images_in_every_frame(name: str) -> None:
    clips, images = (create_encoding(name, **{**SHAPE, "train_grid": grid}) for grid in (CLIP, CLIP[1:]))
    still, cells = images.bias_matrix(CLIP[1:], num_prefix_tokens=0), math.prod(CLIP[1:])
    bias = clips.bias_matrix(CLIP, num_prefix_tokens=0).unflatten(1, (3, cells)).unflatten(3, (3, cells))
    for frame in range(3):
        assert torch.equal(bias[:, frame, :, frame], still)
        # A head that looks one way in space does so in the frames before and after.
        for other in range(3):
            assert torch.equal(bias[:8, frame, :, other] > -1e30, still[:8] > -1e30)
    # Of those that see everything the first looks into the past, the second into the future.
    whole = torch.ones(cells, cells, dtype=torch.bool)
    for head, sees in ((8, lambda dt: dt <= 0), (9, lambda dt: dt >= 0), (10, lambda dt: True), (11, lambda dt: True)):
        for frame in range(3):
            for other in range(3):
                assert torch.equal(bias[head, frame, :, other] > -1e30, whole & sees(other - frame))


@pytest.mark.parametrize("outside", ["inf", "max", "zero"])
def test_a_directed_term_over_three_axes_is_its_definition(outside) -> None:
    """From the query and from the centre, on cells that stand anywhere."""
    views = (FieldOfView(((0, 1, -2), (0, -1, 0)), "any", ((-1, 0, 0),)), FieldOfView(((1, 1, 1),)), FieldOfView())
    term = DirectedBias(views, (1.0, 0.5, 0.25), (False, False, True), 2.0, "square", outside, steps=(3.0, 1.0, 1.0))
    grid = OTHER
    kept = Segment.from_indices(grid, torch.tensor([[29, 3, 11, 0, 17]]))
    bias = Pattern((term,)).bias(kept, kept, 0, 0)[0]
    farthest = (3.0 * 4) ** 2 + 1 + 2**2
    for i, query in enumerate(kept.coords[0].tolist()):
        for j, key in enumerate(kept.coords[0].tolist()):
            dt, dy, dx = (a - b for a, b in zip(key, query, strict=True))
            far = (3.0 * dt) ** 2 + dy**2 + dx**2
            sees = ((dy - 2 * dx >= 0 or -dy >= 0) and dt <= 0, dt + dy + dx >= 0)
            for head, slope in enumerate((2.0, 1.0)):
                beyond = {"inf": -math.inf, "max": -slope * farthest, "zero": 0.0}[outside]
                expected = -slope * far if sees[head] else beyond
                assert bias[head, i, j] == pytest.approx(expected, abs=1e-4)
            centre = math.sqrt((3.0 * (key[0] - 2)) ** 2 + (key[1] - 0.5) ** 2 + (key[2] - 1) ** 2)
            assert bias[2, i, j] == pytest.approx(-0.5 * centre, abs=1e-5)


def test_alibi_is_the_distance_in_space_and_time() -> None:
    bias = create_encoding("alibi_2d", **SHAPE, time_step=2.0).bias_matrix(OTHER, num_prefix_tokens=0)
    places = torch.tensor(cells(OTHER)).double() * torch.tensor((2.0, 1.0, 1.0))
    distance = torch.cdist(places, places)
    assert (bias[0] / bias[0, 0, 1] - distance / distance[0, 1]).abs().max() < 1e-5
    assert (bias[0] / bias[3] - bias[0, 0, 1] / bias[3, 0, 1]).nan_to_num().abs().max() < 1e-4


@pytest.mark.parametrize("new", [Grid(5, 7, 3), Grid(3, 2, 9), Grid(1, 4, 5)])
def test_a_joint_table_is_resized_linearly_in_three_dimensions(new: Grid) -> None:
    table = torch.randn(CLIP.cells, 6)
    volume = table.T.reshape(1, 6, *CLIP)
    for rule, corners in (("bilinear", False), ("corner_aligned", True)):
        expected = F.interpolate(volume, size=new, mode="trilinear", align_corners=corners)
        found = resize_table(table, CLIP, new, rule)
        assert (found - expected.flatten(2)[0].T).abs().max() < 1e-5
    for rule in ("bicubic", "bicubic_antialias", "bilinear_antialias"):
        # A table that is the same in every frame stays one, resized as that of an image.
        still = resize_table(table[:20].repeat(3, 1), CLIP, new, rule).unflatten(0, (new[0], -1))
        assert (still - resize_table(table[:20], Grid(4, 5), Grid(*new[1:]), rule)).abs().max() < 1e-5


def test_sines_and_cosines_of_three_axes() -> None:
    encoding = create_encoding("sincos_2d", **{**SHAPE, "dim": 148, "heads": 4}, order="mae", temperature=100.0)
    found = encoding.embedding(OTHER)
    omega = 100.0 ** (-torch.arange(24) / 24)
    for index, (t, y, x) in enumerate(cells(OTHER)):
        expected = [wave(place * omega) for place in (t, x, y) for wave in (torch.sin, torch.cos)]
        assert torch.allclose(found[index, :144], torch.cat(expected), atol=1e-5)
    assert not found[:, 144:].any()


def test_rotary_angles_of_three_axes() -> None:
    encoding = create_encoding("rope_axial", **{**SHAPE, "heads": 9}, time_step=0.5)
    # 8 pairs: 2 of y and x each, 4 of t.
    found = encoding.rotation_angles(OTHER)[0]
    for index, (t, y, x) in enumerate(cells(OTHER)):
        expected = [0.5 * t * 100.0 ** (-j / 4) for j in range(4)]
        expected += [place * 100.0 ** (-j / 2) for place in (x, y) for j in range(2)]
        assert found[index].tolist() == pytest.approx(expected, abs=1e-5)
    dealt = create_encoding("rope_axial", **{**SHAPE, "heads": 9}, pairs=[2, 3, 3], axis_order="yx")
    assert dealt.rotation_angles(OTHER)[0, 7].tolist() == pytest.approx(
        [1, 0.1, 0, 0, 0, 1, 100 ** (-1 / 3), 100 ** (-2 / 3)], abs=1e-5
    )


def test_mixed_rotary_angles_are_a_vector_of_three_components() -> None:
    torch.manual_seed(0)
    encoding = create_encoding("rope_mixed", **SHAPE)
    assert encoding.freqs.shape == (3, 2, 12, 6)
    found = encoding.rotation_angles(OTHER, layer=1)
    along_t, along_x, along_y = encoding.freqs[:, 1]
    for index, (t, y, x) in enumerate(cells(OTHER)):
        assert torch.allclose(found[:, index], t * along_t + x * along_x + y * along_y, atol=1e-5)
    # Three directions at right angles to each other, and magnitudes that fall.
    starts = encoding.freqs[:, 0, 0].reshape(3, 3, 2)
    assert torch.allclose(starts[:, :, 0].T @ starts[:, :, 0], torch.eye(3), atol=1e-5)
    assert torch.allclose(starts[:, :, 1].norm(dim=0), torch.full((3,), 10**-0.5))
    encoding.set_knob(40.0)
    turned = encoding.rotation_angles(OTHER, layer=1)
    assert torch.allclose(turned[..., 0], found[..., 0])
    assert torch.allclose(turned[..., 1], found[..., 1] * 4**-0.5, atol=1e-5)
