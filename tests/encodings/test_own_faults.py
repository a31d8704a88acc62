"""An encoding of one's own that is not known, has no hook, or gives another shape: one line says so."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from sightline import load_model, save_model
from sightline.encodings import create_encoding, discovery
from sightline.encodings.base import AddedEncoding
from sightline.errors import InputError
from sightline.models import create_model

SHAPE = {"depth": 2, "heads": 3, "dim": 48, "train_grid": (4, 4)}
TINY = {"num_classes": 2, "image_size": 16, "depth": 1, "dim": 48, "heads": 4}


def test_a_model_whose_encoding_is_not_here_names_plugins(tmp_path, monkeypatch) -> None:
    class Wave(AddedEncoding):
        names: ClassVar[dict[str, dict[str, object]]] = {"wave": {}}

        def embedding_on(self, grid, device):
            return torch.zeros(16, 48, device=device)

    with monkeypatch.context() as there:
        there.setitem(discovery.registry(), "wave", Wave)
        save_model(create_model("vit_micro_patch4", encoding="wave", **TINY), tmp_path / "model")
    with pytest.raises(InputError) as raised:
        load_model(tmp_path / "model")
    said = str(raised.value)
    assert all(word in said for word in ("config.json", "wave", "--plugins DIR", "add_encodings"))
    assert "\n" not in said


def test_a_hook_that_is_not_written_is_asked_for(monkeypatch) -> None:
    class Misspelt(AddedEncoding):
        names: ClassVar[dict[str, dict[str, object]]] = {"misspelt": {}}

        def embeding_on(self, grid, device):
            return torch.zeros(16, 48)

    monkeypatch.setitem(discovery.registry(), "misspelt", Misspelt)
    with pytest.raises(InputError) as raised:
        create_encoding("misspelt", **SHAPE)
    assert "Misspelt" in str(raised.value)
    assert "embedding_on" in str(raised.value)


@pytest.mark.parametrize("given", [torch.zeros(4, 4, 48), torch.zeros(16, 47), torch.zeros(15, 48), None])
def test_an_embedding_of_another_shape_is_refused(given: Any, monkeypatch) -> None:
    class Wrong(AddedEncoding):
        names: ClassVar[dict[str, dict[str, object]]] = {"wrong": {}}

        def embedding_on(self, grid, device):
            return given

    monkeypatch.setitem(discovery.registry(), "wrong", Wrong)
    model = create_model("vit_micro_patch4", encoding="wrong", **TINY)
    with pytest.raises(InputError) as raised:
        model(torch.zeros(1, 3, 16, 16))
    assert "Wrong" in str(raised.value)
    assert "[16, 48]" in str(raised.value)
    assert "\n" not in str(raised.value)
