"""Settings of `--set`: where they are put, and what is refused."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.runs.settings import apply_settings


def test_settings_are_put_in_and_the_mapping_is_left_alone():
    mapping = {"optimizer": {"lr": 1, "loss": "ce"}}
    merged = apply_settings(mapping, ["optimizer.lr=1e-3", "ema.lr=2", "resolutions=[20, 32]", "name=a=b", "epochs="])
    assert merged == {
        "optimizer": {"lr": 1e-3, "loss": "ce"},
        "ema": {"lr": 2},
        "resolutions": [20, 32],
        "name": "a=b",
        "epochs": None,
    }
    assert mapping == {"optimizer": {"lr": 1, "loss": "ce"}}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["lr"], ["--set lr", "expected key=value"]),
        (["=3"], ["expected key=value"]),
        (["a..b=3"], ["expected key=value"]),
        (["a=1", "a=2"], ["a is set twice"]),
        (["a.b=1", "a={}"], ["a.b is set as well"]),
        (["a={}", "a.b=1"], ["a is set as well"]),
        (["name.x=1"], ['name is "n", not a group of keys']),
        (["a=[1"], ["--set a=[1", "not valid YAML"]),
        (["a=*b"], ["aliases"]),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(InputError) as error:
        apply_settings({"name": "n"}, settings)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
