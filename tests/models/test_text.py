"""The text tower: one text, a pack and padded texts are the same, and causality is seen by every form."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sightline import create_model, load_model, save_model
from sightline.attention import use_backend
from sightline.convert import export_weights, import_weights
from sightline.errors import InputError
from sightline.models.contrastive import ContrastiveHead
from sightline.models.text import TextConfig, TextTower, tokenize
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
    """The gradient of one value at a place by the embedding of each token; a norm's sum of values has none."""
    model = tower(causal=True, pool="last", end_id=None, encoding="rope_axial")
    seen = []
    model.token_embed.register_forward_hook(lambda *call: seen.append(call[2].detach().requires_grad_()) or seen[-1])
    model.norm.register_forward_hook(lambda *call: seen.append(call[2]))
    texts = [[*range(1, 1 + one)] for one in lengths]
    model(texts)
    (grads,) = torch.autograd.grad(seen[1][0, 2, 0], seen[0])
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
    filled, cut = tower(pad_to_length=True, pool="last", pad_id=1), tower(pool="last", pad_id=1)
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
    ids, short = tokenize([" ".join(CAPTIONS), "a disc"], model.config)
    assert len(ids) == 5
    assert ids[-1] == short[-1] == 1
    assert tokenize(["A DISC"], model.config) == [short]
    assert TextTokenizer.learn(CAPTIONS, vocab_size=300).content == made.content
    # Also where no token ends a text for the model, as in SigLIP.
    open_ended = dataclasses.replace(model.config, end_id=None, pool="last", pad_to_length=True)
    assert tokenize([" ".join(CAPTIONS)], open_ended) == [ids]


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
    for bad, sentences in (([], templates), (names, ["no place"])):
        with pytest.raises(InputError):
            zero_shot_classifier(model, bad, sentences)
    with pytest.raises(InputError):
        class_features(made, names)


CLIP = {
    "qk_norm": False, "norm_eps": 1e-5, "gelu": "quick", "causal": True, "pool": "end", "lower_case": True,
}  # fmt: skip


def plain_pair(project, **text):
    """A model that a CLIP of this project can hold, but for `text`."""
    torch.manual_seed(0)
    fields = {**SMALL, **CLIP, **text}
    there = {"hf": "bicubic", "oc": "bicubic_antialias"}[project]
    return create_model(
        "vit_micro_patch4", depth=1, dim=48, num_classes=0, head="contrastive", encoding="learned_1d",
        encoding_options={"interpolation": there}, norm_pre=True, patch_bias=False, norm_eps=1e-5, gelu="quick",
        head_options={"embed_dim": 16, "text": fields},
    ).eval()  # fmt: skip


@pytest.mark.parametrize(("name", "project"), [("hf", "transformers"), ("oc", "open_clip")])
@torch.no_grad()
def test_a_text_tower_goes_there_or_is_refused(name, project):
    model = plain_pair(name)
    state, given = export_weights(model, project)
    again = import_weights(project, state, {"model_type": "clip", **given} if name == "hf" else given)
    assert torch.equal(again.encode_text(TEXTS), model.encode_text(TEXTS))
    for wrong in ({"causal": False}, {"pool": "last"}, {"qk_norm": True}, {"encoding": "none"}, {"end_id": 7}):
        # Each holds one that the other does not.
        if ("end_id" in wrong) == (name == "hf") and ("causal" in wrong or "end_id" in wrong):
            continue
        with pytest.raises(InputError, match="cannot hold"):
            export_weights(plain_pair(name, **wrong), project)


@torch.no_grad()
def test_names_that_are_equal():
    made = zero_shot_classifier(pair(), ["disc", "ring", "disc"])
    assert made.config.class_names is None
    assert made(torch.randn(1, 3, 32, 32)).shape == (1, 3)


def test_a_detector_of_words_learns_no_texts():
    """Fine-tuned from a contrastive model, the queries are the vectors of the names."""
    start = pair()
    options = {"head": "owlvit", "task": "detection", "num_classes": 2, "class_names": ("disc", "ring")}
    made = create_model(init_from=start, **options)
    with torch.no_grad():
        torch.testing.assert_close(made.head.queries, start.encode_text(["disc", "ring"]))
        assert torch.equal(made.encode_text(["a cross"]), start.encode_text(["a cross"]))
    learnt = {name for name, one in made.named_parameters() if one.requires_grad and name.startswith("head.")}
    assert learnt
    assert not any(name.startswith(("head.text", "head.queries")) for name in learnt)
    assert not any(name.startswith(("head.text", "head.queries")) for name in made.reinitialized)
    torch.nn.init.normal_(made.head.class_head.dense0.weight)
    other = create_model(init_from=made, num_classes=1, class_names=("square",))
    with torch.no_grad():
        torch.testing.assert_close(other.head.queries, start.encode_text(["square"]))
    assert torch.equal(other.head.class_head.dense0.weight, made.head.class_head.dense0.weight)
