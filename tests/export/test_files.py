"""What the files say of themselves, and that making them changes nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from sightline.data.preprocessing import preprocessing
from sightline.errors import StorageError
from sightline.export import LIMIT, METADATA, export_model
from sightline.tokens import segment
from tests.contract.contract import PATCH, TRAIN
from tests.export.models import assert_the_same, session, small


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
def test_the_onnx_example_sees_what_the_model_was_trained_on(onnx_file, tmp_path, monkeypatch, capsys):
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
def test_the_pt2_example_too(exported, tmp_path, monkeypatch):
    shutil.copy(exported(small(), to="torch"), tmp_path / "model.pt2")
    found = run_example(2, tmp_path, monkeypatch)
    with torch.no_grad():
        expected = small()(preprocessing(small())(tmp_path / "photo.jpg", "native")[None])
    assert (found["logits"] - expected).abs().max() < LIMIT


def test_preparing_needs_no_torch():
    code = (
        "import sys, sightline.data.image_file, sightline.data.preprocessing; raise SystemExit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("flag", "says"), [(os.ST_RDONLY, "Read-only file system"), (0, "Permission denied")])
def test_why_a_folder_cannot_be_written(flag, says, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flag))
    with pytest.raises(StorageError, match=says):
        export_model(small(), tmp_path / "a.onnx", to="onnx")
