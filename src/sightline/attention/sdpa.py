"""Eager attention, each image for itself, its bias built a layer at a time when needed: the readable reference."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.attention.content_bias import TokenPairs, content_of_scores, with_output
from sightline.attention.cpu import custom_kernels_allowed
from sightline.attention.pattern import Pattern
from sightline.attention.products import attend_products
from sightline.attention.tiles import attend_tiles
from sightline.errors import InputError
from sightline.tokens.cache import ByteLRUCache, is_cacheable, is_traced
from sightline.tokens.layout import Segment, TokenLayout

# The most bytes of bias at once: beyond, it is made for fewer heads, then for fewer queries.
BIAS_BYTES = 96 << 20
CPU_BIAS_BYTES = 32 << 20
"""The same on a CPU: glibc takes a larger buffer from the system page by page, each time (docs/LOG.md)."""

# Directed biases of short images, of all layers of a ViT-B at 224 px: making one took a third of a forward.
_BIASES = ByteLRUCache("directed biases", 32 << 20)
_CACHED_BYTES = _BIASES.most_bytes // 12

# Largest bias of a layer that a compiled program is given whole: 12 heads of 577 tokens in bfloat16.
COMPILED_BIAS_BYTES = 8 << 20

ChooseForm = Callable[[int, torch.dtype], str]


class SdpaCall(NamedTuple):
    """Images that are alike, each a row, with their bias ready: for compiled programs."""

    bias: Tensor | None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result."""
        q, k = q.to(v.dtype), k.to(v.dtype)
        return _sdpa(q, k, v, None if self.bias is None else self.bias.to(v.dtype))


def plan_sdpa(
    pattern: Pattern | None, keys: TokenLayout, queries: TokenLayout, heads: int, dtype: torch.dtype
) -> SdpaCall | None:
    """The call of a batch of images that are alike, without padding; None for others, and where the bias is large or
    made of what images show."""
    if len(keys.segments) != 1 or keys.padding or queries.padding:
        return None
    if pattern is None:
        return SdpaCall(None)
    query, key = queries.segments[0], keys.segments[0]
    pairs = (queries.num_prefix_tokens + query.patches) * (keys.num_prefix_tokens + key.patches)
    rows = max(query.coords.shape[0], key.coords.shape[0])
    if pattern.of_images or pattern.terms_of("queries", "keys", "attention"):
        return None
    if rows * heads * pairs * dtype.itemsize > COMPILED_BIAS_BYTES:
        return None
    around = queries.num_prefix_tokens, keys.num_prefix_tokens
    if _is_cached(pattern, ImageRun(query, key, 1), around, heads, dtype):
        return SdpaCall(_cached_bias(pattern, ImageRun(query, key, 1), around, dtype))
    return SdpaCall(pattern.bias(query, key, *around, dtype))


