"""Swin of RoPE-ViT's code and of timm against the public code (golden/, golden_families/).

`SIGHTLINE_GOLDEN` names another folder with files of the same names, which are then tried instead.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from sightline.attention.rotation import Rotation
from sightline.convert import counted_weights, export_weights, import_weights
from sightline.encodings.create import parts_of
from sightline.encodings.pattern.rpe_learned import RpeLearned
from sightline.grid import Grid
from sightline.layout import TokenLayout
from sightline.models.architectures.swin import Swin
from sightline.models.windows import windows_of

HERE = Path(__file__).parent
FOLDERS = [Path(os.environ["SIGHTLINE_GOLDEN"])] if "SIGHTLINE_GOLDEN" in os.environ else [
    HERE / "golden", HERE / "golden_families"]  # fmt: skip
FILES = sorted(path for folder in FOLDERS for path in (*folder.glob("swin_*.safetensors"), *folder.glob("timm_swin*")))
TOLERANCE = 5e-5


def test_there_are_files() -> None:
    assert FILES


@functools.lru_cache(maxsize=4)
def read(path: Path) -> tuple[dict[str, Tensor], str, dict[str, Any], dict[str, Any]]:
    """The tensors of a file, the project, the arguments of its class, and everything that was said."""
    with safe_open(path, "pt") as opened:
        metadata = opened.metadata()
    said = json.loads(metadata["args"])
    given = {key: value for key, value in said.items() if key not in ("kind", "cases", "blocks")}
    if metadata["cls"].startswith("timm."):
        return load_file(path), "timm", {"model": "swin_tiny_patch4_window7_224", **given}, said
    kind = said.get("kind", "base" if "rope_mixed" not in given else None)
    if "kind" in said:
        given |= {"rope_mixed": "mixed" in kind, "use_rpb": kind.endswith("rpb") and kind != "base"}
    return load_file(path), "rope_swin", given, said


def made(path: Path) -> Swin:
    tensors, project, given, _ = read(path)
    model = import_weights(project, weights(tensors), given)
    assert isinstance(model, Swin)
    return model


def weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix("sd."): value for key, value in tensors.items() if key.startswith("sd.")}


def cases(path: Path) -> list[str]:
    with safe_open(path, "pt") as opened:
        return [key.removeprefix("in.") for key in opened.keys() if key.startswith("in.")]  # noqa: SIM118


def fitted(path: Path, case: str) -> Swin:
    """The model at the size and window of a case."""
    model, said = made(path), read(path)[3]
    how = said.get("cases", {}).get(case, {})
    # What `timm_swin` says in words.
    again = {"img_size": [64, 64], "window_size": 8} if case == "big" else how.get("set_input_size", how)
    if again and "window_size" in again:
        model.set_input_size(again["img_size"], window_size=again["window_size"])
    return model


CASES = [pytest.param(path, case, id=f"{path.stem}-{case}") for path in FILES for case in cases(path)]


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> None:
    assert ours.shape == theirs.shape
    # What is the same everywhere would equal anything.
    assert theirs.std() > 5 * tolerance
    assert (ours - theirs).abs().max() <= tolerance


@pytest.mark.parametrize(("path", "case"), CASES)
@torch.no_grad()
def test_outputs(path: Path, case: str) -> None:
    tensors, model = read(path)[0], fitted(path, case)
    images = tensors[f"in.{case}"]
    logits = tensors.get(f"out.{case}.logits", tensors.get("out.logits"))
    assert_close(model(images), logits)
    features, maps = model.forward_intermediates(images, output_fmt="NLC")
    for name in (f"out.{case}.features", "out.features"):
        if name in tensors:
            assert_close(model.forward_head(features, pre_logits=True), tensors[name])
    taken = dict(zip(model.stage_ends, maps, strict=True))
    seen = 0
    for stage, first in enumerate(model.blocks.options.firsts):
        for place in range(model.blocks.options.depths[stage]):
            theirs = tensors.get(f"out.{case}.layers.{stage}.blocks.{place}")
            if theirs is not None and first + place in taken:
                assert_close(taken[first + place], theirs.reshape(taken[first + place].shape))
                seen += 1
    assert seen == sum(name.startswith(f"out.{case}.layers.") for name in tensors)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_there_and_back(path: Path) -> None:
    tensors, project, given, _ = read(path)
    back, arguments = export_weights(made(path), project)
    theirs = counted_weights(project, weights(tensors))
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[name], theirs[name]) for name in back)
    again = import_weights(project, back, arguments)
    assert all(torch.equal(*pair) for pair in zip(again.parameters(), made(path).parameters(), strict=True))
    if project == "rope_swin":
        assert list(arguments["depths"]) == given["depths"]


@pytest.mark.parametrize(("path", "case"), CASES)
@torch.no_grad()
def test_tables_of_another_window(path: Path, case: str) -> None:
    tensors, model = read(path)[0], fitted(path, case)
    start = f"table.{case}.layers."
    for name in [name for name in tensors if name.startswith(start)]:
        stage, place = int(name.split(".")[3]), int(name.split(".")[5])
        part: Any = next(one for one in parts_of(model.encoding.stages[stage]) if isinstance(one, RpeLearned))
        window = Grid(*block_of(path, case, stage, place)["window"])
        assert_close(part.resized(part.tables[place], window), tensors[name], 1e-6)


def block_of(path: Path, case: str, stage: int, place: int) -> dict[str, Any]:
    """What is said of a block at a case, window and shift as pairs."""
    found = read(path)[3]["blocks"][case][f"layers.{stage}.blocks.{place}"]
    return {key: [value] * 2 if isinstance(value, int) else value for key, value in found.items()}


@pytest.mark.parametrize(("path", "case"), CASES)
def test_windows_and_which_tokens_meet(path: Path, case: str) -> None:
    """The window and shift of each block, and where the official mask is 0 are the tokens of one window of ours."""
    tensors, model = read(path)[0], fitted(path, case)
    said = read(path)[3].get("blocks", {})
    for name in said.get(case, {}):
        stage, place = int(name.split(".")[1]), int(name.split(".")[3])
        block = block_of(path, case, stage, place)
        grid = Grid(*block["resolution"])
        attn: Any = model.blocks[model.blocks.options.firsts[stage] + place].attn
        cut = attn.options.cut(grid, attn.trained, shifted=attn.shifted)
        assert (list(cut.size), list(cut.shift)) == (block["window"], block["shift"])
        mask = tensors.get(f"mask.{case}.{name}")
        if mask is None:
            continue
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0)
        windows = windows_of(layout, [cut])
        ours = windows.back(windows.layout.image_ids.unsqueeze(-1))[0, :, 0].unflatten(0, tuple(grid))
        rolled = ours.roll([-one for one in cut.shift], (0, 1))
        rows, cols = cut.size
        inside = rolled.unflatten(1, (-1, cols)).unflatten(0, (-1, rows)).transpose(1, 2).flatten(2).flatten(0, 1)
        assert torch.equal(inside.unsqueeze(1) == inside.unsqueeze(2), mask == 0)
        assert mask.any()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@torch.no_grad()
def test_turns_of_axial_frequencies(path: Path) -> None:
    tensors, model = read(path)[0], made(path)
    for name in [name for name in tensors if name.startswith("cis.") and name.endswith(".real")]:
        stage, place = int(name.split(".")[2]), int(name.split(".")[4])
        window = Grid(*[round(tensors[name].shape[1] ** 0.5)] * 2)
        rotation = model.encoding.stages[stage].rotation(place, TokenLayout.uniform(window, 1, num_prefix_tokens=0))
        assert isinstance(rotation, Rotation)
        cos, sin = rotation.turns()
        assert_close(cos.expand(1, len(tensors[name]), -1, -1)[0], tensors[name], 1e-6)
        assert_close(sin.expand(1, len(tensors[name]), -1, -1)[0], tensors[name.replace("real", "imag")], 1e-6)
