"""The readable reference: each image for itself, with the bias of one layer built when it is needed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.attention import packs
from sightline.attention.backends.base import Backend
from sightline.attention.by_head import by_head
from sightline.attention.contextual import TokenPairs, content_of_scores, with_output
from sightline.attention.costs import SHORT_TOKENS, chosen_form, dense_forms
from sightline.attention.forms import FORMS, OF_SDPA, Form, FormName, bias_dtype, explicit, explicit_attention, sdpa
from sightline.attention.kernel import attend_with_remade, custom_kernels_allowed, fused_kernel
from sightline.attention.pattern import Pattern
from sightline.attention.threads import LARGEST_BYTES
from sightline.tokens.cache import ByteLRUCache, is_cacheable, is_traced
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout

# The most bytes of bias at once: beyond, it is made for fewer heads, then for fewer queries.
BIAS_BYTES = 96 * 2**20


class Dense(Backend):
    """SDPA with an additive bias; for short images on a CPU the one of `forms.py` that costs least there."""

    name = "dense"
    preference = 0

    def supports(self, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
        return True

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        if len(keys.segments) == 1:
            whole = _Run(queries.segments[0], keys.segments[0], 1)
            # A short image alone is a pack of one, and gives the same numbers. Of a longer one `by_head` may take .7 of
            # the time of a pack's kernel.
            short = q.shape[0] == 1 and (keys.slots <= SHORT_TOKENS or _is_short(whole, keys, q))
            pack = _whole(q, k, v, pattern, [whole], queries, keys) if short else None
            if pack is None:
                (form,) = _forms(q, k, pattern, [whole], queries, keys)
                return _one_image(q, k, v, pattern, whole, queries, keys, form)
            return packs.attended(q, k, v, pack)
        return _pack(q, k, v, pattern, queries, keys)


class _Run(NamedTuple):
    """So many images of a pack, one after the other, that differ in nothing but their content: one call; `first` is the
    number of the first of them."""

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


def _runs(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout) -> list[_Run]:
    """A pack in runs of images that have as many slots and, where a pattern looks at it, stand alike."""

    def kind(pair: tuple[Segment, Segment]) -> object:
        return [one.patches if pattern is None else one.cache_key for one in pair]

    pairs = list(zip(queries.segments, keys.segments, strict=True))
    if torch.compiler.is_compiling() or (pattern is not None and pattern.of_images):
        return [_Run(*pair, 1, number) for number, pair in enumerate(pairs)]
    alike = [list(run) for _, run in itertools.groupby(pairs, kind)]
    return [_Run(*run[0], len(run)) for run in alike]


def _pack(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout) -> Tensor:
    """Run by run, with the biases of all made at once where they fit."""
    if queries is keys:
        kind = pattern is None, pattern is not None and pattern.of_images
        runs = keys.cached(("runs", *kind), lambda: _runs(pattern, queries, keys))
    else:
        runs = _runs(pattern, queries, keys)
    pack = _whole(q, k, v, pattern, runs, queries, keys)
    if pack is not None:
        return packs.attended(q, k, v, pack)
    lengths = _lengths(runs, queries, keys)
    spread, elements = None, 0
    if pattern is not None and queries is keys and not torch.compiler.is_compiling():
        slots = {run.key.cache_key: keys.num_prefix_tokens + run.key.patches for run in runs}
        elements = q.shape[1] * sum(one**2 for one in slots.values())
        spread = pattern.spread([run.key for run in runs], keys) if 4 * elements <= BIAS_BYTES else None
    cuts = spread is None and 0 < 4 * elements <= BIAS_BYTES and _are_pieces(pattern, runs, keys)

    # Chosen once: what is computed again for the backward pass has to be the same.
    forms = _forms(q, k, pattern, runs, queries, keys)

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outs = []
        biases = itertools.repeat(None) if spread is None or pattern is None else spread.biases(pattern)
        if cuts and pattern is not None:
            biases = _cut_from_wholes(pattern, runs)
        parts = (q.split(lengths[0], 2), k.split(lengths[1], 2), v.split(lengths[1], 2))
        for run, form, bias, *qkv in zip(runs, forms, biases, *parts, strict=False):
            qi, ki, vi = map(run.batch, qkv)
            outs.append(run.row(_one_image(qi, ki, vi, pattern, run, queries, keys, form, bias)).transpose(1, 2))
        # Heads of one token side by side, as they are wanted next.
        return (outs[0] if len(outs) == 1 else torch.cat(outs, 1)).transpose(1, 2)

    return _call(attended, q, k, v, elements=elements if cuts or spread is not None else 0)


def _lengths(runs: list[_Run], queries: TokenLayout, keys: TokenLayout) -> tuple[list[int], list[int]]:
    """Slots of each run, of queries and of keys."""
    return (
        [run.images * (queries.num_prefix_tokens + run.query.patches) for run in runs],
        [run.images * (keys.num_prefix_tokens + run.key.patches) for run in runs],
    )


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    runs: list[_Run],
    queries: TokenLayout,
    keys: TokenLayout,
) -> packs.Pack | None:
    """The pack as one step of the graph, where `packs` takes it: no bias learns or hangs on what images show."""
    if q.device.type != "cpu" or torch.compiler.is_compiling() or (pattern is not None and queries is not keys):
        return None
    slots = [keys.num_prefix_tokens + run.key.patches for run in runs]
    biases: Callable[[], Iterable[Tensor | None]] = functools.partial(itertools.repeat, None, len(runs))
    if pattern is not None:
        if 4 * q.shape[1] * max(slots) ** 2 > BIAS_BYTES:
            return None
        around = keys.num_prefix_tokens, keys.num_prefix_tokens
        if len(runs) == 1 and _is_kept(pattern, runs[0], around, q.shape[1], torch.float32):
            biases = functools.partial(_copied, pattern, runs[0], around)
        else:
            spread = pattern.spread([run.key for run in runs], keys)
            if spread is None:
                return None
            biases = functools.partial(spread.one_by_one, pattern)
    parts, counts = [], []
    for run, asking, there in zip(runs, *_lengths(runs, queries, keys), strict=True):
        # By the image alone: its neighbours may not change it.
        wide, short = torch.promote_types(q.dtype, torch.float32), _is_short(run, keys, q)
        # Nor may those that are alike: products of many matrices have other last bits than those of one image.
        counts.append(run.images if short else 1)
        each = run.images // counts[-1], asking // counts[-1], there // counts[-1], wide, short
        parts += [packs.PackImages(*each)] * counts[-1]
    pack = packs.Pack(parts, functools.partial(_for_each, biases, counts))
    return pack if packs.takes(q, k, v, pack) else None


def _is_short(run: _Run, keys: TokenLayout, q: Tensor) -> bool:
    wide = torch.promote_types(q.dtype, torch.float32)
    return packs.is_short(run.key.patches, keys.num_prefix_tokens, q.shape[-1], wide)


def _for_each(biases: Callable[[], Iterable[Tensor | None]], counts: list[int]) -> Iterator[Tensor | None]:
    """A bias so many times, each to be written to."""
    for bias, count in zip(biases(), counts, strict=True):
        for left in reversed(range(count)):
            yield bias.clone() if bias is not None and left else bias


def _copied(pattern: Pattern, run: _Run, prefix: tuple[int, int]) -> list[Tensor | None]:
    return [_kept_bias(pattern, run, prefix, torch.float32).clone()]


def _are_pieces(pattern: Pattern | None, runs: list[_Run], keys: TokenLayout) -> bool:
    """Whether these are windows of fewer sizes than shapes, whose biases hang on displacements alone."""
    if pattern is None or pattern.of_images or pattern.has_centre or keys.num_prefix_tokens:
        return False
    if pattern.terms_of("queries", "keys", "attention"):
        return False
    pieces = all(run.key.window is not None and run.key.row_major and len(run.key.grid) == 2 for run in runs)
    return pieces and len({run.key.window_grid for run in runs}) < len(runs)


def _cut_from_wholes(pattern: Pattern, runs: list[_Run]) -> list[Tensor]:
    """The bias of each run's windows, cut from that of the whole window they are pieces of, which is made once."""
    wholes: dict[Grid, Tensor] = {}
    biases = []
    for run in runs:
        grid, frame = run.key.grid, run.key.window_grid
        if frame not in wholes:
            whole = Segment.from_grid(frame, run.key.coords.device)
            wholes[frame] = pattern.bias(whole, whole, 0, 0).unflatten(3, tuple(frame)).unflatten(2, tuple(frame))
        (rows, cols), made = grid, wholes[frame]
        for axis in (2, 4):
            made = made.narrow(axis, 0, rows).narrow(axis + 1, 0, cols)
        biases.append(made.flatten(4).flatten(2, 3))
    return biases


