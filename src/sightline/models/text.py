"""A text tower: tokens with one axis in the same layout, blocks and encodings as images have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sightline.attention.pattern import DirectedBias, FieldOfView, Pattern
from sightline.encodings import create_encoding
from sightline.encodings.base import Hooks, PositionEncoding
from sightline.errors import InputError
from sightline.io.config import Count, Index, Positive, config_dataclass
from sightline.models.block import Block
from sightline.models.config import Gelu, Heads, Layers, Ratio, ViTConfig, Width
from sightline.models.init import init_weights
from sightline.models.norm import make_norm
from sightline.models.pooling import AttentionPooling, Pooling
from sightline.models.trunk import Trunk
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.text import TextTokenizer

# Fields that a block's own configuration has under the same names.
_OF_BLOCKS = (
    "dim", "depth", "heads", "mlp_ratio", "encoding", "encoding_options", "qkv_bias", "block_bias", "qk_norm", "mlp",
    "gelu", "norm", "norm_eps",
)  # fmt: skip


@config_dataclass
class TextConfig:
    """Configuration of a `TextTower`, and how its texts become tokens.

    Attributes:
        vocab_size: number of tokens.
        length: most tokens of a text, its end token included.
        dim, depth, heads, mlp_ratio, qkv_bias, block_bias, qk_norm, mlp, gelu, norm, norm_eps: as in `ViTConfig`.
        encoding, encoding_options: an encoding for grids of one axis: `learned_1d`, `none` or `rope_axial`.
        causal: a token attends to itself and to those before it (CLIP).
        pool: `end` takes the first end token, `last` the last place, `attention` a learned probe (SigLIP's images,
            NaViT).
        pad_id: fills texts up; end_id: ends a text, and what follows is cut off. None where no token does.
        pad_to_length: texts are filled up to `length` with `pad_id` as real tokens (SigLIP); else padding is cut off.
        lower_case: texts are lowered before they are cut into tokens.
        tokenizer: content of a `tokenizer.json`; "" where texts are given as token ids alone.
    """

    vocab_size: Count = 32_000
    length: Count = 24
    dim: Width = 512
    depth: Layers = 12
    heads: Heads = 8
    mlp_ratio: Ratio = 4.0
    encoding: str = "learned_1d"
    encoding_options: dict[str, Any] = Field(default_factory=dict)
    causal: bool = False
    pool: Literal["end", "last", "attention"] = "end"
    pad_id: Index | None = 0
    end_id: Index | None = None
    pad_to_length: bool = False
    lower_case: bool = False
    tokenizer: str = ""
    qkv_bias: bool = True
    block_bias: bool | Literal["mlp"] = True
    qk_norm: bool | Literal["heads"] = False
    mlp: Literal["gelu", "swiglu"] = "gelu"
    gelu: Gelu = "exact"
    norm: Literal["layer", "layer_no_bias", "rms"] = "layer"
    norm_eps: Positive = 1e-6

    def __post_init__(self) -> None:
        for name in ("pad_id", "end_id"):
            value = getattr(self, name)
            if value is not None and value >= self.vocab_size:
                raise InputError(f"text.{name} {value}: expected less than vocab_size {self.vocab_size}")
        if self.pool == "end" and self.end_id is None:
            raise InputError("text.pool 'end': needs an end_id (expected end_id, or pool last or attention)")
        if self.dim % self.heads:
            raise InputError(f"text.dim {self.dim}: must be divisible by heads {self.heads}")

    def trunk(self) -> ViTConfig:
        """The fields of `ViTConfig` by which blocks, norms and pooling are made."""
        fields = {name: getattr(self, name) for name in _OF_BLOCKS}
        return ViTConfig(**fields, pool="attention", class_token=False, num_classes=0)


class CausalHooks(Hooks):
    """The hooks of an encoding, to whose pattern it is added that tokens see none behind themselves."""

    def __init__(self, encoding: PositionEncoding) -> None:
        super().__init__(encoding)
        heads = encoding.shape.heads
        # A slope of 0 leaves the field of view: displacements key - query of at most 0.
        view = FieldOfView(planes=((-1,),))
        self._causal = Pattern((DirectedBias((view,) * heads, (0.0,) * heads, (False,) * heads),))

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern:
        found = super().pattern(layer, layout)
        return self._causal if found is None else found + self._causal


class TextTower(nn.Module):
    """Texts to vectors. Texts of any lengths are one pack; equal ones without padding are computed once a length.

    Attributes:
        config: a `TextConfig`.
    """

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config, trunk = config, config.trunk()
        self.token_embed = nn.Embedding(config.vocab_size, config.dim)
        self.encoding = create_encoding(
            config.encoding,
            depth=config.depth,
            heads=config.heads,
            dim=config.dim,
            train_grid=Grid(config.length),
            num_prefix_tokens=0,
            **config.encoding_options,
        )
        self.blocks = Trunk(Block(trunk, layer) for layer in range(config.depth))
        self.norm = make_norm(trunk, config.dim)
        self.attn_pool: Pooling | None = AttentionPooling(trunk) if config.pool == "attention" else None
        if config.tokenizer:
            # Said before the first text.
            _tokenizer(config.tokenizer, config.lower_case)
        init_weights(self)
        nn.init.normal_(self.token_embed.weight, std=0.02)

    def extra_repr(self) -> str:
        config = self.config
        return f"vocab_size={config.vocab_size}, length={config.length}, causal={config.causal}, pool={config.pool!r}"

    def forward(self, texts: Sequence[str] | Tensor | Sequence[Sequence[int]]) -> Tensor:
        """Texts to pooled vectors.

        Args:
            texts: text, or token ids: int64 [texts, tokens] with padding, or a list for each.

        Returns:
            [texts, dim].

        Raises:
            InputError: a text is longer than `length` tokens or empty, or an id is none of the vocabulary.
        """
        config, device = self.config, self.token_embed.weight.device
        ids = [prepare_tokens(one, config) for one in self._as_ids(texts)]
        if not ids:
            return self.token_embed.weight.new_zeros(0, config.dim)
        # Each text once; those of one length stand side by side, so that attention takes them together.
        places = {text: number for number, text in enumerate(dict.fromkeys(map(tuple, ids)))}
        asked, ids = [places[tuple(one)] for one in ids], list(places)
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        lengths = [len(ids[place]) for place in order]
        if lengths[0] == lengths[-1]:
            layout = TokenLayout.uniform((lengths[0],), len(ids), num_prefix_tokens=0, device=device)
        else:
            layout = TokenLayout.packed([(one,) for one in lengths], num_prefix_tokens=0, device=device)
        flat = torch.tensor([one for place in order for one in ids[place]], device=device)
        tokens = self.token_embed(flat).view(layout.rows, layout.slots, -1)
        hooks = CausalHooks(self.encoding) if config.causal else self.encoding.hooks
        tokens = self.norm(self.blocks(tokens, layout, hooks))
        if self.attn_pool is not None:
            pooled = self.attn_pool(tokens, layout)
        else:
            ends = torch.tensor([self._end(ids[place]) for place in order], device=device)
            starts = torch.tensor([0, *lengths[:-1]], device=device).cumsum(0)
            pooled = tokens.flatten(0, 1)[starts + ends]
        back = torch.empty(len(order), dtype=torch.int64, device=device)
        back[torch.tensor(order, device=device)] = torch.arange(len(order), device=device)
        return pooled[back[torch.tensor(asked, device=device)]]

    def _as_ids(self, texts: Sequence[str] | Tensor | Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        if isinstance(texts, Tensor):
            if texts.dim() != 2 or texts.is_floating_point():
                raise InputError(f"texts: expected int64 [texts, tokens], got {texts.dtype} {list(texts.shape)}")
            return texts.tolist()
        if isinstance(texts, str):
            raise InputError(f"texts {texts!r}: expected a list of texts")
        if any(isinstance(one, str) for one in texts):
            return tokenize(texts, self.config)  # type: ignore[arg-type]
        return texts  # type: ignore[return-value]

    def _end(self, ids: Sequence[int]) -> int:
        config = self.config
        return ids.index(config.end_id) if config.pool == "end" and config.end_id in ids else len(ids) - 1


def tokenize(texts: Sequence[str], config: TextConfig) -> list[list[int]]:
    """The token ids of texts, of at most `length` each; a text that is too long keeps its end token.

    Raises:
        InputError: there is no tokenizer.
    """
    if not config.tokenizer:
        raise InputError("text: the model has no tokenizer (expected token ids, or a folder with tokenizer.json)")
    return _tokenizer(config.tokenizer, config.lower_case).encode(texts, config.length)


@lru_cache(maxsize=8)
def _tokenizer(content: str, lower_case: bool) -> TextTokenizer:
    return TextTokenizer.of(content, lower_case=lower_case)


def prepare_tokens(ids: Sequence[int], config: TextConfig) -> list[int]:
    """The tokens of a text that are computed: up to its end token, or filled up to `length`.

    Raises:
        InputError: there is none, there are more than `length`, or one is none of the vocabulary.
    """
    ids = list(ids)
    if config.end_id is not None and config.end_id in ids:
        ids = ids[: ids.index(config.end_id) + 1]
    while not config.pad_to_length and len(ids) > 1 and ids[-1] == config.pad_id:
        ids.pop()
    if config.pad_to_length:
        ids += [config.pad_id or 0] * (config.length - len(ids))
    if not 1 <= len(ids) <= config.length:
        raise InputError(f"texts: one has {len(ids)} tokens (expected 1 to {config.length})")
    if bad := next((one for one in ids if not 0 <= one < config.vocab_size), None):
        raise InputError(f"texts: token {bad} is none of the vocabulary (expected 0 to {config.vocab_size - 1})")
    return ids
