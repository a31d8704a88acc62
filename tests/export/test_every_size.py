"""One program serves every size: no branch of ours on a size becomes a bound of it."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from sightline.encodings.discovery import registry
from sightline.errors import InputError, SightlineError
from sightline.export import LIMIT, check_export, export_model
from tests.contract.contract import SPREAD, build
from tests.export.models import BEIT, session, small

# Pixels. Around 241 tokens of 12 heads a bias is kept between calls or is not, around 800 a back end takes over, and
# around 1,000 a bias is made for some heads at a time.
SIZES = [(64, 48), (240, 240), (256, 256), (336, 160), (512, 512), (32, 1024), (1024, 32)]
# A program of a sum holds the operations of both parts, and each class stands in one of them.
SUMS = ["factorized+rope_axial", "fourier+rope_mixed", "learned_1d+irpe", "learned_2d+relative_1d",
        "sincos_2d+lookhere_180", "lookhere_90+alibi_2d"]  # fmt: skip
QUICK = ["lookhere_90+alibi_2d"]
# One of each way into attention at all sizes, the others at three of up to 256 tokens; and layers with own tables.
WIDE = [*QUICK, "none", "fourier+rope_mixed", "rpe_learned", "lookhere_90"]
NAMES = list(dict.fromkeys([*SUMS, *WIDE, "learned_1d_every"]))
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


def twelve_heads(encoding, pool="mean", **options):
    return build(encoding, pool, **{"dim": 48, "depth": 1, "patch_size": 16, "image_size": (96, 128), **options})


def assert_equal_at(sizes, file, model):
    for row in check_export(file, model, sizes, batches=(1,)):
        # Of heads whose random weights make large numbers, as parts of them.
        assert row.difference < LIMIT * max(row.spread, 1), row
        assert row.spread > SPREAD / 2, row


def assert_runs_at_every_size(file):
    """By shapes alone: every size from 2 x 2 to 64 x 64 patches within the bounds of the program."""
    program = torch.export.load(file).module()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        for rows, cols in [(2, 2), (2, 64), (64, 2), (64, 64), (3, 5), (7, 34), (15, 16), (31, 33), (41, 50)]:
            assert program(torch.empty(3, 3, 16 * rows, 16 * cols)) is not None


def test_every_class_is_exported():
    assert {registry()[part] for name in NAMES for part in name.split("+")} == set(registry().values())


@pytest.mark.parametrize("encoding", CASES)
def test_a_pt2_file_runs_at_every_size(encoding, exported):
    model = twelve_heads(encoding)
    file = exported(model, "torch")
    assert_runs_at_every_size(file)
    assert_equal_at(SIZES if encoding in WIDE else SIZES[1:4], file, model)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [*SUMS, "none"])
def test_an_onnx_file_runs_at_every_size(encoding, exported):
    model = twelve_heads(encoding)
    assert_equal_at(SIZES if encoding in WIDE else SIZES[1:4], exported(model), model)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["upernet", "simple_pyramid"])
def test_heads_of_halved_maps_have_every_size_from_four_patches(head, exported):
    model = twelve_heads("none", depth=4, head=head, task="segmentation" if head == "upernet" else "detection")
    file = exported(model, "torch")
    assert_equal_at([(64, 64), (80, 112), (256, 96), (512, 512)], file, model)
    with pytest.raises(SightlineError, match="does not run at 32x48"):
        check_export(file, model, [(32, 48)])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", BEIT)
def test_beits_table_is_exported_to_onnx_at_its_own_size(encoding, tmp_path):
    """There no progression is needed."""
    model = small(encoding)
    record = export_model(model, tmp_path / "a.onnx")
    assert (record.every_size, record.example_size) == (False, (24, 32))
    assert session(tmp_path / "a.onnx").get_inputs()[0].shape == ["batch", 3, 24, 32]
    (row,) = check_export(tmp_path / "a.onnx", model)
    assert (row.size, row.images) == ((24, 32), 4)
    assert row.difference < LIMIT
    assert row.spread > SPREAD
    with pytest.raises(InputError, match="size 32x32"):
        check_export(tmp_path / "a.onnx", model, [(32, 32)])
