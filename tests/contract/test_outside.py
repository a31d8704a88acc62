"""An encoding from outside the package: one new file, no other edit."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from sightline.encodings import add_encodings, create_encoding, discovery, list_encodings
from sightline.errors import InputError
from sightline.models import create_model
from tests.contract.contract import FOR_EACH_POOL, ONCE

HEAD = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import nn
from sightline.attention import Pattern
from sightline.attention.pattern import TableBias
from sightline.encodings import AddedEncoding, Knob, PatternEncoding, RotaryEncoding
from sightline.tokens.layout import grid_coords
"""

ROTARY = (
    HEAD
    + '''
@dataclass(frozen=True)
class DiagonalConfig:
    base: float = 20.0

class Diagonal(RotaryEncoding):
    """Half of the channels turn with x + 2y, half with 2x - y."""

    names: ClassVar = {"outside_diagonal": {}, "outside_steep_diagonal": {"base": 5.0}}
    Config: ClassVar = DiagonalConfig
    source: ClassVar = "this test"
    extrapolation: ClassVar = "the same coordinates"

    def __init__(self, config, shape):
        super().__init__(config, shape)
        self.base = config.base
        self.gain = nn.Parameter(torch.ones(shape.depth, shape.head_dim // 2))

    @property
    def knob(self):
        return Knob("base", self.base, self.config.base, 1.5, 1000.0, (5.0, 20.0, 40.0))

    def _turn_knob(self, value):
        self.base = value

    def angles(self, coords, grid, layer):
        y, x = coords.float().unsqueeze(1).unsqueeze(-1).unbind(-2)
        half = torch.arange(self.shape.head_dim // 4, device=coords.device).float()
        frequencies = self.base ** (-4 * half / self.shape.head_dim)
        angles = torch.cat(((x + 2 * y) * frequencies, (2 * x - y) * frequencies), dim=-1)
        return angles * self.gain[layer].float()
'''
)

ADDED = (
    HEAD
    + '''
@dataclass(frozen=True)
class RingConfig:
    rings: int = 6

class Ring(AddedEncoding):
    """A vector for the distance from the upper left corner, and one for the angle seen from there."""

    names: ClassVar = {"outside_ring": {}}
    Config: ClassVar = RingConfig
    source: ClassVar = "this test"
    extrapolation: ClassVar = "the same distances"

    def __init__(self, config, shape):
        super().__init__(config, shape)
        self.waves = nn.Linear(3, shape.dim)

    def embedding(self, grid):
        where = grid_coords(grid, self.waves.weight.device).float()
        y, x = where.unbind(-1)
        features = torch.stack((where.norm(dim=-1), torch.atan2(y, x + 1), y / self.config.rings), dim=-1)
        with torch.autocast(where.device.type, enabled=False):
            weight, bias = self.waves.weight.float(), self.waves.bias.float()
            return nn.functional.linear(features, weight, bias).sin()
'''
)

PATTERN = (
    HEAD
    + '''
@dataclass(frozen=True)
class CityBlockConfig:
    pass

class CityBlock(PatternEncoding):
    """A learned slope for each head, layer and axis, times the distance along the streets."""

    names: ClassVar = {"outside_city_block": {}}
    Config: ClassVar = CityBlockConfig
    source: ClassVar = "this test"
    extrapolation: ClassVar = "the same distances"

    def __init__(self, config, shape):
        super().__init__(config, shape)
        self.slopes = nn.Parameter(torch.rand(shape.depth, 2, shape.heads, 1, 1))

    def layer_pattern(self, layer):
        def values(grid):
            device = self.slopes.device
            dy = torch.arange(1 - grid.rows, grid.rows, device=device).abs().unsqueeze(1)
            dx = torch.arange(1 - grid.cols, grid.cols, device=device).abs().unsqueeze(0)
            along_y, along_x = self.slopes[layer].float()
            return -(along_y * dy + along_x * dx)
        return Pattern((TableBias(values),))
'''
)
FILES = {"diagonal.py": ROTARY, "ring.py": ADDED, "city_block.py": PATTERN}
NAMES = ["outside_city_block", "outside_diagonal", "outside_ring", "outside_steep_diagonal"]


@pytest.fixture
def registry_as_before(monkeypatch: pytest.MonkeyPatch):
    """What a test registers is gone after it."""
    list_encodings()
    monkeypatch.setattr(discovery, "_found", dict(discovery._found))
    loaded = set(sys.modules)
    yield
    for name in set(sys.modules) - loaded:
        if name.startswith("sightline_outside_"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "_not_this_one.py").write_text("raise RuntimeError('files that begin with _ are not loaded')")
    return folder


