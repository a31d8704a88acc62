"""From tokens, or from a pooled vector, to what a task asks for."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline import registry
from sightline.errors import InputError, require_known
from sightline.io.config import build_config, config_dataclass
from sightline.tokens.layout import TokenLayout

if TYPE_CHECKING:
    from sightline.models.config import ViTConfig

CLASSIFIERS = ("linear", "mlp", "distilled", "cosine")
POOLED_HEADS = (*CLASSIFIERS, "contrastive")
"""Heads of the pooled vector; all others take all tokens."""
ScoreLink = Literal["softmax", "sigmoid"]


@config_dataclass
class NoOptions:
    """Of a head that has none."""


class TokenHead(nn.Module):
    """A task's own head on all tokens, in place of pooling and classifier; one in a file of `models/heads/`, or of a
    plug-in.

    A model has it by `create_model(..., head=name, head_options={...})` or `model.reset_head(name, **options)`; its
    name and options stand in `config.json`, and `load_model` finds the class again by its name.

    Attributes:
        name: as `create_model(head=)` and `config.json` say it.
        Options: a `config_dataclass` of `head_options`; options: this one's.
        supports_token_dropping: it says something of the patches that are there where others were dropped.
        export_refusal: why a model with it is not exported, in words; "" where it is.
        values: how many outputs a patch has, where they bound how many images are measured at once; else 0.
        axes: of the grids that it is for; None for any number.
        done: how much of its training lies behind it, 0 to 1, as the loop says before each step.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    supports_token_dropping: ClassVar[bool] = True
    export_refusal: ClassVar[str] = ""
    axes: ClassVar[int | None] = 2
    values: int = 0
    done: float = 0.0

    def __init__(self, config: ViTConfig) -> None:
        """Args: config: of the model: `dim`, `num_classes`, `patch_size`, `head_options`, ..."""
        super().__init__()
        self.options: Any = build_config(self.Options, config.head_options, f"head {self.name}")

    def predict(self, model: Any, rows: Tensor, layout: TokenLayout) -> Any:
        """The task's outputs of a model's flat rows: of its normed tokens, unless a head asks the model for others."""
        return self(model.encode(rows, layout), model.encoded_layout(layout))

    @abstractmethod
    def forward(self, tokens: Tensor, layout: TokenLayout) -> Any:
        """Normed tokens [rows, slots, dim], prefix and padding slots among them -> the task's outputs.

        `patch_tokens` gives the patches of each image in row-major order, whatever the layout.
        """


def patch_tokens(tokens: Tensor, layout: TokenLayout) -> list[Tensor]:
    """The patches [rows, patches, dim] of each segment in row-major order, without prefix tokens and padding."""
    first = layout.num_prefix_tokens
    return [image[:, first:] for image in layout.split(layout.to_row_major(tokens))]


class TanhMlpHead(nn.Module):
    """Linear, tanh, linear: ViT's head while pre-training (section 3.1), and LookHere's."""

    def __init__(self, dim: int, hidden: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        # As a linear layer says it, which timm's checks read.
        self.in_features, self.out_features = dim, num_classes
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, num_classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(x).tanh())


class DistilledHead(nn.Module):
    """The mean of a layer on the CLS token and one on the distillation token (DeiT, section 4)."""

    def __init__(self, dim: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = 2 * dim, num_classes
        self.cls = nn.Linear(dim, num_classes, bias=bias)
        self.distillation = nn.Linear(dim, num_classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return (self.cls(first) + self.distillation(second)) / 2


def head_class(name: str) -> type[TokenHead]:
    """The head of all tokens of that name.

    Raises:
        InputError: there is none, and no classifier is called so; names those that there are.
    """
    found = head_classes()
    require_known("head", name, (*POOLED_HEADS, *found))
    if name not in found:
        raise InputError(f"head {name}: is of the pooled vector (expected a head of all tokens: {', '.join(found)})")
    return found[name]


def head_classes(kind: type[TokenHead] = TokenHead) -> dict[str, Any]:
    """The heads of all tokens, or those of a kind, by their names."""
    return registry.classes(kind, "sightline.models.heads")


def head_settings(config: ViTConfig) -> dict[str, Any]:
    """What a model's head is called and made with, defaults too."""
    kind = head_classes().get(config.head)
    own = config.head_options if kind is None else vars(build_config(kind.Options, config.head_options, config.head))
    return {**own, "head": config.head}


def make_head(config: ViTConfig) -> nn.Module:
    """The head that a configuration names: of all tokens, or of the pooled vector; the identity for no classes."""
    if config.head == "contrastive":
        from sightline.models.contrastive import ContrastiveHead

        return ContrastiveHead(config)
    if config.head not in CLASSIFIERS:
        kind = head_class(config.head)
        if kind.axes not in (None, given := len(config.train_grid)):
            raise InputError(f"head {config.head}: a grid of {given} axes (expected {kind.axes})")
        return kind(config)
    if config.num_classes == 0:
        return nn.Identity()
    classes, bias = config.num_classes, config.head_bias is not False
    head: nn.Module
    if config.head == "mlp":
        head = TanhMlpHead(config.pooled_dim, config.head_hidden or config.dim, classes, bias=bias)
    elif config.head == "distilled":
        head = DistilledHead(config.dim, classes, bias=bias)
    elif config.head == "cosine":
        from sightline.models.contrastive import CosineHead

        head = CosineHead(config.pooled_dim, config.head_hidden, classes, bias=bias)
    else:
        head = nn.Linear(config.pooled_dim, classes, bias=bias)
    layers = [one for one in head.modules() if isinstance(one, nn.Linear)]
    for layer in layers:
        nn.init.trunc_normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    for last in layers if config.head == "distilled" else layers[-1:]:
        with torch.no_grad():
            last.weight.mul_(config.head_std / 0.02)
        if bias and config.head_bias is not None:
            nn.init.constant_(last.bias, config.head_bias)
    return head
