"""A configuration as `config.json` keeps it: the architecture apart from head, preparation, labels and origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sightline.checks import configure
from sightline.models.config import ViTConfig
from sightline.models.preparation import Preparation

# What stands in no part is the architecture's. In a part, the field of the part's own name is its `name`.
_PARTS = {
    "head": (
        "head", "head_options", "num_classes", "head_hidden", "head_bias", "pool", "pool_prefix", "pool_heads",
        "pool_mlp_ratio",
    ),
    "preparation": tuple(field.name for field in dataclasses.fields(Preparation)),
    "labels": ("class_names",),
}  # fmt: skip
_ALONE = ("score_link", "origin")


def parts_of(config: ViTConfig) -> dict[str, Any]:
    """A configuration as plain values in parts; the grid that the encoding was made for is written out."""
    return parted({**dataclasses.asdict(config), "table_grid": tuple(config.train_grid)})


def parted(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by name, those that are there, in their parts; a name that is no field goes to the architecture."""
    rest = dict(flat)
    parts = {
        part: {"name" if name == part else name: rest.pop(name) for name in names if name in rest}
        for part, names in _PARTS.items()
    }
    alone = {name: rest.pop(name) for name in _ALONE if name in rest}
    return {"architecture": {"name": rest.pop("architecture", "vit"), **rest}, **parts, **alone}


def are_parts(record: Mapping[str, Any]) -> bool:
    """Whether every part of a configuration is there."""
    return all(isinstance(record.get(part), dict) for part in ("architecture", *_PARTS))


def config_of(record: Mapping[str, Any]) -> ViTConfig:
    """The configuration whose parts these are.

    Raises:
        InputError: a field is not known (names the nearest), or a value out of range.
    """
    flat = {name: record[name] for name in _ALONE if name in record}
    for part in ("architecture", *_PARTS):
        flat |= {part if name == "name" else name: value for name, value in record[part].items()}
    return configure(ViTConfig, flat, "model").plain()
