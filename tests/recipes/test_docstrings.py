"""Each recipe says its command, what it takes and what it gives."""

from __future__ import annotations

import inspect
import re

import pytest

from sightline.recipes import _RECIPES, list_recipes


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_states_command_cost_and_what_to_expect(name):
    said = inspect.getdoc(_RECIPES[name][1]) or ""
    assert re.search(r"`sightline (train|demo)[^`]*`", said)
    assert re.search(r"minute|hour|day|time|operations|patches an image", said)
    assert re.search(r"top-1|mIoU|AP|accuracy|loss|error", said)
