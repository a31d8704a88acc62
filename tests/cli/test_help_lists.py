"""What `--help` lists is all that there is."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from sightline.convert import list_projects
from sightline.data.open import list_sources
from sightline.recipes import list_recipes


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("convert", list_projects()),
        ("train", [*list_recipes(), *list_sources(), "classification", "segmentation", "detection", "masked_patches"]),
    ],
)
def test_help_names_all_that_may_be_given(cli, command: str, listed: Iterable[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    code, out, _ = cli(command, "--help")
    words = set(re.findall(r"[a-z0-9_-]+", out))
    assert code == 0
    assert [name for name in listed if name not in words] == []
