"""NaViT: every position embedding of the paper's table 3, and its trunk, packed and alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.encodings import create_encoding
from tests.contract.packed import check_packed_with_drops

# Row of table 3 -> the encoding and its options; then what the text has beside the table (section 2.1, appendix C).
TABLE_3: dict[str, tuple[str, dict[str, Any]]] = {
    "Learned 1D (ViT)": ("learned_1d", {}),
    "Learned 2D (Pix2struct)": ("learned_2d", {"max_side": 9}),
    "Factorized abs. (+)": ("factorized", {"max_side": 9}),
    "Factorized abs. (stack)": ("factorized", {"combine": "stack"}),
    "Factorized abs. (x)": ("factorized", {"combine": "product"}),
    "Fourier abs.": ("fourier", {"mlp": False}),
    "Sinusoidal abs.": ("factorized", {"table": "sinusoidal", "combine": "stack"}),
    "Factorized frac. (+)": ("factorized_fractional", {}),
    "Fourier frac.": ("fourier_fractional", {"mlp": False}),
    "Sinusoidal frac.": ("factorized_fractional", {"table": "sinusoidal", "combine": "stack"}),
}
EVERY_FACTOR = {
    f"{table} {coordinates} {combine}": ("factorized", {"table": table, "coordinates": coordinates, "combine": combine})
    for table in ("learned", "sinusoidal", "fourier")
    for coordinates in ("absolute", "fractional")
    for combine in ("sum", "stack", "product")
}
NAVIT: dict[str, Any] = {
    "pool": "attention", "qk_norm": True, "norm": "rms", "qkv_bias": False, "block_bias": "mlp", "patch_bias": False,
}  # fmt: skip


@pytest.mark.parametrize("row", [*TABLE_3, *EVERY_FACTOR])
def test_packed_with_drops(row: str) -> None:
    name, options = {**TABLE_3, **EVERY_FACTOR}[row]
    check_packed_with_drops(name, **NAVIT, encoding_options=options)


def test_sinusoids_of_fractions_are_read_from_the_absolute_ones() -> None:
    """Appendix C: "obtained from absolute coordinate embeddings via bilinear interpolation"."""
    parts: dict[str, Any] = {"depth": 1, "heads": 3, "dim": 12, "train_grid": (4, 6), "table": "sinusoidal"}
    absolute = create_encoding("factorized", **parts, combine="stack").embedding((4, 6)).view(4, 6, 12)
    found = create_encoding("factorized_fractional", **parts, combine="stack").embedding((8, 4)).view(8, 4, 12)
    # Row 5 of 8 is row 2.5 of 4, column 3 of 4 is column 4.5 of 6.
    assert torch.allclose(found[5, 3, :6], (absolute[2, 0, :6] + absolute[3, 0, :6]) / 2, atol=1e-6)
    assert torch.allclose(found[5, 3, 6:], (absolute[0, 4, 6:] + absolute[0, 5, 6:]) / 2, atol=1e-6)


@pytest.mark.parametrize("coordinates", ["absolute", "fractional"])
@pytest.mark.parametrize("max_side", [None, 10])
def test_fourier_features_of_one_axis(coordinates: str, max_side: int | None) -> None:
    """Each coordinate through a linear layer of its own, the sines and then the cosines of what comes."""
    encoding: Any = create_encoding(
        "factorized", depth=1, heads=3, dim=12, train_grid=(4, 6), table="fourier", combine="stack",
        coordinates=coordinates, max_side=max_side,
    )  # fmt: skip
    assert encoding.rows.shape == encoding.cols.shape == (3,)
    found = encoding.embedding((3, 7)).view(3, 7, 12)
    sides = (3, 7) if coordinates == "fractional" else (max_side or 4, max_side or 6)
    tables = (encoding.rows, encoding.cols)
    phases = [place / side * table for place, side, table in zip((2, 5), sides, tables, strict=True)]
    expected = torch.cat([wave for phase in phases for wave in (phase.sin(), phase.cos())])
    assert torch.allclose(found[2, 5], expected, atol=1e-5)
    assert create_encoding(
        "factorized", depth=1, heads=3, dim=1200, train_grid=(4, 6), table="fourier", scale=40.0
    ).rows.std() > 30  # fmt: skip
