"""How many heads LookHere takes: the public code's language exactly, the presets any number."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from sightline.encodings import create_encoding
from sightline.encodings.pattern.lookhere import PRESETS, assign_preset_heads, parse_directions
from sightline.errors import InputError

NAMES = [
    "center", "corners", "diagonals", "eighths1", "eighths2", "halves", "none", "none1zero3", "none2zero2",
    "none3zero1", "triangles", "zero", "zerocorners", "zerohalves", "zerotriangles",
]  # fmt: skip
UNDIRECTED = {name for name in NAMES if any(word in name for word in ("none", "zero", "center"))}
HEADS = range(1, 25)
LANGUAGE = {
    "lookhere_180": "halves-diagonals-none",
    "lookhere_90": "triangles-corners-none",
    "lookhere_45": "eighths1-eighths2-none",
}


def accepted(names: tuple[str, ...], heads: int) -> bool:
    """What the public code takes, found by running it."""
    if len(names) == 1:
        return heads % 4 == 0
    if len(names) == 2 and heads == 6:
        return names[1] in UNDIRECTED and names[0] != names[1]
    return heads in {2: (12, 16), 3: (12, 16), 4: (16,)}[len(names)]


def encoding(directions, heads: int, **options):
    return create_encoding("lookhere", depth=2, heads=heads, dim=4 * heads, directions=directions, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_accepts_exactly_what_the_public_code_accepts(count: int) -> None:
    every = list(itertools.product(NAMES, repeat=count))
    for names in every if count < 3 else random.Random(0).sample(every, 300):
        directions = "-".join(names)
        for heads in HEADS:
            if accepted(names, heads):
                assert len(parse_directions(directions, heads)) == heads
            else:
                with pytest.raises(InputError):
                    parse_directions(directions, heads)


@pytest.mark.parametrize(
    ("directions", "heads", "slopes"),
    [
        ("halves-diagonals-none", 12, [1 / 2] * 8 + [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        ("halves-diagonals-none", 16, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 2] * 4 + [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        ("corners-corners-none", 12, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        ("corners-corners-corners", 12, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 8] * 4),
        ("halves", 12, [1 / 2] * 4 + [1 / 4] * 4 + [1 / 8] * 4),
        ("halves-none", 6, [1 / 2] * 4 + [1 / 4, 1 / 16]),
        ("none", 8, [1 / 4, 1 / 4, 1 / 16, 1 / 16, 1 / 64, 1 / 64, 1 / 256, 1 / 256]),
        ("center-none", 16, [1 / 4, 1 / 4, 1 / 16, 1 / 16, 1 / 64, 1 / 64, 1 / 256, 1 / 256] * 2),
        ("zerohalves", 4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
    ],
)
def test_slopes(directions: str, heads: int, slopes: list[float]) -> None:
    assert [slope for _, slope in parse_directions(directions, heads)] == slopes


@pytest.mark.parametrize("preset", LANGUAGE)
@pytest.mark.parametrize("heads", [12, 16])
def test_presets_are_the_public_ones_at_12_and_16_heads(heads: int, preset: str) -> None:
    assert PRESETS[preset].language == LANGUAGE[preset]
    ours = create_encoding(preset, depth=2, heads=heads, dim=4 * heads)
    theirs = encoding(LANGUAGE[preset], heads)
    for layer in range(2):
        assert torch.equal(ours.bias_matrix((3, 5), layer), theirs.bias_matrix((3, 5), layer))


@pytest.mark.parametrize("preset", LANGUAGE)
@pytest.mark.parametrize("heads", range(1, 33))
def test_presets_take_any_number_of_heads(heads: int, preset: str) -> None:
    dealt = assign_preset_heads(preset, heads)
    assert len(dealt) == heads
    directed = [(head, slope) for head, slope in dealt if head.view.planes]
    undirected = [slope for head, slope in dealt if not head.view.planes]
    if heads not in (12, 16):
        assert len(directed) == min(round(2 * heads / 3), heads - 1)
    assert heads == 1 or abs(len(directed) - 2 * heads / 3) <= 4 / 3 + 1e-9
    assert len(undirected) >= 1
    # The directed come first, and no direction is used twice before each that is used was used once.
    assert all(head.view.planes for head, _ in dealt[: len(directed)])
    used = [sum(head == other for other, _ in directed) for head, _ in directed]
    assert not used or max(used) - min(used) <= 1
    assert len({head for head, _ in directed}) == min(len(directed), 8)
    # The first head of a direction has 1/2, the next one 1/4, and so on.
    for head in {head for head, _ in directed}:
        slopes = [slope for other, slope in directed if other == head]
        assert slopes == [2.0 ** -(1 + index) for index in range(len(slopes))]
    assert set(undirected) <= {1 / 4, 1 / 16, 1 / 64, 1 / 256}
    assert undirected == sorted(undirected, reverse=True)
    counts = [undirected.count(slope) for slope in set(undirected)]
    assert max(counts) - min(counts) <= 1
    assert all(head.penalised and not head.from_centre for head, _ in dealt)
    bias = create_encoding(preset, depth=1, heads=heads, dim=4 * heads).bias_matrix((3, 5))
    assert bias.shape == (heads, 16, 16)
    # Every direction of view leaves each query something to see.
    assert (bias.diagonal(dim1=1, dim2=2) == 0).all()


@pytest.mark.parametrize("preset", LANGUAGE)
def test_directions_of_few_heads_are_spread_around_the_circle(preset: str) -> None:
    """The mean of what the heads see is in the middle: they do not all look to one side."""
    for heads in (6, 9, 12, 24):
        mean = torch.zeros(2, dtype=torch.float64)
        for head, _ in assign_preset_heads(preset, heads):
            dy, dx = torch.meshgrid(torch.arange(-20, 21), torch.arange(-20, 21), indexing="ij")
            if head.view.planes:
                seen = head.view.visible(dy, dx)
                centre = torch.stack((dy[seen].double().mean(), dx[seen].double().mean()))
                mean += centre / centre.norm()
        assert mean.norm() < 0.5, (heads, mean)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"directions": "halves-diagonal-none"}, "diagonals"),
        ({"directions": "eigths1-eighths2-none"}, "eighths1"),
        ({"directions": ""}, "not known"),
        ({"directions": "halves--none"}, "not known"),
        ({"directions": 45}, "directions"),
        ({"directions": ["none", 45]}, "directions"),
        ({"directions": ["none"]}, "1 given for a depth of 2"),
        ({"directions": []}, "0 given for a depth of 2"),
        ({"layer_slopes": 1.5}, "layer_slopes"),
        ({"layer_slopes": (1.5, 1.0, 0.5)}, "layer_slopes"),
        ({"head_slopes": (0.5,) * 11}, "11 given for 12 heads"),
        ({"head_slopes": 0.5}, "head_slopes"),
        ({"distance": "sqare"}, "square"),
        ({"fill": "min"}, "inf"),
        ({"rounding": "exakt"}, "exact"),
        ({"direction": "none"}, "directions"),
    ],
)
def test_wrong_options_are_refused(options: dict, match: str) -> None:
    with pytest.raises(InputError, match=match):
        create_encoding("lookhere", depth=2, heads=12, dim=48, **options)


@pytest.mark.parametrize(
    ("directions", "heads", "unused"),
    [("lookhere_90", 3, 6), ("lookhere_45", 6, 4), ("lookhere_180", 12, 0), ("lookhere_90", 11, 1), ("halves", 4, 0)],
)
def test_directions_that_no_head_has_are_counted(directions: str, heads: int, unused: int) -> None:
    assert encoding(directions, heads).unused_directions == unused


def test_a_list_may_name_presets() -> None:
    mixed = encoding(["lookhere_45", "halves-none"], 6)
    assert torch.equal(
        mixed.bias_matrix((3, 5)), create_encoding("lookhere_45", depth=2, heads=6, dim=24).bias_matrix((3, 5))
    )
    assert torch.equal(mixed.bias_matrix((3, 5), 1), encoding("halves-none", 6).bias_matrix((3, 5), 1))
