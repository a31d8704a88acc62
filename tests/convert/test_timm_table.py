"""The table in docs/how-to/weights.md is what the converter says of timm's names."""

from __future__ import annotations

import pytest
from tools.timm_table import BEGIN, END, PAGE, reason

SAMPLE = [
    "vit_tiny_patch16_224", "vit_small_patch16_dinov3", "beit_base_patch16_224", "deit3_small_patch16_224",
    "naflexvit_base_patch16_gap", "vit_pe_core_tiny_patch16_384", "deit_tiny_distilled_patch16_224",
    "vit_dwee_patch16_reg1_gap_256", "aimv2_large_patch14_224", "naflexvit_base_patch16_siglip", "xcit_nano_12_p8_224",
    "vit_relpos_small_patch16_224", "swin_tiny_patch4_window7_224",
]  # fmt: skip


def section() -> str:
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_name_stands_where_it_belongs(name: str) -> None:
    lines = [line for line in section().splitlines() if name in line.replace(",", " ").replace("|", " ").split()]
    assert len(lines) == 1
    why = reason(name)
    assert lines[0].startswith("- `" if why is None else f"| {why} | ")
