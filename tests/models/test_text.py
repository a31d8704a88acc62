"""The text tower: one text, a pack and padded texts are the same, and causality is seen by every form."""

from __future__ import annotations

import pytest
import torch

from sightline import create_model, load_model, save_model
from sightline.attention import use_backend
from sightline.errors import InputError
from sightline.models.contrastive import ContrastiveHead
from sightline.models.text import TextConfig, TextTower
from sightline.models.zero_shot import class_features, zero_shot_classifier
from sightline.tokens.text import TextTokenizer

CAPTIONS = ["a square left of a disc", "a ring above a cross", "a Disc right of a square"]
SMALL = {"vocab_size": 50, "length": 12, "dim": 32, "depth": 2, "heads": 4, "end_id": 49}
TEXTS = [[*range(2, 2 + count), 49] for count in (3, 7, 1, 11, 3)]
POOLS = ("end", "last", "attention")


def tower(**changes) -> TextTower:
    torch.manual_seed(0)
    return TextTower(TextConfig(**{**SMALL, **changes})).eval()


@pytest.mark.parametrize("encoding", ["learned_1d", "none", "rope_axial"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pool", POOLS)
@torch.no_grad()
def test_a_pack_is_its_texts(encoding, causal, pool):
    model = tower(encoding=encoding, causal=causal, pool=pool)
    packed = model(TEXTS)
    torch.testing.assert_close(packed, torch.cat([model([one]) for one in TEXTS]), atol=2e-6, rtol=0)
    padded = torch.tensor([one + [0] * (12 - len(one)) for one in TEXTS])
    torch.testing.assert_close(packed, model(padded), atol=2e-6, rtol=0)
    for form in ("sdpa", "products", "tiles"):
        with use_backend(form):
            torch.testing.assert_close(model(TEXTS), packed, atol=5e-6, rtol=0)


@pytest.mark.parametrize("lengths", [(6,), (6, 6), (4, 6)], ids=str)
def test_a_causal_token_sees_none_behind(lengths):
    """The gradient of what is read at a place by the embedding of each token."""
    model = tower(causal=True, pool="last", end_id=None, encoding="rope_axial")
    seen = []
    model.token_embed.register_forward_hook(lambda *call: seen.append(call[2].detach().requires_grad_()) or seen[-1])
    model.norm.register_forward_hook(lambda *call: seen.append(call[2]))
    texts = [[*range(1, 1 + one)] for one in lengths]
    model(texts)
    (grads,) = torch.autograd.grad(seen[1][0, 2].sum(), seen[0])
    reached = grads.flatten(0, -2).abs().sum(-1) > 0
    assert reached.tolist() == [True] * 3 + [False] * (len(reached) - 3)


def test_gradients_of_forms_agree():
    found = []
    for form in ("sdpa", "products"):
        model = tower(causal=True)
        with use_backend(form):
            model(TEXTS).square().sum().backward()
        found.append([one.grad for one in model.parameters() if one.grad is not None])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_filled_texts_read_their_padding():
    filled, cut = tower(fill=True, pool="last", pad_id=1), tower(pool="last", pad_id=1)
    assert (filled(TEXTS) - cut(TEXTS)).abs().max() > 1e-2
    whole = [one + [1] * (12 - len(one)) for one in TEXTS]
    assert torch.equal(filled(TEXTS), filled(torch.tensor(whole)))


@pytest.mark.parametrize("encoding", ["lookhere", "alibi_2d", "sincos_2d", "rpe_learned", "rope_mixed"])
def test_encodings_of_two_axes_are_refused(encoding):
    with pytest.raises(InputError):
        tower(encoding=encoding)


@pytest.mark.parametrize(
    "changes",
    [{"pad_id": 50}, {"end_id": None}, {"heads": 5}, {"vocab_size": 0}, {"tokenizer": "{}"}, {"pool": "cls"}],
    ids=str,
)
def test_refused_fields(changes):
    with pytest.raises(InputError):
        tower(**changes)


@pytest.mark.parametrize("texts", [[[50]], [[]], [[1] * 13], ["a disc"], "a disc", torch.ones(2, 3)], ids=str)
def test_refused_texts(texts):
    with pytest.raises(InputError):
        tower()(texts)


def test_a_text_that_is_too_long_keeps_its_end():
    made = TextTokenizer.learn(CAPTIONS, vocab_size=300)
    model = tower(vocab_size=made.vocab_size, length=5, end_id=1, tokenizer=made.content, lower_case=True)
    ids, short = model.tokenize([" ".join(CAPTIONS), "a disc"])
    assert len(ids) == 5
    assert ids[-1] == short[-1] == 1
    assert model.tokenize(["A DISC"]) == [short]
    assert TextTokenizer.learn(CAPTIONS, vocab_size=300).content == made.content


def pair(**changes):
    made = TextTokenizer.learn(CAPTIONS, vocab_size=300)
    text = {**SMALL, "vocab_size": made.vocab_size, "end_id": 1, "tokenizer": made.content, "lower_case": True}
    options = {"embed_dim": 16, "text": text, **changes}
    torch.manual_seed(0)
    return create_model(
        "vit_micro_patch4", depth=1, dim=48, num_classes=0, encoding="lookhere", head="contrastive",
        head_options=options, pool="mean",
    ).eval()  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"loss": "sigmoid", "image_proj": False, "embed_dim": 48}], ids=str)
@torch.no_grad()
def test_a_classifier_of_words(changes, tmp_path):
    model, images = pair(**changes), [torch.randn(3, 32, 32), torch.randn(3, 24, 40)]
    save_model(model, tmp_path / "pair")
    assert (tmp_path / "pair" / "tokenizer.json").is_file()
    model = load_model(tmp_path / "pair")
    assert isinstance(model.head, ContrastiveHead)
    names, templates = ["disc", "ring"], ["a {}", "one {} here"]
    features = class_features(model, names, templates)
    words = model.encode_text(["a disc", "one disc here"]).mean(0)
    torch.testing.assert_close(features[0], words / words.norm())
    made = zero_shot_classifier(model, names, templates)
    torch.testing.assert_close(made(images), model.head.logits(model(images), features), atol=1e-5, rtol=1e-5)
    assert made.config.score_link == changes.get("loss", "softmax")
    save_model(made, tmp_path / "words")
    again = load_model(tmp_path / "words")
    assert again.config.class_names == ("disc", "ring")
    assert torch.equal(again(images), made(images))
    for bad in ([], ["disc", "disc"]):
        with pytest.raises(InputError):
            zero_shot_classifier(model, bad)
    with pytest.raises(InputError):
        zero_shot_classifier(model, names, ["no place"])
    with pytest.raises(InputError):
        class_features(made, names)
