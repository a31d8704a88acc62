"""`open_clip:NAME/TAG` with a package that stands for open_clip_torch; the real one is compared by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sightline import load_model
from sightline.convert import export_weights
from sightline.errors import InputError
from sightline.models.text import tokenize
from tests.models.test_text import plain_pair

LETTERS = ["a", "d", "g", "o", "!"]
WORDS = [*LETTERS, *(f"{one}</w>" for one in LETTERS), "do", "dog</w>", "<start_of_text>", "<end_of_text>"]


class QuickGELU(nn.Module):
    pass


class Theirs(nn.Module):
    """A model by its state alone."""

    def __init__(self, state):
        super().__init__()
        self.act, self.state = QuickGELU(), state

    def state_dict(self):
        return self.state


@pytest.fixture
def package(monkeypatch):
    model = plain_pair("oc", vocab_size=len(WORDS), end_id=len(WORDS) - 1)
    state, given = export_weights(model, "open_clip")
    config = {key: value for key, value in given.items() if key not in ("preprocess_cfg", "tokenizer", "quick_gelu")}
    tokenizer = SimpleNamespace(
        encoder={word: number for number, word in enumerate(WORDS)},
        bpe_ranks={("d", "o"): 0, ("do", "g</w>"): 1},
        sot_token_id=len(WORDS) - 2,
        eot_token_id=len(WORDS) - 1,
    )
    found = SimpleNamespace(
        list_models=lambda: ["ViT-X"],
        list_pretrained_tags_by_model=lambda name: ["ours"],
        create_model=lambda name, pretrained: Theirs(state),
        get_tokenizer=lambda name: tokenizer,
        get_model_config=lambda name: config,
        get_model_preprocess_cfg=lambda model: {"mean": (0.1, 0.2, 0.3), "std": (0.5,) * 3, "size": 32, "mode": "RGB"},
    )
    monkeypatch.setitem(sys.modules, "open_clip", found)
    return model


@torch.no_grad()
def test_a_model_of_the_package(package):
    model = load_model("open_clip:ViT-X/ours")
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), package(images))
    assert model.config.mean == (0.1, 0.2, 0.3)
    number = WORDS.index
    start, end = number("<start_of_text>"), number("<end_of_text>")
    said = [start, number("a</w>"), number("dog</w>"), number("g"), number("o</w>"), number("!</w>"), end]
    assert tokenize(["A  dog\ngo!"], model.head.options.text) == [said]


@pytest.mark.parametrize("name", ["ViT-Y", "ViT-X/other"])
def test_unknown_names(package, name):
    with pytest.raises(InputError):
        load_model(f"open_clip:{name}")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError):
        load_model("open_clip:ViT-B-32/openai")
