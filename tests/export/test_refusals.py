"""What cannot be exported is refused in one line before any work, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.errors import InputError, StorageError
from sightline.export import check_export, check_exportable, check_sizes, export_model
from tests.export.models import UNSEEN, small


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ((4, 32), "1x8 patches.*nearest: 8x32"),
        ((32, 4), "8x1 patches.*nearest: 32x8"),
        ((17, 32), "multiples of the patch size 4.*nearest: 16x32"),
        ((32, 18), "multiples of the patch size 4.*nearest: 32x16"),
        ((3, 31), "multiples of the patch size 4.*nearest: 8x32"),
    ],
)
@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
def test_sizes_that_are_not_promised_are_refused(size, says, fit, no_work, tmp_path, onnx_file):
    model = small(fit=fit)
    for refused in (
        lambda: export_model(model, tmp_path / "a.onnx", example_size=size),
        lambda: check_export(onnx_file, model, [UNSEEN[0], size]),
        lambda: check_sizes(model, [size]),
    ):
        with pytest.raises(InputError, match=f"size {size[0]}x{size[1]}: .*{says}"):
            refused()
    assert not list(tmp_path.iterdir())


def test_a_model_too_large_for_one_onnx_file_is_refused():
    with torch.device("meta"):
        large = torch.nn.Linear(2**15, 2**14)
    model = small()
    model.head = large
    with pytest.raises(InputError, match=r"2\.0 GiB of weights"):
        check_exportable(model, "onnx")
    check_exportable(model, "torch")
    with pytest.raises(InputError, match="expected a VisionTransformer, got Linear"):
        check_exportable(large, "torch")


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_alone(broken, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    file = tmp_path / "a.pt2"
    file.write_bytes(b"old")
    monkeypatch.setattr(*{"fsync": ("os.fsync", full), "replace": (Path, "replace", full)}[broken])
    with pytest.raises(StorageError, match=r"a.pt2: cannot be written \(No space left"):
        export_model(small("none"), file, to="torch")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.pt2", b"old")]
