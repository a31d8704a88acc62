"""Classifiers and detectors that are made of words (Radford et al. 2021, section 3.1; Minderer et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import InputError
from sightline.models.contrastive import ContrastiveHead
from sightline.models.create import make_model
from sightline.models.init import skip_init
from sightline.models.model import Model, eval_mode

TEMPLATES = ("a photo of a {}.",)
_TEXTS_AT_ONCE = 512


def zero_shot_model(model: Model, names: Sequence[str], templates: Sequence[str] = TEMPLATES) -> Model:
    """`zero_shot_detector` of a model that finds objects, `zero_shot_classifier` of any other."""
    make = zero_shot_detector if model.config.head == "owlvit" else zero_shot_classifier
    return make(model, names, templates)


def split_labels(given: Sequence[str]) -> list[str]:
    """The labels in texts such as "a dog, a cat", each once."""
    words = (label.strip() for one in given for label in one.split(","))
    return list(dict.fromkeys(filter(None, words)))


@torch.no_grad()
def class_features(model: Model, names: Sequence[str], templates: Sequence[str] = TEMPLATES) -> Tensor:
    """A unit vector for each class: the mean of those of its name in all templates, normalised again.

    Args:
        model: with a text tower.
        names: of classes; templates: texts with `{}` in the place of the name.

    Returns:
        [classes, embed_dim], float32 at least.

    Raises:
        InputError: there is no name or no template, one has no `{}`, or the model reads no texts.
    """
    if not names or not templates:
        raise InputError(f"zero-shot: {'names of classes' if templates else 'templates'} are missing")
    if bad := next((one for one in templates if "{}" not in one), None):
        raise InputError(f"template {bad!r}: expected {{}} where the name stands, as {TEMPLATES[0]!r}")
    texts = [template.replace("{}", name) for name in names for template in templates]
    with eval_mode(model):
        parts = [
            model.encode_text(texts[first : first + _TEXTS_AT_ONCE]) for first in range(0, len(texts), _TEXTS_AT_ONCE)
        ]
    return F.normalize(torch.cat(parts).unflatten(0, (len(names), len(templates))).mean(dim=1), dim=-1)


@torch.no_grad()
def zero_shot_classifier(model: Model, names: Sequence[str], templates: Sequence[str] = TEMPLATES) -> Model:
    """A classifier of words, from a model with a text tower: an ordinary model, which every command takes.

    Its logits are those of the image with the mean of each class's texts. The texts are encoded once, here.

    Args:
        model: with a text tower; it stays as it is.
        names, templates: as `class_features`; where two names are equal, the classifier has no class names.

    Raises:
        InputError: as `class_features`.
    """
    head, features = model.head, class_features(model, names, templates)
    if not isinstance(head, ContrastiveHead):
        raise InputError(f"head {model.config.head}: expected a model with head contrastive")
    sigmoid = head.logit_bias is not None
    config = model.config.replace(
        head="cosine", head_options={}, head_hidden=head.options.embed_dim if head.options.image_proj else None,
        head_bias=None if sigmoid else False, num_classes=len(names), class_names=_different(names),
        task="classification", score_link=head.options.loss,
    )  # fmt: skip
    with skip_init():
        made = make_model(config)
    state = {name: one for name, one in model.state_dict().items() if not name.startswith("head.")}
    state["head.fc2.weight"] = head.scale() * features
    if head.logit_bias is not None:
        state["head.fc2.bias"] = head.logit_bias.detach().expand(len(names))
    if head.options.image_proj:
        state["head.proj.weight"] = head.image_proj.weight
    made.load_state_dict(state)
    return made.to(model.anchor.device, model.anchor.dtype).eval()


@torch.no_grad()
def zero_shot_detector(model: Model, names: Sequence[str], templates: Sequence[str] = TEMPLATES) -> Model:
    """A detector of words, from a model whose `owlvit` head has a text tower: an ordinary one, whose queries are the
    mean vectors of the names.

    Args:
        model, names, templates: as `zero_shot_classifier`.

    Raises:
        InputError: as `class_features`.
    """
    queries = class_features(model, names, templates)
    options = {name: one for name, one in model.config.head_options.items() if name != "text"}
    config = model.config.replace(num_classes=len(names), class_names=_different(names), head_options=options)
    with skip_init():
        made = make_model(config)
    texts = ("head.text.", "head.text_proj.")
    made.load_state_dict(
        {name: one for name, one in model.state_dict().items() if not name.startswith(texts)}
        | {"head.queries": queries}
    )
    return made.to(model.anchor.device, model.anchor.dtype).eval()


def _different(names: Sequence[str]) -> tuple[str, ...] | None:
    return tuple(names) if len(set(names)) == len(names) else None
