"""The page's own files: small, without addresses of others, and such that an exported page can hold them as one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sightline

PAGE = Path(sightline.__file__).parent / "explorer" / "page"
FILES = sorted(PAGE.iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_small_and_asks_nobody_else(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert file.stem not in {"utils", "util", "helpers", "helper", "misc", "common"}
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text.replace("// ", "")), "an outside address"
