"""No file of a family is passed over without a word, whatever it is called."""

from __future__ import annotations

import pytest
from safetensors import safe_open

from tests.parity.family_files import GIVEN, KINDS, _kind, files, said_of, unclaimed
from tests.parity.golden_files import FOLDER

# No model of ours has the windows and decomposed relative positions of ViTDet's trunk.
_NOT_OURS = "detectron2.modeling.backbone.vit.ViT"


@pytest.mark.skipif(GIVEN is not None, reason="another folder need not hold all kinds")
@pytest.mark.parametrize("kind", KINDS)
def test_there_are_files(kind: str) -> None:
    assert files(kind)


def test_every_file_is_tried() -> None:
    """But those of the classes that `golden_files` has."""
    known = {_NOT_OURS}
    for path in FOLDER.glob("*.safetensors"):
        with safe_open(path, "pt") as opened:
            known.add(opened.metadata()["cls"])
    assert [file for file in unclaimed() if said_of(file).get("cls") not in known] == []


@pytest.mark.parametrize(
    ("cls", "names", "kind"),
    [
        ("timm.create_model('vit_base_r50_s16_224') (timm/models/vision_transformer_hybrid.py)", (), "hybrid"),
        ("timm.create_model('swin_s3_tiny_224')", (), "swin"),
        ("timm.create_model('vit_tiny_patch16_224') and set_input_size(img_size, patch_size)", (), "flexi_timm"),
        ("definition", ("out.mean.labels",), "mpp_paper"),
        ("definition", ("index.offset",), "relative1d_paper"),
        ("definition", (), None),
        ("timm.create_model('vit_tiny_patch16_224')", (), None),
    ],
)
def test_kinds_are_told_by_what_was_run(cls: str, names: tuple[str, ...], kind: str | None) -> None:
    assert _kind({"cls": cls}, set(names)) == kind
