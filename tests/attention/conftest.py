"""What several tests of attention are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sightline.attention import visible_blocks


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of 3 x 3 queries, and keys by the cell: many rectangles on small grids too."""
    visible_blocks._cover_head.cache_clear()
    for name, value in {"_TILE": 3, "_ROW_STEP": 2, "_COLUMN_STEP": 1}.items():
        monkeypatch.setattr(visible_blocks, name, value)
    yield
    visible_blocks._cover_head.cache_clear()
