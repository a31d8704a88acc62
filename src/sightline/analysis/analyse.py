"""One pass of a model over images, shown to measures of its inside as it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.analysis.attention_blocks import BLOCK_BYTES, attention_blocks
from sightline.analysis.found import Analysis
from sightline.analysis.images import Images, Normalised, Size, Sizes, batches_by_size
from sightline.analysis.measures.base import Measure
from sightline.attention.dispatch import AttentionRecord, record_attention
from sightline.data.batch import Batch, normalize
from sightline.errors import InputError
from sightline.models import Model
from sightline.models.model import eval_mode
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment


def analysed(
    model: Model,
    measure: type[Measure],
    images: Images,
    sizes: Sizes = None,
    *,
    called: str = "",
    advance: Callable[[int], None] | None = None,
    **options: Any,
) -> Analysis:
    """What one measure finds in a model, at each size; as `analysed_together`."""
    measure.check(model)
    made = {measure.name: lambda model: measure(model, **options)}
    return analysed_together(model, made, images, sizes, called=called, advance=advance)[0]


def refuse_stages(model: Model) -> None:
    """Raise InputError where a model has stages of other widths."""
    if model.num_features != model.embed_dim:
        said = "its stages have other heads and grids, which no measure shows (expected a trunk without stages)"
        raise InputError(f"analyse: architecture {model.name}: {said}")


def analysed_together(
    model: Model,
    measures: Mapping[str, Callable[[Model], Measure]] | Sequence[type[Measure]],
    images: Images,
    sizes: Sizes = None,
    *,
    called: str = "",
    advance: Callable[[int], None] | None = None,
) -> list[Analysis]:
    """What several measures find in a model in one pass over the images at each size, in evaluation mode.

    Args:
        measures: classes, or what makes a measure of a model, by name.
        images: as `batches_by_size`.
        sizes: as `batches_by_size`.
        called: what the model is called; its encoding unless given.
        advance: called with the number of images of each batch that is through.

    Raises:
        InputError: a measure is not for this model, or as `batches_by_size`; before anything is computed.
    """
    refuse_stages(model)
    make = measures if isinstance(measures, Mapping) else {one.name: one for one in measures}
    for one in make.values():
        if isinstance(one, type):
            one.check(model)
    arrays: dict[str, dict[Size, Any]] = {name: {} for name in make}
    names: dict[Size, tuple[str, ...]] = {}
    for size, batches in batches_by_size(model, images, sizes).items():
        at_size, seen = {name: one(model) for name, one in make.items()}, list[str]()
        for batch in batches:
            if len(batch):
                run_pass(model, batch, list(at_size.values()))
                seen += batch.names
                if advance is not None:
                    advance(len(batch))
        names[size] = tuple(seen)
        for name, measure in at_size.items():
            arrays[name][size] = measure.arrays()
    return [analysis_of(model, name, names, of, called=called) for name, of in arrays.items()]


def analysis_of(
    model: Model, measure: str, names: Mapping[Size, tuple[str, ...]], arrays: Mapping[Size, Any], *, called: str = "",
    **about: Any,
) -> Analysis:  # fmt: skip
    """What a measure found in a model, with what else is known of both."""
    config = model.config
    about = {"depth": config.depth, "heads": config.heads, "patch_size": config.patch_size, **about}
    return Analysis(measure, called or config.encoding, config.encoding, tuple(arrays), names, arrays, about)


def run_pass(model: Model, batch: Batch, measures: Sequence[Measure], block_bytes: int = BLOCK_BYTES) -> Tensor:
    """A batch through the model, shown to measures as it goes; the model is in evaluation mode and has no gradients.

    Attention is shown layer by layer as it is computed; where a measure wants the last layer first, queries and keys
    are kept, but for those of the last layer, and shown after the pass. No other measure hangs on the order.

    Args:
        batch: its patches in row-major order.
        block_bytes: of the scores of a block of attention.

    Returns:
        The tokens after the final norm: [rows, slots, dim], in the order of `batch.layout`.

    Raises:
        InputError: a layer attends inside windows, and a measure is of whole images.
    """
    batch = batch.to(model.anchor.device)
    watching = [one for one in measures if one.sees_attention()]
    from_last, kept = any(one.last_layer_first for one in watching), list[AttentionRecord]()

    def asking(segment: Segment, prefix: int) -> list[int] | None:
        wanted = [measure.queries(segment, prefix) for measure in watching]
        return None if None in wanted else [slot for slots in wanted for slot in slots or ()]

    def shown(call: AttentionRecord) -> None:
        for block in attention_blocks(call, block_bytes, asking):
            for measure in watching:
                measure.attention(block)

    def recorder(call: AttentionRecord) -> None:
        if any(segment.window is not None for segment in call.keys.segments):
            for measure in watching:
                if not measure.supports_windows:
                    raise InputError(
                        f"{measure.name}: layer {call.layer} attends inside parts of an image (expected attention over "
                        "all of it)"
                    )
        # The last layer is the first from the top.
        if not from_last or call.layer == len(model.blocks) - 1:
            shown(call)
        else:
            # Copies of what scores are computed of: views would keep all of it. Values are looked at by nobody.
            q, k = (one.clone(memory_format=torch.contiguous_format) for one in (call.q, call.k))
            kept.append(replace(call, q=q, k=k, v=call.v[..., :0].clone()))

    with eval_mode(model), torch.inference_mode():
        for measure in measures:
            measure.begin(batch)
        rows = inputs_of(model, batch)
        with record_attention(recorder) if watching else contextlib.nullcontext():
            tokens = _through(model, rows, batch.layout, measures)
        while kept:
            shown(kept.pop())
        for measure in measures:
            measure.end(tokens, batch.layout)
    return tokens


def inputs_of(model: Model, batch: Batch) -> Tensor:
    """The rows of a batch as a model takes them, normalised."""
    if isinstance(batch, Normalised):
        return batch.inputs
    return normalize(batch.inputs, model.config.mean, model.config.std).to(model.anchor.dtype)


def _through(model: Model, rows: Tensor, layout: TokenLayout, measures: Iterable[Measure]) -> Tensor:
    seeing = [one for one in measures if one.sees_tokens()]
    back = layout
    rows, layout = model.in_attention_order(rows, layout)
    tokens = model.embed(rows, layout)
    for layer in range(-1, len(model.blocks)):
        if layer >= 0:
            tokens = model.blocks.layer(layer, tokens, layout, model.encoding.hooks)
        if seeing:
            shown = model.blocks.layout_after(layer, layout).to_row_major(tokens)
            for measure in seeing:
                measure.tokens(layer, shown, model.blocks.layout_after(layer, back))
    tokens = model.norm(tokens)
    if model.attn_pool is not None:
        # Its attention is shown too, and told apart by having no layer.
        model.pool(tokens, model.encoded_layout(layout))
    return model.encoded_layout(layout).to_row_major(tokens)
