"""What a foreign project is: what its arguments mean in our configuration, and which tensors of both are the same."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from sightline.convert.maps import State, TensorMap, convert_back, shapes_of
from sightline.encodings.base import PositionEncoding
from sightline.encodings.create import components, encoding_options
from sightline.encodings.discovery import registry
from sightline.errors import InputError, require_known
from sightline.io.config import Count, Index, Number, check_value
from sightline.models import Model, ViTConfig, make_model
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.models.head import ScoreLink
from sightline.models.kernel_resize import KERNEL_RULES
from sightline.models.patch_size import kernel_side

Arguments = Mapping[str, Any]
"""Of a project's class, by their names, the defaults filled in."""
# Class of a default -> what is taken for it; 0 and 1 are what they are in Python.
_KINDS = ((str, str), (Mapping, dict[str, Any]), (bool, bool | Literal[0, 1]), (float, Number), (int, Count))


class Project(ABC):
    """A foreign project whose models can be ours, and ours its.

    Attributes:
        name: as `import_weights` is asked for it.
        source: where its code is.
        arguments: the arguments of its class that are understood, with its own defaults.
        plain: those of them that are fields of ours, and mean the same; or `mlp_hidden`, for which `mlp_ratio` stands.
        choices: those whose values are called otherwise here: our field, and what each value is there.
        only: those of which ours can have the default alone.
        example: an argument as a command takes it, for whoever gave none; "" where the weights tell enough.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    arguments: ClassVar[Mapping[str, Any]]
    plain: ClassVar[Mapping[str, str]] = {}
    choices: ClassVar[Mapping[str, tuple[str, Mapping[Any, Any]]]] = {}
    only: ClassVar[Sequence[str]] = ()
    example: ClassVar[str] = "embed_dim=384"

    @abstractmethod
    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        """Our configuration of the model that `given`, its arguments with the defaults filled in, would build."""

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        """How the logits of its published weights are read: by the loss that trained them last."""
        return "softmax"

    @abstractmethod
    def export_arguments(self, model: Model) -> dict[str, Any]:
        """The arguments that would build `model` there.

        Raises:
            InputError: it cannot hold this model; says which part.
        """

    @abstractmethod
    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        """Every tensor of the state dict of the model that `given` builds, which `config` is ours of."""

    def foreign_shapes(self, config: ViTConfig, given: Arguments) -> State:
        """The weights of `config` there, without memory, as far as they can be: what arguments leave to them."""
        shapes, found = shapes_of(config), {}
        for entry in self.tensor_maps(config, given):
            # What ours has not, or has in another shape, shows where the configuration is read back.
            with contextlib.suppress(KeyError, RuntimeError):
                found |= convert_back([entry], shapes)
        return found

    def plain_fields(self, given: Arguments) -> dict[str, Any]:
        """The fields of `ViTConfig` that `plain` arguments and `choices` are.

        Raises:
            InputError: a value is not among the choices, or not the only one.
        """
        for key in self.only:
            if given[key] != (expected := self.arguments[key]):
                raise InputError(f"{self.name}: {key} = {given[key]!r} cannot be ours (expected {expected!r})")
        fields = {ours: given[theirs] for theirs, ours in self.plain.items()}
        if "mlp_hidden" in fields:
            fields["mlp_ratio"] = fields.pop("mlp_hidden") / fields["dim"]
        for key, (ours, values) in self.choices.items():
            require_known(f"{self.name}: {key}", given[key], values)
            fields[ours] = values[given[key]]
        return fields

    def plain_arguments(self, config: ViTConfig) -> dict[str, Any]:
        """The inverse of `plain_fields`; the first choice for what is none."""
        held = {**vars(config), "image_size": config.table_size, "mlp_hidden": config.mlp_hidden}
        given = {theirs: held[ours] for theirs, ours in self.plain.items()}
        for key, (ours, values) in self.choices.items():
            names = {value: name for name, value in values.items()}
            given[key] = names.get(held[ours], next(iter(values)))
        return given

    def filled(self, given: Arguments) -> dict[str, Any]:
        """The arguments with the project's defaults.

        Raises:
            InputError: one is not known (names the nearest), or is not of its default's kind.
        """
        for key, value in given.items():
            require_known(f"{self.name}: argument", key, self.arguments)
            default = self.arguments[key]
            kind = next((kind for one, kind in _KINDS if isinstance(default, one)), Any)
            # A side may be a pair, and is checked with the whole configuration.
            if key != "img_size":
                zero = kind is Count and (default == 0 or key == "num_classes")
                check_value(f"{self.name}: {key}", value, Index if zero else kind)
        return {**self.arguments, **given}

    def own_arguments(self, given: Arguments) -> Mapping[str, Any]:
        """The arguments that say what the model is, where `given` may be a whole configuration of the project's."""
        return given

    def rename_foreign(self, state: State) -> State:
        """The weights under the names that its class has for them."""
        return state

    def used_weights(self, state: State) -> State:
        """Those of them that compute what ours does."""
        return state

    def check_roundtrip(self, given: dict[str, Any], model: Model, state: State | None = None) -> dict[str, Any]:
        """`given`, where it (with what the weights `state` tell) would build `model`; else refused, saying in what."""
        if wrong := differences(self.import_config(self.filled(given), state or {}), model):
            raise InputError(f"{self.name}: cannot hold {'; '.join(wrong)}")
        return given

    def require(self, field: str, found: object, *allowed: object) -> None:
        """Refuse a model that has another value of a field than those allowed."""
        if found not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise InputError(f"{self.name}: cannot hold {field} = {found!r} (expected {expected})")


