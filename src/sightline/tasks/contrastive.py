"""Images and texts in one space: pairs are the targets, and words are the classes (CLIP, SigLIP, NaViT section 3)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from sightline.data.source import Example, Source
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError
from sightline.io.config import Count, build_config, config_dataclass
from sightline.models import Model, ViTConfig
from sightline.models.contrastive import ContrastiveHead, ContrastiveOptions
from sightline.models.text import TextConfig, tokenize
from sightline.tasks.base import Task
from sightline.tasks.pair_losses import PairLoss, pair_loss
from sightline.tasks.tokenizer import read_tokenizer
from sightline.tokens.layout import TokenLayout
from sightline.tokens.text import END, PAD, TextTokenizer

_END_TOKENS = (END, "<|endoftext|>", "</s>", "<eos>", "[SEP]")
_PAD_TOKENS = (PAD, "<pad>", "[PAD]")
# A text tower as wide as the small models, which a few thousand captions can fill.
_SMALL_TEXT = {"depth": 4, "dim": 192, "heads": 3}


@config_dataclass
class ContrastiveTaskOptions:
    """Options of the task `contrastive`.

    Attributes:
        pair_loss: `softmax` (CLIP), or `sigmoid` (SigLIP).
        embed_dim: width of the space that images and texts share.
        text: fields of `TextConfig` (`length`, `encoding`, ...); unless given, 4 layers of width 192 with 3 heads.
        tokenizer: a `tokenizer.json`, a folder with one, or `hf-hub:owner/name`; None learns a byte pair encoding of
            the captions of the training split.
        vocab_size: most tokens of an encoding that is learned.
        positives: `meaning` counts pairs whose captions mean the same as right too, where the data says so; `pair`
            takes them for wrong.
        chunk: pairs whose scores are computed at once.
        names, templates: of the measure `zero_shot`, as `names_and_templates` takes them.
    """

    pair_loss: PairLoss = "softmax"
    embed_dim: Count = 512
    text: dict[str, Any] = Field(default_factory=dict)
    tokenizer: str | None = None
    vocab_size: Count = 2_048
    positives: Literal["meaning", "pair"] = "meaning"
    chunk: Count = 1_024
    names: str | None = None
    templates: str | None = None


class Contrastive(Task):
    """A caption or some of each image, one of which is drawn each epoch of training."""

    name: ClassVar[str] = "contrastive"
    needs: ClassVar[tuple[str, ...]] = ("captions",)
    joint: ClassVar[bool] = True
    primary: ClassVar[str] = "retrieval"
    tuned_by: ClassVar[str] = "loss of the pairs of a batch"
    Options: ClassVar[type] = ContrastiveTaskOptions

    def __init__(self, config: ViTConfig, options: ContrastiveTaskOptions) -> None:
        if config.head != "contrastive":
            raise InputError(f"task contrastive: head {config.head} reads no texts (expected head contrastive)")
        self.config, self.options = config, options
        self.names = list(config.class_names or ())
        self._text = build_config(ContrastiveOptions, config.head_options, "head contrastive").text

    @classmethod
    def model_options(cls, source: Source, options: ContrastiveTaskOptions) -> dict[str, Any]:
        head = {"embed_dim": options.embed_dim, "loss": options.pair_loss, "text": text_config_fields(source, options)}
        return {"head": "contrastive", "num_classes": 0, "head_options": head}

    def bind(self, source: Source, data: str) -> Self:
        if not {"captions", "label"} & set(source.provides):
            raise InputError(f"data {data!r}: has no captions and no classes, task contrastive needs one of them")
        task = copy.copy(self)
        task.names = list(source.classes)
        return task

    def targets(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """`texts`, token ids of all captions; `owners` and `meanings`, of each the number of its image and of its
        meaning (-1: one of its own): int64 [texts]. Nothing of images without captions."""
        targets: list[Any] = [one.target for one in examples]
        captions = [getattr(one, "captions", ()) for one in targets]
        if not any(captions):
            return {}
        meanings = [one.meaning for one in targets]
        owners = [number for number, some in enumerate(captions) for _ in some]
        return {
            "texts": tokenize([one for some in captions for one in some], self._text),
            "owners": torch.tensor(owners, dtype=torch.int64),
            "meanings": torch.tensor([meanings[number] for number in owners], dtype=torch.int64),
        }

    def joint_loss(
        self, model: Model, outputs: tuple[Tensor, Tensor], targets: Sequence[Mapping[str, Any]], ranks: Ranks
    ) -> Tensor:
        images, texts = outputs
        meanings = torch.cat([one["meanings"] for one in targets if "meanings" in one] or [texts.new_zeros(0).long()])
        head = model.head
        assert isinstance(head, ContrastiveHead)
        return pair_loss(
            head.options.loss, images, texts, head.scale(), head.logit_bias,
            meanings if self.options.positives == "meaning" else None, ranks=ranks, chunk=self.options.chunk,
        )  # fmt: skip

    def loss(
        self, outputs: tuple[Tensor, Tensor], targets: Mapping[str, Any], layout: TokenLayout
    ) -> tuple[Tensor, int]:
        """Of the pairs of a batch, each image with its first caption, at the scale that models begin with."""
        images, texts = outputs
        owners = targets["owners"]
        first = torch.ones_like(owners, dtype=torch.bool)
        first[1:] = owners[1:] != owners[:-1]
        head = build_config(ContrastiveOptions, self.config.head_options, "head contrastive")
        scale, bias = (10.0, -10.0) if head.loss == "sigmoid" else (1 / 0.07, 0.0)
        loss = pair_loss(
            head.loss, images, texts[first], images.new_tensor(scale), images.new_tensor(bias),
            targets["meanings"][first], ranks=SINGLE_RANK, chunk=self.options.chunk,
        )  # fmt: skip
        return loss, len(images)

    def split_outputs(self, outputs: Tensor | tuple[Tensor, Tensor], layout: TokenLayout) -> Sequence[Tensor]:
        """The unit vector of each image."""
        return (outputs if isinstance(outputs, Tensor) else outputs[0]).unbind()

    def to_json(self, output: Tensor, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """The unit vector of an image."""
        return {"embedding": output.tolist()}

    def describe(self, answer: Mapping[str, Any]) -> str:
        return f"a vector of {len(answer['embedding'])} numbers (give labels to classify by words)"


def text_config_fields(source: Source, options: ContrastiveTaskOptions) -> dict[str, Any]:
    """The fields of `TextConfig` of a new model: those that are given, and those that the tokenizer decides.

    Raises:
        InputError: there is no such tokenizer, or a field is refused.
    """
    given = dict(options.text)
    lower = given.get("lower_case", options.tokenizer is None)
    # Settings are resolved several times before a run begins.
    known = vars(source).setdefault("_tokenizers", {})
    key = options.tokenizer, options.vocab_size, lower
    if key not in known:
        if options.tokenizer is None:
            made = TextTokenizer.learn(source.all_captions("train"), vocab_size=options.vocab_size, lower_case=lower)
        else:
            made = read_tokenizer(options.tokenizer, lower_case=lower)
        known[key] = made.content, made.vocab_size, made.token_id(*_END_TOKENS), made.token_id(*_PAD_TOKENS)
    content, size, end, pad = known[key]
    decided = {"tokenizer": content, "vocab_size": size, "end_id": end, "pad_id": pad, "lower_case": lower}
    decided["pool"] = "last" if end is None else "end"
    text = build_config(TextConfig, {**decided, **_SMALL_TEXT, **given}, "task_options.text")
    return {name: getattr(text, name) for name in vars(text)}
