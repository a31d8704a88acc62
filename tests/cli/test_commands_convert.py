"""`sightline convert` and `sightline verify`: from another project's file to a checkpoint, and the proof."""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import sightline
from sightline.convert import export_weights
from sightline.distributed.machine import import_timm
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters
from tests.parity.golden_files import FOLDER, golden
from tests.tiny import put, reseal, tree

TINY = [
    "--arguments.model=vit_tiny_patch16_224",
    "--arguments.depth=1",
    "--arguments.img_size=32",
    "--arguments.num_classes=4",
]


@pytest.fixture(scope="module")
def state():
    timm = import_timm()
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32, num_classes=4)
    return randomise_parameters(model).state_dict()


@pytest.fixture
def source(state, tmp_path):
    save_file(state, tmp_path / "timm.safetensors")
    return tmp_path / "timm.safetensors"


def lines(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_from_timm_and_verified_against_it(cli, source, tmp_path):
    code, out, _ = cli("convert", "timm", source, tmp_path / "m", *TINY)
    assert code == 0
    assert "learned_1d, 2x2 patches of 16 pixels, 4 classes" in out
    code, out, err = cli("verify", tmp_path / "m", "--against", source, "--project", "timm", "--json")
    assert code == 0, err
    rules, weights, *outputs = lines(out)
    assert (rules["what"], rules["difference"]) == ("rules", 0)
    assert weights["difference"] == 0
    assert [row["against"] for row in outputs] == ["the original"] * 2
    assert [row["what"] for row in outputs] == ["outputs at 32x32", "outputs at 32x64"]
    assert all(row["difference"] <= 2e-5 < 0.02 < row["spread"] for row in outputs)
    code, out, _ = cli("verify", tmp_path / "m", "--against", source, "--project", "timm")
    assert code == 0
    assert out.count("equal") == 4


def test_other_weights_are_found_out(cli, source, state, tmp_path):
    cli("convert", "timm", source, tmp_path / "m", *TINY)
    other = {**state, "blocks.0.mlp.fc1.bias": state["blocks.0.mlp.fc1.bias"] + 1e-3}
    save_file(other, tmp_path / "other.safetensors")
    code, out, _ = cli("verify", tmp_path / "m", "--against", tmp_path / "other.safetensors", "--project", "timm")
    assert code == 1
    assert out.count("DIFFERS") == 3


@pytest.mark.parametrize(
    "file", ["lookhere_model_LH90", "ropevit_mixed_ape", "bigvision_vit_map_sincos", "swin_rope_mixed_rpb"]
)
def test_from_a_file_that_records_its_arguments(file, cli, tmp_path):
    from safetensors import safe_open

    project = {"l": "lookhere", "r": "rope_vit", "b": "big_vision", "s": "rope_swin"}[file[0]]
    kept = golden(file)
    with safe_open(FOLDER / f"{file}.safetensors", "pt") as opened:
        arguments = opened.metadata()["args"]
    weights = {name.removeprefix("sd."): one for name, one in kept.items() if name.startswith("sd.")}
    save_file(weights, tmp_path / "w.safetensors", metadata={"args": arguments})
    code, _, err = cli("convert", project, tmp_path / "w.safetensors", tmp_path / "m")
    assert code == 0, err
    model = sightline.load_model(tmp_path / "m")
    with torch.inference_mode():
        if project == "rope_swin":
            assert (model(kept["in.x"]) - kept["out.logits"]).abs().max() <= 5e-5
        elif project == "big_vision":
            assert (model(kept["in.x_nhwc"].permute(0, 3, 1, 2)) - kept["out.logits"]).abs().max() <= 2e-5
        else:
            assert (model(kept["in.train"]) - kept["out.train.logits"]).abs().max() <= 2e-5
    verify = ["verify", tmp_path / "m", "--against", tmp_path / "w.safetensors", "--project", project]
    code, out, err = cli(*verify, "--json")
    assert code == 0, err
    assert [row["against"] for row in lines(out)] == [
        "the original's arguments", "the source", *["the recorded fingerprint"] * 2,
    ]  # fmt: skip
    # Another fingerprint, as another machine or version might give, fails.
    config = tmp_path / "m" / "config.json"
    record = json.loads(config.read_text())
    record["fingerprint"][1]["outputs"][0] += 1e-3
    config.write_text(json.dumps(record))
    reseal(tmp_path / "m")
    code, out, _ = cli(*verify)
    assert code == 1
    assert out.count("DIFFERS") == 1


def test_torch_files_as_trainers_leave_them(cli, state, tmp_path):
    """The weights under a key, beside a trainer's options; a running mean counts before the weights."""
    moved = {name: one + 1 for name, one in state.items()}
    content = {"model": moved, "model_ema": state, "epoch": 3, "args": argparse.Namespace(lr=0.1)}
    torch.save(content, tmp_path / "run.pth")
    code, _, err = cli("convert", "timm", tmp_path / "run.pth", tmp_path / "m", *TINY)
    assert code == 0, err
    found = load_file(tmp_path / "m" / "model.safetensors")
    assert torch.equal(found["norm.weight"], state["norm.weight"])


def test_numpy_archives_of_flax(cli, refused, tmp_path):
    options = {"interpolation": "corner_aligned"}
    model = create_model(
        "vit_micro_patch4", encoding="learned_1d", encoding_options=options, gelu="tanh", depth=2, num_classes=3
    )
    weights, arguments = export_weights(randomise_parameters(model), "vision_transformer")
    plain = {name: one.numpy() for name, one in weights.items()}
    (tmp_path / "a.yaml").write_text(json.dumps(arguments))
    given = ["--config", tmp_path / "a.yaml"]
    # Under the prefix of a training state, with a step beside it; then with the blocks of a scan in one array each.
    np.savez(tmp_path / "a.npz", **{f"opt/target/{name}": one for name, one in plain.items()}, step=np.int64(3))
    stacked = {name: one for name, one in plain.items() if "encoderblock_" not in name}
    for name, one in plain.items():
        if "encoderblock_0" in name:
            other = plain[name.replace("encoderblock_0", "encoderblock_1")]
            stacked[name.replace("encoderblock_0", "encoderblock")] = np.stack([one, other])
    np.savez(tmp_path / "b.npz", **stacked)
    for name in ("a", "b"):
        code, _, err = cli("convert", "vision_transformer", tmp_path / f"{name}.npz", tmp_path / name, *given)
        assert code == 0, err
        found = sightline.load_model(tmp_path / name).state_dict()
        assert all(torch.equal(found[key], one) for key, one in model.state_dict().items())
    np.savez(tmp_path / "c.npz", cls=np.array([object()], dtype=object))
    (tmp_path / "d.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-200])
    for name in ("c", "d"):
        file = tmp_path / f"{name}.npz"
        refused("convert", "vision_transformer", file, tmp_path / name, *given, says=[str(file), "numpy archive"])


def test_what_is_refused_writes_nothing(cli, refused, source, state, tmp_path):
    dest = tmp_path / "m"
    for words, says in (
        (["tim", source, dest, *TINY], ["did you mean 'timm'"]),
        (["timm", tmp_path / "none.safetensors", dest, *TINY], ["none.safetensors", "no such file"]),
        (["timm", source, dest], ["does not record the arguments", "--arguments.model="]),
        (["timm", source, dest, "--arguments.depth=1"], ["has no model"]),
        (
            ["timm", source, dest, *TINY, "--arguments.embed_dim=384"],
            ["timm.safetensors", "patch_embed.proj.weight", "expected [384, 3"],
        ),
        (["timm", tmp_path, dest, *TINY], ["is a folder"]),
        (["deit", source, dest, "--arguments.embed_dims=192"], ["did you mean 'embed_dim'"]),
    ):
        refused("convert", *words, says=says)
    for name, one in (("nan", torch.tensor(float("nan"))), ("short", None)):
        wrong = {**state, "norm.weight": state["norm.weight"] * one} if one is not None else dict(state)
        if one is None:
            del wrong["norm.weight"]
            wrong["norm.wait"] = state["norm.weight"]
        save_file(wrong, tmp_path / f"{name}.safetensors")
    refused("convert", "timm", tmp_path / "nan.safetensors", dest, *TINY, says=["nan.safetensors", "norm.weight"])
    refused(
        "convert",
        "timm",
        tmp_path / "short.safetensors",
        dest,
        *TINY,
        says=["missing: norm.weight", "not expected: norm.wait"],
    )
    assert not dest.exists()
    assert cli("convert", "timm", source, dest, *TINY)[0] == 0
    before = tree(dest)
    refused("convert", "timm", source, dest, *TINY, says=["exists already", "--overwrite"])
    assert tree(dest) == before
    refused("verify", dest, "--against", source, "--project", "deit", says=["was converted from timm"])
    refused("verify", dest, "--against", tmp_path / "short.safetensors", "--project", "timm", says=["of another model"])
    assert cli("convert", "timm", source, dest, *TINY, "--overwrite")[0] == 0


@pytest.mark.parametrize(("field", "value"), [("norm_eps", 1e-5), ("gelu", "tanh"), ("fit", "pad")])
def test_a_rule_that_was_changed_is_found_however_small_its_effect(field, value, cli, source, tmp_path):
    cli("convert", "timm", source, tmp_path / "m", *TINY)
    config = tmp_path / "m" / "config.json"
    record = json.loads(config.read_text())
    put(record, **{field: value})
    config.write_text(json.dumps(record))
    reseal(tmp_path / "m")
    code, out, _ = cli("verify", tmp_path / "m", "--against", source, "--project", "timm", "--json")
    assert code == 1
    rules = lines(out)[0]
    assert not rules["passed"]
    assert f"rules: {field} = {value!r}" in rules["what"]


def test_what_the_originals_library_warns_itself_of_is_not_shown(state, recwarn):
    from sightline.convert import import_weights
    from sightline.convert.verify import verify

    given = {"model": "vit_tiny_patch16_224", "depth": 1, "img_size": 32, "num_classes": 4}
    timm = import_timm()

    def noisy(*_):
        warnings.warn("non-contiguous", UserWarning, stacklevel=1)

    with pytest.MonkeyPatch.context() as patch:
        kind = type(timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32))
        forward = kind.forward
        patch.setattr(kind, "forward", lambda self, x: noisy() or forward(self, x))
        rows = verify(import_weights("timm", state, given), {}, "timm", state)
    assert all(row.passed for row in rows)
    assert not [one for one in recwarn if "non-contiguous" in str(one.message)]