# Not of what a model computes: how it is prepared, trained and named.
_ASIDE = (
    "mean", "std", "interpolation", "crop", "class_names", "score_link", "origin", "drop_path", "encoding_options",
    # What counts of them is `train_grid`.
    "table_grid", "clip_frames",
    # A project with heads of all tokens reads them off the head itself.
    "head_options",
)  # fmt: skip


def differences(config: ViTConfig, model: Model) -> list[str]:
    """Where a model built from `config` would not compute what `model` does, a phrase for each."""
    ours = _canonical(model.config)
    if wrong := _unequal(ours, _canonical(config)):
        named = f"encoding = {ours['encoding']!r}", f"encoding = {model.config.encoding!r}"
        return [words.replace(*named) for words in wrong]
    with torch.device("meta"):
        there = make_model(config)
    # An embedding of no prefix tokens has none of theirs, whatever it says.
    aside = set() if model.num_prefix_tokens else {"prefix"}
    if model.knob is not None and there.knob is not None and model.knob.value != model.knob.default:
        # It counts as it stands, where the other model starts there.
        aside.add(model.knob.name)
        if model.knob.value != there.knob.value:
            return [f"{model.knob.name} = {model.knob.value} (there: {there.knob.value}); set_knob back first"]
    for part, found in zip(components(model.encoding), components(there.encoding), strict=True):
        options = {key: value for key, value in _effective(part).items() if key not in aside}
        wrong += [f"{part.name} {words}" for words in _unequal(options, _effective(found))]
    return wrong


def _unequal(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [f"{key} = {value!r} (there: {theirs[key]!r})" for key, value in ours.items() if theirs[key] != value]


def _effective(part: PositionEncoding) -> dict[str, Any]:
    options = encoding_options(part)
    # The frame of squeezed coordinates is written out where there is one.
    if "reference" in options:
        frame = tuple(options["reference"] or part.shape.train_grid)
        options["reference"] = frame if options["coordinates"] == "squeezed" else None
    return options


def _canonical(config: ViTConfig) -> dict[str, Any]:
    """The fields with what follows from others written out, so that equal models are equal."""
    probe, embedder = config.pool == "attention", {}
    if config.embedder == "patches" or (config.embedder == "flexible" and kernel_side(config) == config.patch_size):
        # A flexible one with patches of its kernel's size is a plain one, of which no rule counts.
        embedder = {"embedder": "patches", "embedder_options": {}}
    elif config.embedder == "flexible":
        rule = config.embedder_options.get("rule", KERNEL_RULES[0])
        embedder = {"embedder_options": {"base": kernel_side(config), "rule": rule}}
    head = config.head if config.num_classes or not config.has_classifier else None
    fields = vars(config) | {
        "architecture_options": architecture_class(config.architecture).options_of(config),
        "image_size": tuple(config.train_grid),
        "class_token": config.has_class_token,
        "embedder_options": embedder_class(config.embedder).options_of(config),
        # Other names of one encoding are options of it, which are looked at apart.
        "encoding": "+".join(next(iter(registry()[part].names)) for part in config.encoding.split("+")),
        # Ratios and first values are numbers of widths and of training; the widths count.
        "mlp_ratio": config.mlp_hidden,
        "layer_scale": config.layer_scale is not None,
        "head_dim": config.attention_width // config.heads,
        "pool_heads": (config.pool_heads or config.heads) if config.has_probe else None,
        "pool_mlp_ratio": config.pool_hidden if probe else None,
        "pool_prefix": config.pool_prefix and config.pool != "cls" and config.num_prefix_tokens > 0,
        "gelu": config.gelu if probe or config.mlp == "gelu" else None,
        "head": head,
        # Its value is one to start training from; that there is a bias is part of the model.
        "head_bias": config.head_bias is not False if config.num_classes else None,
        "head_hidden": (config.head_hidden or config.dim) if head == "mlp" else None,
    }
    return {key: value for key, value in (fields | embedder).items() if key not in _ASIDE}