@dataclass(frozen=True, eq=False)
class EagerCall:
    """Each image for itself, by a form or by what a function chooses for it.

    Attributes:
        form: `sdpa`, `products` or `tiles`, or a function that gives it for an image of so many tokens in a dtype.
    """

    pattern: Pattern | None
    keys: TokenLayout
    queries: TokenLayout
    form: str | ChooseForm

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result, without padding slots."""
        if not q.shape[0] or not q.shape[2]:
            return q
        return attend_eager(q, k, v, self.pattern, self.queries, self.keys, self.form)


class ImageRun(NamedTuple):
    """Consecutive images of a pack that differ in nothing but their content; `first` numbers the first of them."""

    query: Segment
    key: Segment
    images: int
    first: int = 0

    def batch(self, x: Tensor) -> Tensor:
        """[rows, heads, slots of all, head_dim] -> [rows * images, heads, slots of one, head_dim]."""
        return x if self.images == 1 else x.unflatten(2, (self.images, -1)).transpose(1, 2).flatten(0, 1)

    def row(self, x: Tensor) -> Tensor:
        """The inverse of `batch`."""
        return x if self.images == 1 else x.unflatten(0, (-1, self.images)).transpose(1, 2).flatten(2, 3)


def attend_eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    queries: TokenLayout,
    keys: TokenLayout,
    form: str | ChooseForm,
) -> Tensor:
    """Attention of each image's queries over its own keys, run by run of images that are alike.

    Args:
        q, k, v: [rows, heads, slots, head_dim], laid out as `queries` and `keys`, without padding.
        form: as that of `EagerCall`. Where it cannot compute an image, `sdpa` does.

    Returns:
        [rows, heads, query slots, head_dim].
    """
    runs = _runs(pattern, queries, keys)
    slots = [keys.num_prefix_tokens + run.key.patches for run in runs]
    asked = [form if isinstance(form, str) else form(count, q.dtype) for count in slots]
    forms = [
        one if supports_form(one, pattern, run.query, run.key, queries is keys, q) else "sdpa"
        for one, run in zip(asked, runs, strict=True)
    ]
    if len(runs) == 1:
        qi, ki, vi = map(runs[0].batch, (q, k, v))
        return runs[0].row(_attend_run(qi, ki, vi, pattern, runs[0], queries, keys, forms[0]))
    lengths = [run.images * (queries.num_prefix_tokens + run.query.patches) for run in runs]
    key_lengths = [run.images * count for run, count in zip(runs, slots, strict=True)]
    # The biases of all runs at once, by one look-up, where they fit.
    biased = [number for number, one in enumerate(forms) if one != "tiles"]
    spread, elements = None, 0
    if pattern is not None and biased and queries is keys and not torch.compiler.is_compiling():
        kinds = {runs[number].key.cache_key: slots[number] for number in biased}
        elements = q.shape[1] * sum(count**2 for count in kinds.values())
        if 4 * elements <= BIAS_BYTES:
            spread = pattern.spread([runs[number].key for number in biased], keys)

    def attend_runs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = {} if spread is None or pattern is None else dict(zip(biased, spread.biases(pattern), strict=True))
        parts = zip(q.split(lengths, 2), k.split(key_lengths, 2), v.split(key_lengths, 2), strict=True)
        outs = []
        for number, (run, part) in enumerate(zip(runs, parts, strict=True)):
            qi, ki, vi = map(run.batch, part)
            out = _attend_run(qi, ki, vi, pattern, run, queries, keys, forms[number], made.get(number))
            outs.append(run.row(out).transpose(1, 2))
        # Heads of one token side by side, as they are wanted next.
        return torch.cat(outs, 1).transpose(1, 2)

    return _recomputed(attend_runs, q, k, v, elements=0 if spread is None else elements)


def supports_form(
    form: str, pattern: Pattern | None, query: Segment, key: Segment, own_queries: bool, q: Tensor
) -> bool:
    """Whether a form can compute an image: `sdpa` can all; the others are autograd functions on a CPU, which want as
    many queries as keys, of which each sees one at least."""
    if form == "sdpa":
        return True
    if not (own_queries and q.shape[2] > 1 and custom_kernels_allowed(q)):
        return False
    if form == "tiles":
        return pattern is not None and pattern.directed and len(key.grid) == 2 and key.row_major
    return pattern is None or not pattern.of_images


def _runs(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout) -> list[ImageRun]:
    """A layout in runs of images that have as many slots and, where a pattern looks at it, stand alike."""

    def kind(pair: tuple[Segment, Segment]) -> object:
        return [one.patches if pattern is None else one.cache_key for one in pair]

    def make() -> list[ImageRun]:
        pairs = list(zip(queries.segments, keys.segments, strict=True))
        if torch.compiler.is_compiling() or (pattern is not None and pattern.of_images):
            return [ImageRun(*pair, 1, number) for number, pair in enumerate(pairs)]
        alike = [list(run) for _, run in itertools.groupby(pairs, kind)]
        return [ImageRun(*run[0], len(run)) for run in alike]

    if queries is not keys:
        return make()
    return keys.cached(("runs", pattern is None, pattern is not None and pattern.of_images), make)


def _recomputed(attended: Callable[..., Tensor], q: Tensor, *given: Any, elements: int) -> Tensor:
    """attended(q, *given), whose bias of so many elements is made again for the backward pass: SDPA keeps its mask, a
    bias a layer.

    Not where that is no more than the hidden layer of an MLP beside it, nor under torch.func's transforms and traces,
    which have neither such saving nor the hooks that checkpoints need."""
    if torch.is_grad_enabled() and elements > 4 * q.numel() and not is_traced():
        return checkpoint(attended, q, *given, use_reentrant=False, preserve_rng_state=False)  # type: ignore[return-value]
    return attended(q, *given)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def _attend_run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    run: ImageRun,
    queries: TokenLayout,
    keys: TokenLayout,
    form: str,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention of one run's images, each a row, by its form; `bias` where it is made already."""
    if form == "tiles" and pattern is not None:
        return attend_tiles(q, k, v, pattern, run.key, keys.num_prefix_tokens)
    kernel = attend_products if form == "products" else _sdpa
    if pattern is None:
        return kernel(q, k, v, None)
    dtype = torch.promote_types(q.dtype, torch.float32) if form == "products" else q.dtype
    prefix = queries.num_prefix_tokens
    around = prefix, keys.num_prefix_tokens
    if bias is None and _is_cached(pattern, run, around, q.shape[1], dtype):
        bias = _cached_bias(pattern, run, around, dtype)
    of_content = len(pattern.terms_of("queries", "keys", "attention"))
    of_places = len(pattern.terms) > of_content

    def make(q: Tensor, heads: slice, some: Segment, before: int) -> Tensor:
        made = bias
        if made is None:
            made = pattern.bias(some, run.key, before, keys.num_prefix_tokens, dtype, heads, run.first)
        _check_heads(made, q)
        return made.to(dtype)

    def biased(q: Tensor, k: Tensor, v: Tensor, heads=slice(None), some=run.query, before=prefix) -> Tensor:
        made = make(q, heads, some, before) if of_places else None
        if not of_content:
            return kernel(q, k, v, made)
        pairs = TokenPairs(some, run.key, before, keys.num_prefix_tokens, heads)
        content = content_of_scores(pattern, q, k, pairs)
        if content is not None:
            made = content if made is None else made + content
        made = None if made is None else made.to(dtype)
        return with_output(q, k, v, made, pattern, pairs) if pattern.terms_of("attention") else kernel(q, k, v, made)

    if bias is not None or torch.compiler.is_compiling():
        return biased(q, k, v)
    images = q.shape[0] if pattern.of_images or of_content else max(run.query.coords.shape[0], run.key.coords.shape[0])
    pairs = images * q.shape[2] * k.shape[2]
    # As many heads at a time as keep their bias within the bound.
    bound = min(BIAS_BYTES, CPU_BIAS_BYTES) if q.device.type == "cpu" else BIAS_BYTES
    step = max(1, bound // max(1, pairs * dtype.itemsize))
    parts = []
    for first in range(0, q.shape[1], step):
        heads = slice(first, first + step) if step < q.shape[1] else slice(None)
        blocks = []
        for block, some, before in _query_blocks(run, prefix, images * k.shape[2]):
            part = q[:, heads, block], k[:, heads], v[:, heads]
            if form == "products" and pattern.directed:
                # Made again for the backward pass, which this form computes by itself.
                blocks.append(attend_products(*part, functools.partial(make, part[0], heads, some, before)))
            else:
                blocks.append(_recomputed(biased, *part, heads, some, before, elements=q.shape[1] * pairs))
        parts.append(blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _check_heads(bias: Tensor, q: Tensor) -> None:
    # torch's kernel reads a mask of the meta device as it is.
    if bias.is_meta and not q.is_meta:
        raise InputError("attention: a pattern of weights on the meta device, which have no values")
    if bias.shape[1] != q.shape[1]:
        raise InputError(f"attention: a pattern of {bias.shape[1]} heads for queries of {q.shape[1]}")


def _query_blocks(run: ImageRun, prefix: int, keys: int) -> list[tuple[slice, Segment, int]]:
    """Slots, patches and prefix slots of the queries, in blocks where the bias of a single head is beyond the bound;
    the first has the prefix slots."""
    # The displacements of any tokens but whole grids in rows are spread by index, with 20 bytes a pair.
    query, in_rows = run.query, run.query.row_major and run.key.row_major and len(run.key.grid) == 2
    bytes_a_pair = 4 if in_rows else 20
    if (prefix + query.patches) * keys * bytes_a_pair <= BIAS_BYTES:
        return [(slice(None), query, prefix)]
    step = max(1, BIAS_BYTES // (20 * keys))
    blocks = []
    for first in range(0, max(1, query.patches), step):
        some = Segment(query.grid, query.coords[:, first : first + step], complete=False)
        before = prefix if first == 0 else 0
        blocks.append((slice(prefix + first - before, prefix + first + some.patches), some, before))
    return blocks


def _is_cached(pattern: Pattern, run: ImageRun, prefix: tuple[int, int], heads: int, dtype: torch.dtype) -> bool:
    """Whether the bias is kept for the next call: that of a whole grid in rows, which is small, and of which nothing is
    learned."""
    # Asked first: sizes of a program that is exported are symbols, which a comparison would bound for good.
    if not pattern.directed or not is_cacheable(run.key.coords.device):
        return False
    if run.query.grid != run.key.grid or not (run.query.row_major and run.key.row_major):
        return False
    slots = [at + one.patches for at, one in zip(prefix, (run.query, run.key), strict=True)]
    return heads * slots[0] * slots[1] * dtype.itemsize <= min(_CACHED_BYTES, BIAS_BYTES)


def _cached_bias(pattern: Pattern, run: ImageRun, prefix: tuple[int, int], dtype: torch.dtype) -> Tensor:
    device = run.key.coords.device
    name = pattern.terms, run.key.grid, run.key.window_grid, prefix, dtype, device
    return _BIASES.get_tensor(name, device, lambda: pattern.bias(run.query, run.key, *prefix, dtype))
