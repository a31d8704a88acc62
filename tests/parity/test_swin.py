"""Swin of RoPE-ViT's code and of timm against the public code (golden/, golden_families/)."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.attention.rotation import Rotation
from sightline.convert import counted_weights, export_weights, import_weights
from sightline.encodings.create import components
from sightline.encodings.pattern.rpe_learned import RpeLearned
from sightline.models.architectures.swin import Swin
from sightline.models.windows import windows_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.parity.family_files import assert_close, files, read, said_of, timm_name, weights

FILES = files("swin")


def read_swin(file: str) -> tuple[dict[str, Tensor], str, dict[str, Any], dict[str, Any]]:
    """The tensors of a file, the project, the arguments of its class, and everything that was said."""
    tensors, said = read(file)
    given = {key: value for key, value in said.items() if key not in ("kind", "cases", "blocks")}
    if (model := timm_name(file)) is not None:
        return tensors, "timm", {"model": model, **given}, said
    if "kind" in said:
        kind = said["kind"]
        given |= {"rope_mixed": "mixed" in kind, "use_rpb": kind.endswith("rpb") and kind != "base"}
    return tensors, "rope_swin", given, said


def made(file: str) -> Swin:
    tensors, project, given, _ = read_swin(file)
    model = import_weights(project, weights(tensors), given)
    assert isinstance(model, Swin)
    return model


def cases(file: str) -> list[str]:
    return [key.removeprefix("in.") for key in read(file)[0] if key.startswith("in.")]


def fitted(file: str, case: str) -> Swin:
    """The model at the size and window of a case."""
    model, said = made(file), read_swin(file)[3]
    how = said.get("cases", {}).get(case, {})
    # What `timm_swin` says in words.
    words = re.search(rf"in\.{case}: after set_input_size\(\((\d+), ?(\d+)\), window (\d+)\)", said_of(file)["notes"])
    if words is not None:
        rows, cols, window = map(int, words.groups())
        how = {"img_size": [rows, cols], "window_size": window}
    again = how.get("set_input_size", how)
    if again and "img_size" in again:
        model.set_input_size(**again)
    return model


CASES = [pytest.param(file, case, id=f"{file}-{case}") for file in FILES for case in cases(file)]


@pytest.mark.parametrize(("file", "case"), CASES)
@torch.no_grad()
def test_outputs(file: str, case: str) -> None:
    tensors, model = read_swin(file)[0], fitted(file, case)
    images = tensors[f"in.{case}"]
    logits = tensors.get(f"out.{case}.logits", tensors.get("out.logits"))
    assert_close(model(images), logits)
    rows, layout = model.prepare(images)
    for name in (f"out.{case}.features", "out.features"):
        if name in tensors:
            assert_close(model.forward_head(model.forward_features(images), pre_logits=True), tensors[name])
    firsts, start = model.blocks[0].attn.stage.options.firsts, f"out.{case}.layers."
    theirs = {}
    for name, one in tensors.items():
        if name.startswith(start):
            stage, place = map(int, name.removeprefix(start).split(".blocks."))
            theirs[firsts[stage] + place] = one
    if theirs:
        found = model.blocks.collect(model.embed(rows, layout), theirs, layout, model.encoding)
        for one, layer in zip(found, sorted(theirs), strict=True):
            assert_close(one, theirs[layer].reshape(one.shape))


@pytest.mark.parametrize("file", FILES)
def test_there_and_back(file: str) -> None:
    tensors, project, given, _ = read_swin(file)
    back, arguments = export_weights(made(file), project)
    theirs = counted_weights(project, weights(tensors), back)
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[name], theirs[name]) for name in back)
    again = import_weights(project, back, arguments)
    assert all(torch.equal(*pair) for pair in zip(again.parameters(), made(file).parameters(), strict=True))
    if project == "rope_swin":
        assert list(arguments["depths"]) == given["depths"]


@pytest.mark.parametrize(("file", "case"), CASES)
@torch.no_grad()
def test_tables_of_another_window(file: str, case: str) -> None:
    tensors, model = read_swin(file)[0], fitted(file, case)
    start = f"table.{case}.layers."
    for name in [name for name in tensors if name.startswith(start)]:
        stage, place = int(name.split(".")[3]), int(name.split(".")[5])
        part: Any = next(one for one in components(model.encoding.stages[stage]) if isinstance(one, RpeLearned))
        window = Grid(*block_of(file, case, stage, place)["window"])
        assert_close(part.resized(part.tables[place], window), tensors[name], 1e-6)


def block_of(file: str, case: str, stage: int, place: int) -> dict[str, Any]:
    """What is said of a block at a case, window and shift as pairs."""
    found = read_swin(file)[3]["blocks"][case][f"layers.{stage}.blocks.{place}"]
    return {key: [value] * 2 if isinstance(value, int) else value for key, value in found.items()}


@pytest.mark.parametrize(("file", "case"), CASES)
def test_windows_and_which_tokens_meet(file: str, case: str) -> None:
    """The window and shift of each block, and where the official mask is 0 are the tokens of one window of ours."""
    tensors, model = read_swin(file)[0], fitted(file, case)
    said = read_swin(file)[3].get("blocks", {})
    for name in said.get(case, {}):
        stage, place = int(name.split(".")[1]), int(name.split(".")[3])
        block = block_of(file, case, stage, place)
        grid = Grid(*block["resolution"])
        attn: Any = model.blocks[model.blocks[0].attn.stage.options.firsts[stage] + place].attn
        cut = attn.stage.cut(grid, shifted=attn.shifted)
        assert (list(cut.size), list(cut.shift)) == (block["window"], block["shift"])
        mask = tensors.get(f"mask.{case}.{name}")
        if mask is None:
            continue
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0)
        windows = windows_of(layout, [cut])
        ours = windows.merge(windows.layout.image_ids.unsqueeze(-1))[0, :, 0].unflatten(0, tuple(grid))
        rolled = ours.roll([-one for one in cut.shift], (0, 1))
        rows, cols = cut.size
        inside = rolled.unflatten(1, (-1, cols)).unflatten(0, (-1, rows)).transpose(1, 2).flatten(2).flatten(0, 1)
        assert torch.equal(inside.unsqueeze(1) == inside.unsqueeze(2), mask == 0)
        assert mask.any()


@pytest.mark.parametrize("file", FILES)
@torch.no_grad()
def test_turns_of_axial_frequencies(file: str) -> None:
    tensors, model = read_swin(file)[0], made(file)
    for name in [name for name in tensors if name.startswith("cis.") and name.endswith(".real")]:
        stage, place = int(name.split(".")[2]), int(name.split(".")[4])
        window = Grid(*[round(tensors[name].shape[1] ** 0.5)] * 2)
        rotation = model.encoding.stages[stage].rotation(place, TokenLayout.uniform(window, 1, num_prefix_tokens=0))
        assert isinstance(rotation, Rotation)
        cos, sin = rotation.tensors()[:2]
        assert_close(cos.expand(1, len(tensors[name]), -1, -1)[0], tensors[name], 1e-6)
        assert_close(sin.expand(1, len(tensors[name]), -1, -1)[0], tensors[name.replace("real", "imag")], 1e-6)