def _call(attended: Callable[..., Tensor], q: Tensor, *given: Any, elements: int) -> Tensor:
    """attended(q, *given), whose bias of so many elements is made again for the backward pass: SDPA keeps its mask, a
    bias a layer.

    Not where that is no more than the hidden layer of an MLP beside it, nor under torch.func's transforms and traces,
    which have neither such saving nor the hooks that checkpoints need."""
    if torch.is_grad_enabled() and elements > 4 * q.numel() and not is_traced():
        return checkpoint(attended, q, *given, use_reentrant=False, preserve_rng_state=False)  # type: ignore[return-value]
    return attended(q, *given)


def _one_image(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    run: _Run,
    queries: TokenLayout,
    keys: TokenLayout,
    form: Form,
    bias: Tensor | None = None,
) -> Tensor:
    if pattern is None:
        return form(q, k, v, None)
    dtype, prefix = bias_dtype(form, q.dtype), queries.num_prefix_tokens
    around = prefix, keys.num_prefix_tokens
    if bias is None and _is_kept(pattern, run, around, q.shape[1], dtype):
        bias = _kept_bias(pattern, run, around, dtype)
    of_content = len(pattern.terms_of("queries", "keys", "attention"))
    of_places = len(pattern.terms) > of_content

    def made_for(q: Tensor, heads: slice, some: Segment, before: int) -> Tensor:
        made = bias
        if made is None:
            made = pattern.bias(some, run.key, before, keys.num_prefix_tokens, dtype, heads, run.first)
        packs.same_heads(made, q)
        return made

    def remade(q: Tensor, k: Tensor, v: Tensor, heads=slice(None), some=run.query, before=prefix) -> Tensor:
        made = functools.partial(made_for, q, heads, some, before)
        return by_head(q, k, v, made) if form is by_head else attend_with_remade(q, k, v, made, dtype)

    def biased(q: Tensor, k: Tensor, v: Tensor, heads=slice(None), some=run.query, before=prefix) -> Tensor:
        made = made_for(q, heads, some, before) if of_places else None
        # SDPA computes what a bias learns from in this form too, 1.2 to 1.3 times slower on windows of 49 (measured).
        learns = made is not None and run.key.window is not None and made.requires_grad and torch.is_grad_enabled()
        written = learns and form is sdpa and q.device.type == "cpu" and not torch.compiler.is_compiling()
        computed = explicit_attention if written else form
        if not of_content:
            return computed(q, k, v, None if made is None else made.to(dtype))
        pairs = TokenPairs(some, run.key, before, keys.num_prefix_tokens, heads)
        content = content_of_scores(pattern, q, k, pairs)
        if content is not None:
            made = content if made is None else made + content
        made = None if made is None else made.to(dtype)
        return with_output(q, k, v, made, pattern, pairs) if pattern.terms_of("attention") else computed(q, k, v, made)

    if bias is not None or torch.compiler.is_compiling():
        return biased(q, k, v)
    images = q.shape[0] if pattern.of_images or of_content else max(run.query.coords.shape[0], run.key.coords.shape[0])
    pairs = images * q.shape[2] * k.shape[2]
    # What the explicit form keeps for the backward pass costs less than making it again.
    if form is explicit and torch.is_grad_enabled() and q.shape[1] * pairs * dtype.itemsize <= BIAS_BYTES:
        return biased(q, k, v)
    # The fused kernel alone needs no second pass of attention where the bias is made anew for the backward pass.
    again = (
        pattern.directed and torch.is_grad_enabled() and fused_kernel() is not None and custom_kernels_allowed(q, k, v)
    )
    attended = (lambda *given, elements: remade(*given)) if again else functools.partial(_call, biased)
    # As many heads at a time as keep their bias within the bound.
    bound = min(BIAS_BYTES, LARGEST_BYTES) if q.device.type == "cpu" else BIAS_BYTES
    step = max(1, bound // max(1, pairs * dtype.itemsize))
    parts = []
    for first in range(0, q.shape[1], step):
        heads = slice(first, first + step) if step < q.shape[1] else slice(None)
        blocks = [
            attended(q[:, heads, block], k[:, heads], v[:, heads], heads, *part, elements=q.shape[1] * pairs)
            for block, *part in _query_blocks(run, prefix, images * k.shape[2])
        ]
        parts.append(blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _query_blocks(run: _Run, prefix: int, keys: int) -> list[tuple[slice, Segment, int]]:
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


def _forms(
    q: Tensor, k: Tensor, pattern: Pattern | None, runs: list[_Run], queries: TokenLayout, keys: TokenLayout
) -> list[Form]:
    """Of each run, by an image alone: a neighbour of another kind would end a run, and may change no image."""
    # Where its own key is gone, or by what an image shows, a query may see nothing.
    masks_whole = pattern is not None and (pattern.of_images or queries is not keys)
    slots = [keys.num_prefix_tokens + run.key.patches for run in runs]
    return [FORMS[form_of(q, k[:, :, :one], q.shape[0], masks_whole)] for one in slots]


def form_of(q: Tensor, k: Tensor, rows: int, masks_whole: bool = False) -> FormName:
    """The name of the form that costs least here for images of so many tokens; of a pack, for each image alone.

    Args:
        masks_whole: a row may be masked whole.
    """
    tokens = k.shape[-2]
    if not custom_kernels_allowed(q, k):
        return "sdpa"
    if q.shape[-2] == 1:
        # What was measured has as many queries as keys.
        return "sdpa_in_float32" if q.dtype == torch.bfloat16 else "sdpa"
    forms = tuple(one for one in dense_forms(q.dtype, tokens) if not masks_whole or one in OF_SDPA)
    if rows == 1 and "sdpa_in_float32" in forms:
        # In float32, as in a pack: the answers of an image are those that it has among others.
        forms = tuple(one for one in forms if one != "sdpa")
    return cast(FormName, chosen_form(forms, q.dtype, head_dim=q.shape[-1], tokens=tokens, images=rows))


# Biases of short images, of all layers of a ViT-B at 224 px: making one took a third of a forward (docs/LOG.md).
_BIASES = ByteLRUCache("biases of short images", 32 << 20)
_BIAS_BYTES_KEPT = _BIASES.most_bytes // 12


def _is_kept(pattern: Pattern, run: _Run, prefix: tuple[int, int], heads: int, dtype: torch.dtype) -> bool:
    """Whether the bias of images is kept for the next call: that of a whole grid in rows, which is small, and of which
    nothing is learned."""
    # Asked first: sizes of a program that is exported are symbols, which a comparison would bound for good.
    if not pattern.directed or not is_cacheable(run.key.coords.device):
        return False
    if run.query.grid != run.key.grid or not (run.query.row_major and run.key.row_major):
        return False
    slots = [at + one.patches for at, one in zip(prefix, (run.query, run.key), strict=True)]
    return heads * slots[0] * slots[1] * dtype.itemsize <= min(_BIAS_BYTES_KEPT, BIAS_BYTES)


def _kept_bias(pattern: Pattern, run: _Run, prefix: tuple[int, int], dtype: torch.dtype) -> Tensor:
    device = run.key.coords.device
    name = pattern.terms, run.key.grid, run.key.window_grid, prefix, dtype, device
    return _BIASES.get_tensor(name, device, lambda: pattern.bias(run.query, run.key, *prefix, dtype))
