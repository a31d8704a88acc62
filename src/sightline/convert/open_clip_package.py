"""Models of the installed package open_clip_torch, with its tokenizers."""

from __future__ import annotations

import importlib
import json
from typing import Any

from sightline.convert.base import Arguments, State
from sightline.distributed.machine import import_timm
from sightline.errors import InputError, unknown_name_error


def build_open_clip(name: str) -> tuple[State, Arguments]:
    """The weights of `open_clip.create_model`, and what the conversion takes beside them.

    Args:
        name: `ARCHITECTURE/TAG`, as "ViT-B-32/laion2b_s34b_b79k"; without a tag the weights are random.

    Raises:
        InputError: the package is not installed, has no such architecture or tag, or cannot fetch the weights.
    """
    # open_clip imports timm and torchvision.
    import_timm()
    try:
        open_clip: Any = importlib.import_module("open_clip")
    except ImportError:
        raise InputError(f"open_clip:{name}: needs the package open_clip_torch, which is not installed") from None
    architecture, _, tag = name.partition("/")
    if architecture not in open_clip.list_models():
        raise unknown_name_error("open_clip: model", architecture, open_clip.list_models(), limit=5)
    if tag and tag not in (tags := open_clip.list_pretrained_tags_by_model(architecture)):
        raise unknown_name_error(f"open_clip: weights of {architecture}", tag, tags, limit=5)
    try:
        model = open_clip.create_model(architecture, pretrained=tag or None)
        tokenizer = open_clip.get_tokenizer(architecture)
    # What it raises (a file that cannot be fetched, a tower of another package) has no common class.
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"open_clip:{name}: cannot be built ({said})") from None
    config = dict(open_clip.get_model_config(architecture))
    # Some weights decide it, whatever the architecture says.
    config["quick_gelu"] = any(type(part).__name__ == "QuickGELU" for part in model.modules())
    config["text_cfg"] = {key: value for key, value in config["text_cfg"].items() if not key.startswith("hf_token")}
    prepared = {
        key: value
        for key, value in open_clip.get_model_preprocess_cfg(model).items()
        if key in ("mean", "std", "interpolation", "resize_mode")
    }
    return model.state_dict(), {
        "model_cfg": config, "preprocess_cfg": prepared, "tokenizer": _tokenizer_json(tokenizer),
    }  # fmt: skip


def _tokenizer_json(tokenizer: Any) -> str:
    """The content of a `tokenizer.json` that gives the ids of open_clip's tokenizer, without padding."""
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is not None:
        return inner.backend_tokenizer.to_str()
    ordered = sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.__getitem__)
    start, end = tokenizer.sot_token_id, tokenizer.eot_token_id
    names = {tokenizer.encoder[name]: name for name in tokenizer.encoder}
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    return json.dumps({
        "version": "1.0",
        "added_tokens": [
            {"id": one, "content": names[one], "special": True, "normalized": False, "single_word": False,
             "lstrip": False, "rstrip": False}
            for one in (start, end)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": names[start], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": names[end], "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                names[one]: {"id": names[one], "ids": [one], "tokens": [names[one]]} for one in (start, end)
            },
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": "</w>", "fuse_unk": False,
            "vocab": tokenizer.encoder, "merges": [list(pair) for pair in ordered],
        },
    })  # fmt: skip