@pytest.mark.usefixtures("registry_as_before")
def test_found_and_listed(folder: Path) -> None:
    before = list_encodings()
    assert add_encodings(folder / "ring.py") == ["outside_ring"]
    assert "outside_ring" in list_encodings()
    assert sorted(add_encodings(str(folder))) == NAMES
    assert list_encodings() == sorted([*before, *NAMES])
    steep = create_encoding("outside_steep_diagonal", depth=1, heads=2, dim=16)
    assert steep.config.base == 5.0
    assert create_encoding("outside_diagonal", depth=1, heads=2, dim=16, base=7.0).knob.value == 7.0
    with pytest.raises(InputError, match="outside_ring"):
        create_encoding("outside_rign", depth=1, heads=2, dim=16)
    with pytest.raises(InputError, match="rings"):
        create_model("vit_micro_patch4", encoding="outside_ring", encoding_options={"ring": 3})


@pytest.mark.usefixtures("registry_as_before")
@pytest.mark.parametrize("name", [*NAMES, "outside_city_block+learned_1d"])
@pytest.mark.parametrize("check", [*FOR_EACH_POOL, *ONCE])
def test_contract(check, name: str, folder: Path) -> None:
    add_encodings(folder)
    for pool in ("cls", "mean", "attention") if check in FOR_EACH_POOL else ("cls",):
        check(name, pool)


@pytest.mark.usefixtures("registry_as_before")
@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x = 1\n", "defines no PositionEncoding"),
        ("def broken(:\n", "SyntaxError"),
        ("import a_module_that_is_nowhere\n", "a_module_that_is_nowhere"),
        (ADDED.replace("outside_ring", "rope_axial"), "already taken"),
        (ADDED.replace("outside_ring", "ring+diagonal"), "plain identifier"),
        (ADDED + ROTARY.replace("outside_steep_diagonal", "learned_1d"), "already taken"),
    ],
)
def test_refused(text: str, match: str, tmp_path: Path) -> None:
    """One line that names the file; nothing of it is registered."""
    file = tmp_path / "wrong.py"
    file.write_text(text)
    before = list_encodings()
    with pytest.raises(InputError, match=match) as raised:
        add_encodings(file)
    assert "wrong.py" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list_encodings() == before


@pytest.mark.slow
def test_entry_points(tmp_path: Path) -> None:
    """An installed package adds encodings by the entry-point group, named as a module or as a class."""
    (tmp_path / "outside_one.py").write_text(ROTARY)
    (tmp_path / "outside_two.py").write_text(ADDED)
    metadata = tmp_path / "outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{discovery.ENTRY_POINTS}]\none = outside_one\ntwo = outside_two:Ring\n"
    )
    script = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
import sightline
model = sightline.create_model("vit_micro_patch4", encoding="outside_ring+outside_diagonal", num_classes=3)
print(json.dumps([sightline.list_encodings(), type(model.encoding.parts[0]).__name__]))
"""
    source = Path(discovery.__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(source)}
    )
    names, first = json.loads(ran.stdout)
    assert {"outside_ring", "outside_diagonal", "outside_steep_diagonal", "learned_1d"} <= set(names)
    assert first == "Ring"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise RuntimeError('no licence\\nfor this')", "RuntimeError: no licence for this"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import a_module_that_nobody_has", "ModuleNotFoundError"),
        (ROTARY.replace("outside_diagonal", "learned_1d"), "'learned_1d' is already taken"),
    ],
)
def test_a_plug_in_that_fails_is_named_and_left(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything else works without it."""
    (tmp_path / "outside_broken.py").write_text(code)
    (tmp_path / "outside_whole.py").write_text(ADDED)
    monkeypatch.syspath_prepend(tmp_path)
    points = [metadata.EntryPoint(name, f"outside_{name}", discovery.ENTRY_POINTS) for name in ("broken", "whole")]
    monkeypatch.setattr(discovery.importlib.metadata, "entry_points", lambda **_: points)
    monkeypatch.setattr(discovery, "_found", {})
    try:
        names = set(discovery.registry())
    finally:
        for name in ("broken", "whole"):
            sys.modules.pop(f"outside_{name}", None)
    assert {"outside_ring", "lookhere_90", "none"} <= names
    assert len(caplog.records) == 1
    for word in ("plug-in broken (outside_broken)", "left out", says):
        assert word in caplog.text
