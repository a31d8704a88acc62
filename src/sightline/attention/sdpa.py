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
from sightline.attention.cpu import cpu_form, custom_kernels_allowed
from sightline.attention.pattern import Pattern
from sightline.attention.products import attend_products
from sightline.attention.tiles import attend_tiles
from sightline.attention.wide import wide_dtype
from sightline.errors import InputError
from sightline.tokens.cache import ByteLRUCache, is_cacheable, is_traced
from sightline.tokens.layout import Segment, TokenLayout

# The most bytes of bias at once: beyond, it is made for fewer heads, then for fewer queries.
BIAS_BYTES = 96 << 20
CPU_BIAS_BYTES = 32 << 20
"""The same on a CPU: glibc takes a larger buffer anew, page by page (docs/explanation/decisions/cpu-forms.md)."""

# Directed biases of short images, of all layers of a ViT-B at 224 px: making one took a third of a forward.
_BIASES = ByteLRUCache("directed biases", 32 << 20)
_CACHED_BYTES = _BIASES.most_bytes // 12

# Largest bias of a layer that a compiled program is given whole: 12 heads of 577 tokens in bfloat16.
COMPILED_BIAS_BYTES = 8 << 20


def _sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class ImageRun(NamedTuple):
    """Consecutive images of a pack that differ in nothing but their content.

    Attributes:
        query, key: the patches of each; before: how many prefix slots stand before those.
        first: the number of the first image.
    """

    query: Segment
    key: Segment
    before: tuple[int, int]
    images: int = 1
    first: int = 0

    @property
    def slots(self) -> tuple[int, int]:
        """Queries and keys of one image."""
        return self.before[0] + self.query.patches, self.before[1] + self.key.patches

    def batch(self, x: Tensor) -> Tensor:
        """[rows, heads, slots of all, head_dim] -> [rows * images, heads, slots of one, head_dim]."""
        return x if self.images == 1 else x.unflatten(2, (self.images, -1)).transpose(1, 2).flatten(0, 1)

    def row(self, x: Tensor) -> Tensor:
        """The inverse of `batch`."""
        return x if self.images == 1 else x.unflatten(0, (-1, self.images)).transpose(1, 2).flatten(2, 3)

    def cached_bias(self, pattern: Pattern, heads: int, dtype: torch.dtype) -> Tensor | None:
        """The bias of an image, where it is kept from call to call: that of a whole grid in rows, which is small, and
        of which nothing is learned."""
        device = self.key.coords.device
        # Asked first: sizes of a program that is exported are symbols, which a comparison would bound for good.
        if not pattern.directed or not is_cacheable(device):
            return None
        if self.query.grid != self.key.grid or not (self.query.row_major and self.key.row_major):
            return None
        if heads * self.slots[0] * self.slots[1] * dtype.itemsize > min(_CACHED_BYTES, BIAS_BYTES):
            return None
        name = pattern.terms, self.key.grid, self.key.window_grid, self.before, dtype, device
        return _BIASES.get_tensor(name, device, lambda: pattern.bias(self.query, self.key, *self.before, dtype))

    def query_blocks(self, keys: int) -> list[tuple[slice, Segment, int]]:
        """Slots, patches and prefix slots of the queries, in blocks where the bias of a single head on so many keys is
        beyond the bound; the first has the prefix slots."""
        # The displacements of any tokens but whole grids in rows are spread by index, with 20 bytes a pair.
        query, prefix = self.query, self.before[0]
        in_rows = len(query.grid) == 2 and query.row_major and self.key.row_major
        if self.slots[0] * keys * (4 if in_rows else 20) <= BIAS_BYTES:
            return [(slice(None), query, prefix)]
        step = max(1, BIAS_BYTES // (20 * keys))
        blocks = []
        for first in range(0, max(1, query.patches), step):
            some = Segment(query.grid, query.coords[:, first : first + step], complete=False)
            before = prefix if first == 0 else 0
            blocks.append((slice(prefix + first - before, prefix + first + some.patches), some, before))
        return blocks


def _runs(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout) -> list[ImageRun]:
    """A layout in runs of images that have as many slots and, where a pattern looks at it, stand alike."""
    before, apart = (queries.num_prefix_tokens, keys.num_prefix_tokens), pattern is not None and pattern.of_images

    def kind(pair: tuple[Segment, Segment]) -> object:
        return [one.patches if pattern is None else one.cache_key for one in pair]

    def make() -> list[ImageRun]:
        pairs = list(zip(queries.segments, keys.segments, strict=True))
        if apart or torch.compiler.is_compiling():
            return [ImageRun(*pair, before, 1, number) for number, pair in enumerate(pairs)]
        alike = [list(run) for _, run in itertools.groupby(pairs, kind)]
        return [ImageRun(*run[0], before, len(run)) for run in alike]

    return keys.cached(("runs", pattern is None, apart), make) if queries is keys else make()


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
    if pattern.of_images or pattern.terms_of("queries", "keys", "attention"):
        return None
    run = ImageRun(queries.segments[0], keys.segments[0], (queries.num_prefix_tokens, keys.num_prefix_tokens))
    rows = max(run.query.coords.shape[0], run.key.coords.shape[0])
    if rows * heads * run.slots[0] * run.slots[1] * dtype.itemsize > COMPILED_BIAS_BYTES:
        return None
    cached = run.cached_bias(pattern, heads, dtype)
    return SdpaCall(pattern.bias(run.query, run.key, *run.before, dtype) if cached is None else cached)


def supports_form(form: str, pattern: Pattern | None, image: Segment, own_queries: bool, q: Tensor) -> bool:
    """Whether a form can compute an image: `sdpa` can all; the others are autograd functions on a CPU, which want as
    many queries as keys, of which each sees one at least."""
    if form == "sdpa":
        return True
    if not (own_queries and q.shape[2] > 1 and custom_kernels_allowed(q)):
        return False
    if form == "tiles":
        return pattern is not None and pattern.directed and len(image.grid) == 2 and image.row_major
    return pattern is None or not pattern.of_images


def _recomputed(attended: Callable[..., Tensor], q: Tensor, *given: Any, elements: int) -> Tensor:
    """attended(q, *given), whose bias of so many elements is made again for the backward pass: SDPA keeps its mask, a
    bias a layer.

    Not where that is no more than the hidden layer of an MLP beside it (on a GPU, where it is made faster, than the
    queries), nor under torch.func's transforms and traces,
    which have neither such saving nor the hooks that checkpoints need."""
    most = q.numel() if q.is_cuda else 4 * q.numel()
    if torch.is_grad_enabled() and elements > most and not is_traced():
        return checkpoint(attended, q, *given, use_reentrant=False, preserve_rng_state=False)  # type: ignore[return-value]
    return attended(q, *given)


@dataclass(frozen=True, eq=False)
class EagerCall:
    """Attention of each image's queries over its own keys, run by run of images that are alike.

    Attributes:
        form: `sdpa`, `products` or `tiles`, or `auto` for what `cpu_form` says of each image. Where a form cannot
            compute an image, `sdpa` does.
    """

    pattern: Pattern | None
    keys: TokenLayout
    queries: TokenLayout
    form: str

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result, without padding slots."""
        if not q.shape[0] or not q.shape[2]:
            return q
        runs = _runs(self.pattern, self.queries, self.keys)
        forms = [self._form_of(run, q) for run in runs]
        if len(runs) == 1:
            return runs[0].row(self._attend(runs[0], forms[0], None, *map(runs[0].batch, (q, k, v))))
        lengths, key_lengths = ([run.images * run.slots[side] for run in runs] for side in (0, 1))
        # The biases of all runs at once, by one look-up, where they fit.
        pattern, index, elements = self.pattern, None, 0
        biased = [number for number, form in enumerate(forms) if form != "tiles"]
        if pattern is not None and biased and self.queries is self.keys and not torch.compiler.is_compiling():
            images = {runs[number].key.cache_key: runs[number].slots[1] for number in biased}
            elements = q.shape[1] * sum(count**2 for count in images.values())
            if 4 * elements <= BIAS_BYTES:
                index = pattern.displacement_index([runs[number].key for number in biased], self.keys)

        def attend_runs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            made: dict[int, Tensor] = {}
            if index is not None and pattern is not None:
                table, _ = pattern.tables(index.cover, q.device)
                made = dict(zip(biased, index.biases(table), strict=True))
            parts = zip(q.split(lengths, 2), k.split(key_lengths, 2), v.split(key_lengths, 2), strict=True)
            outs = []
            for number, (run, part) in enumerate(zip(runs, parts, strict=True)):
                out = self._attend(run, forms[number], made.get(number), *map(run.batch, part))
                outs.append(run.row(out).transpose(1, 2))
            # Heads of one token side by side, as they are wanted next.
            return torch.cat(outs, 1).transpose(1, 2)

        return _recomputed(attend_runs, q, k, v, elements=0 if index is None else elements)

    def _form_of(self, run: ImageRun, q: Tensor) -> str:
        form = self.form
        if form == "auto":
            form = cpu_form(self.pattern, run.slots[1], q.dtype, training=torch.is_grad_enabled())
        return form if supports_form(form, self.pattern, run.key, self.queries is self.keys, q) else "sdpa"

    def _attend(self, run: ImageRun, form: str, bias: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of one run's images, each a row, by its form; `bias` where it is made already."""
        pattern = self.pattern
        if form == "tiles" and pattern is not None:
            return attend_tiles(q, k, v, pattern, run.key, run.before[1])
        kernel = attend_products if form == "products" else _sdpa
        if pattern is None:
            return kernel(q, k, v, None)
        dtype = wide_dtype(q.dtype) if form == "products" else q.dtype
        ready = run.cached_bias(pattern, q.shape[1], dtype) if bias is None else bias
        of_content = len(pattern.terms_of("queries", "keys", "attention"))
        of_places = len(pattern.terms) > of_content

        def make(q: Tensor, heads: slice, some: Segment, before: int) -> Tensor:
            made = ready
            if made is None:
                made = pattern.bias(some, run.key, before, run.before[1], dtype, heads, run.first)
            _check_heads(made, q)
            return made.to(dtype)

        def biased(q: Tensor, k: Tensor, v: Tensor, heads=slice(None), some=run.query, before=run.before[0]) -> Tensor:
            made = make(q, heads, some, before) if of_places else None
            if not of_content:
                return kernel(q, k, v, made)
            pairs = TokenPairs(some, run.key, before, run.before[1], heads)
            content = content_of_scores(pattern, q, k, pairs)
            if content is not None:
                made = content if made is None else made + content
            made = None if made is None else made.to(dtype)
            if pattern.terms_of("attention"):
                return with_output(q, k, v, made, pattern, pairs)
            return kernel(q, k, v, made)

        if ready is not None or torch.compiler.is_compiling():
            return biased(q, k, v)
        alike = not (pattern.of_images or of_content)
        images = max(run.query.coords.shape[0], run.key.coords.shape[0]) if alike else q.shape[0]
        pairs = images * q.shape[2] * k.shape[2]
        # As many heads at a time as keep their bias within the bound.
        bound = min(BIAS_BYTES, CPU_BIAS_BYTES) if q.device.type == "cpu" else BIAS_BYTES
        step = max(1, bound // max(1, pairs * dtype.itemsize))
        parts = []
        for first in range(0, q.shape[1], step):
            heads = slice(first, first + step) if step < q.shape[1] else slice(None)
            blocks = []
            for block, some, before in run.query_blocks(images * k.shape[2]):
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
