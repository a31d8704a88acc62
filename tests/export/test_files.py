"""What the files say of themselves, and that making them changes nothing else."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.data.preprocessing import preprocessing
from sightline.errors import StorageError
from sightline.export import LIMIT, METADATA, check_sizes, default_sizes, export_model
from sightline.export.program import quiet
from sightline.tokens import segment
from sightline.tokens.cache import ByteLRUCache
from tests.contract.contract import PATCH, TRAIN, build, images
from tests.export.models import UNSEEN, assert_the_same, session, small


@pytest.mark.slow
def test_an_onnx_file_says_what_it_takes_and_how_to_prepare_it(onnx_file):
    import onnx

    model, opened = small(), session(onnx_file)
    (given,), (answer,) = opened.get_inputs(), opened.get_outputs()
    assert (given.name, given.shape) == ("images", ["batch", 3, "height", "width"])
    assert (answer.name, answer.shape) == ("logits", ["batch", 5])
    found = opened.get_modelmeta().custom_metadata_map
    assert found["encoding"] == "learned_1d"
    assert json.loads(found["mean"]) == list(model.config.mean)
    assert json.loads(found["std"]) == list(model.config.std)
    assert json.loads(found["train_size"]) == [TRAIN.rows * PATCH, TRAIN.cols * PATCH]
    assert json.loads(found["patch_size"]) == PATCH
    assert {"sightline", "interpolation", "crop", "class_names", "fit", "knob", "channels"} <= found.keys()
    onnx.checker.check_model(onnx.load(onnx_file))
    # A size that the patch does not divide is an error and no guess.
    with pytest.raises(Exception, match="Reshape"):
        opened.run(None, {"images": torch.zeros(1, 3, 6 * PATCH + 1, 6 * PATCH).numpy()})


@pytest.mark.slow
def test_a_pt2_file_says_how_to_prepare_images(exported):
    model = small("rope_mixed", num_registers=0)
    model.config = model.config.replace(class_names=tuple("abcde"))
    model.set_knob(model.knob.candidates[0])
    file, found = exported(model, "torch"), {METADATA: ""}
    torch.export.load(file, extra_files=found)
    said = json.loads(found[METADATA])
    assert said["class_names"] == list("abcde")
    assert said["knob"] == {"name": model.knob.name, "value": model.knob.candidates[0]}
    assert_the_same(file, model)
    with zipfile.ZipFile(file) as parts:
        # No path of the machine that it was made on.
        assert not any(str(Path(segment.__file__).parent).encode() in parts.read(name) for name in parts.namelist())


@pytest.mark.slow
def test_an_onnx_file_names_no_path_of_this_machine(onnx_file):
    assert str(Path(segment.__file__).parent).encode() not in onnx_file.read_bytes()


@pytest.mark.slow
def test_the_model_and_this_process_stay_as_they_were(monkeypatch, tmp_path):
    cache = ByteLRUCache("a test's", 1 << 14)
    monkeypatch.setattr(segment, "_COORDS", cache)
    model = small("lookhere_90", "cls", drop_path=0.5).train()
    handlers, disabled = list(logging.getLogger().handlers), logging.root.manager.disable
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export_model(model, tmp_path / "a.pt2", to="torch")
    # In evaluation mode: no path is dropped.
    assert_the_same(tmp_path / "a.pt2", model, UNSEEN[:2])
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model(images((6, 9))).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert cache
    assert all(type(coords) is Tensor for coords, _ in cache._values.values())
    assert list(logging.getLogger().handlers) == handlers
    assert logging.root.manager.disable == disabled


def test_exporters_are_kept_quiet_and_the_loggers_left_alone(monkeypatch, capfd):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            logging.warning("to the root logger, which then makes itself a handler")
            warnings.warn("of the exporters", FutureWarning, stacklevel=1)
        assert root.handlers == []
        assert capfd.readouterr() == ("", "")
        logging.getLogger("sightline").warning("heard again")
    assert "heard again" in capfd.readouterr().err


def test_default_sizes_are_three_with_one_square_and_none_traced():
    for grid in [(1, 1), (1, 8), (2, 2), (4, 4), (12, 6), (6, 9), (14, 14), (64, 64), (100, 3)]:
        model = build("none", "mean", image_size=(grid[0] * PATCH, grid[1] * PATCH), depth=1, dim=48)
        sizes = default_sizes(model)
        check_sizes(model, sizes)
        assert len(set(sizes)) == 3
        assert any(height != width for height, width in sizes)
        assert (6 * PATCH, 9 * PATCH) not in sizes
        assert max(map(max, sizes)) <= 33 * PATCH


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "export.md"


def run_example(number, folder, monkeypatch):
    """What a snippet of the page leaves, run beside a transparent photo that lies on its side."""
    photo = Image.effect_noise((37, 61), 90).convert("RGBA")
    photo.putalpha(Image.linear_gradient("L").resize(photo.size))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(folder / "photo.jpg", "PNG", exif=exif)
    monkeypatch.chdir(folder)
    example = PAGE.read_text(encoding="utf-8").split("```python\n")[number].split("```")[0]
    found: dict = {}
    exec(compile(example, str(PAGE), "exec"), found)
    return found


@pytest.mark.slow
def test_found_12_the_onnx_example_sees_what_the_model_was_trained_on(onnx_file, tmp_path, monkeypatch, capsys):
    """Its pixels are the package's own to the last bit, its numbers those of the model."""
    shutil.copy(onnx_file, tmp_path / "model.onnx")
    found = run_example(1, tmp_path, monkeypatch)
    prepared = preprocessing(small())(tmp_path / "photo.jpg", "native")
    assert found["pixels"].shape == (1, 3, 36, 60)
    assert torch.equal(torch.from_numpy(found["pixels"][0]), prepared)
    with torch.no_grad():
        expected = small()(prepared[None])
    assert (torch.from_numpy(found["logits"]) - expected).abs().max() < LIMIT
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.slow
def test_found_12_the_pt2_example_too(exported, tmp_path, monkeypatch):
    shutil.copy(exported(small(), to="torch"), tmp_path / "model.pt2")
    found = run_example(2, tmp_path, monkeypatch)
    with torch.no_grad():
        expected = small()(preprocessing(small())(tmp_path / "photo.jpg", "native")[None])
    assert (found["logits"] - expected).abs().max() < LIMIT


def test_found_12_preparing_needs_no_torch():
    code = (
        "import sys, sightline.data.image_file, sightline.data.preprocessing; raise SystemExit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("flag", "says"), [(os.ST_RDONLY, "Read-only file system"), (0, "Permission denied")])
def test_found_30_why_a_folder_cannot_be_written(flag, says, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flag))
    with pytest.raises(StorageError, match=says):
        export_model(small(), tmp_path / "a.onnx", to="onnx")
