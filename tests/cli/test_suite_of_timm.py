"""`sightline evaluate --suite` of timm's models: what timm says of the same images, and every copy of the weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.convert import export_weights, import_weights, timm_build
from sightline.data.image_file import read_image
from sightline.data.preprocessing import preprocessing
from sightline.distributed.machine import import_timm
from sightline.evaluation.logits import find_logits, read_logits, rescore
from sightline.evaluation.preparations.base import preparation_class
from sightline.export.program import export_model
from sightline.hub.load import load_model, save_model
from sightline.results.rows import read_rows

SMALL = "vit_tiny_patch16_224"


def of_timm(seed=0, classes=4):
    """A small model of timm's whose weights are spread, and which tells images apart."""
    timm = import_timm()
    torch.manual_seed(seed)
    model = timm.create_model(SMALL, num_classes=classes, depth=2).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.2)
    return model


def said_by_timm(model, files):
    """timm's own logits of files at 224 px, by its own transform."""

    data = import_timm().data
    transform = data.create_transform(**data.resolve_data_config(model=model), is_training=False)
    with torch.inference_mode():
        return [model(transform(Image.open(file).convert("RGB"))[None])[0].numpy() for file in files]


def photos(folder, classes="abcd", count=2):
    """Waves of other directions and sizes, so that answers differ: photos of odd sizes."""

    draws = np.random.default_rng(3)
    for place, name in enumerate(classes):
        for number in range(count):
            height, width = draws.integers(60, 420, 2).tolist()
            y, x = np.mgrid[:height, :width] / (6 + 9 * place + number)
            waves = [np.sin(x * (1 + channel) + y * (place - channel)) for channel in range(3)]
            pixels = 127 + 90 * np.stack(waves, axis=-1) + draws.normal(0, 20, (height, width, 3))
            file = folder / "test" / name / f"{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=95)
    return f"imagefolder:{folder}"


@pytest.mark.slow
def test_vit_small_without_weights_says_what_timms_says(tmp_path, cli):
    """The command of the documentation: random weights, drawn as timm draws them, four classes, three sizes."""
    data, name = photos(tmp_path / "data"), "vit_small_patch16_224"
    words = (
        "--suite",
        data,
        "--resolutions",
        "160,224,320",
        "--out",
        tmp_path / "out",
        "--precision",
        "float32",
        "--logits",
    )
    assert cli("evaluate", f"timm:{name}", "--no-pretrained", "--num-classes", 4, *words)[0] == 0
    stored = {
        read_logits(file).measured["resolution"]: read_logits(file) for file in find_logits(tmp_path / "out" / "logits")
    }
    assert sorted(stored) == [160, 224, 320]
    torch.manual_seed(0)
    theirs = import_timm().create_model(name, num_classes=4).eval()
    expected = np.stack(said_by_timm(theirs, stored[224].names))
    assert np.abs(stored[224].logits - expected).max() < 1e-5
    assert (stored[224].logits.argmax(1) == expected.argmax(1)).all()


@pytest.mark.slow
def test_one_state_dict_says_the_same_everywhere(tmp_path, cli, monkeypatch):
    """timm's own model and transform, ours from the same file, a converted copy, and its ONNX: image by image."""
    onnxruntime = pytest.importorskip("onnxruntime")
    # Of two blocks, for the time that it takes; the command knows no arguments of timm's.
    build = timm_build.build
    for module in ("sightline.convert.timm", "sightline.convert.timm_build"):
        monkeypatch.setattr(f"{module}.build", lambda given, **more: build({**given, "depth": 2}, **more))
    # What was built for other tests is remembered by its name, and so would this be.
    monkeypatch.setattr("sightline.convert.timm.built", timm_build._on_meta)
    data = photos(tmp_path / "data", count=3)
    theirs = of_timm()
    files = sorted((tmp_path / "data" / "test").glob("*/*.jpg"))
    with torch.no_grad():
        # No class is answered everywhere.
        theirs.head.bias -= torch.from_numpy(np.stack(said_by_timm(theirs, files))).mean(0)
    torch.save(theirs.state_dict(), tmp_path / "w.pt")
    words = ("--suite", data, "--resolutions", "224", "--precision", "float32", "--logits")
    assert cli("evaluate", f"timm:{SMALL}", "--weights", tmp_path / "w.pt", *words, "--out", tmp_path / "out")[0] == 0
    stored = read_logits(find_logits(tmp_path / "out" / "logits")[0])
    expected = np.stack(said_by_timm(theirs, stored.names))
    # The weights spread: images are told apart, and not all have one answer.
    assert len(set(expected.argmax(1).tolist())) > 1
    assert expected.std(axis=0).min() > 1e-2
    assert np.abs(stored.logits - expected).max() < 1e-4 * np.abs(expected).max()
    assert (stored.logits.argmax(1) == expected.argmax(1)).all()

    # A converted copy: the same rows, but for its name.
    model = import_weights("timm", theirs.state_dict(), {"model": SMALL, "num_classes": 4, "depth": 2})
    save_model(model, tmp_path / "copy")
    assert cli("evaluate", tmp_path / "copy", *words, "--out", tmp_path / "copied")[0] == 0
    named = [
        [dataclasses.replace(row, run="", weights="", seconds=0) for row in read_rows(tmp_path / out / "results.jsonl")]
        for out in ("out", "copied")
    ]
    assert named[0] == named[1]

    # Its ONNX, by the export's own runner: of the same images the same answers, and so the same rows.
    export_model(load_model(tmp_path / "copy"), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    prepare = preprocessing(model)
    own = preparation_class("model").of(model.config)
    pixels = [read_image(file) for file in stored.names]
    shown = [own.cut(one, own.measured(one.shape[:2], (224, 224))) for one in pixels]
    given = np.stack([prepare.normalise(one).numpy() for one in shown])
    (logits,) = session.run(None, {"images": given})
    assert np.abs(logits - stored.logits).max() < 1e-4 * np.abs(expected).max()
    for row, other in zip(rescore(stored), rescore(dataclasses.replace(stored, logits=logits)), strict=True):
        assert (row.metric, row.slices, row.count) == (other.metric, other.slices, other.count)
        exact = row.unit == "fraction"
        assert other.value == (row.value if exact else pytest.approx(row.value, abs=1e-3))
    back, _ = export_weights(model, "timm")
    assert all(torch.equal(back[key], value) for key, value in theirs.state_dict().items())
