"""What a foreign project is: what its arguments mean in our configuration, and which tensors of both are the same."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from sightline.convert.maps import State, TensorMap, convert_back, shapes_of
from sightline.encodings.base import PositionEncoding
from sightline.encodings.create import components, encoding_options
from sightline.encodings.discovery import registry
from sightline.errors import InputError, require_known
from sightline.io.config import Count, Index, Number, build_config, check_value
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
_TRAINING = (
    r"(.*\.)?(num_batches_tracked|relative_position_index|attn_mask|n_averaged)$",
    r"(initted|step|mask_token|masked_embed)$",
    r"((dino_|ibot_)?head\.(mlp|last_layer)|dino_head|ibot_head|lm_head|projector|projection_head|predictor|prototypes"
    r"|criterion|(\w+_)?loss(_fn)?|(train|val|valid|test)_\w+|metrics?)\.|decoder_(embed|pos_embed|blocks|norm|pred)\b",
)
"""Names of training alone: counters, heads of self-supervision, what hides patches, losses, measures."""


class Project(ABC):
    """A foreign project whose models can be ours, and ours its.

    Attributes:
        name: as `import_weights` is asked for it.
        source: where its code is.
        arguments: the arguments of its class that are understood, with its own defaults.
        fields: those of them that are fields of ours: our name (`mlp_hidden`, for which `mlp_ratio` stands, is one), or
            that and what each value is there; of two names of one value the last is given back.
        only: those of which ours can have the default alone.
        encodings: of ours that it can hold; none where its other arguments say it.
        inside, ignored: where a whole configuration of the project's has the arguments, and what else is in there.
        aside: patterns of names of tensors that nothing of ours computes with; they do not come back.
        example: an argument as a command takes it, for whoever gave none; "" where the weights tell enough.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    arguments: ClassVar[Mapping[str, Any]]
    fields: ClassVar[Mapping[str, str | tuple[str, Mapping[Any, Any]]]] = {}
    only: ClassVar[Sequence[str]] = ()
    encodings: ClassVar[Sequence[str]] = ()
    inside: ClassVar[str] = ""
    ignored: ClassVar[Sequence[str]] = ()
    aside: ClassVar[Sequence[str]] = ()
    example: ClassVar[str] = "embed_dim=384"

    @abstractmethod
    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        """Our configuration of the model that `given`, its arguments with the defaults filled in, would build."""

    @abstractmethod
    def export_arguments(self, model: Model) -> dict[str, Any]:
        """The arguments that come nearest to `model`; raises InputError where a part has no argument at all."""

    @abstractmethod
    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        """Every tensor of the state dict of the model that `given` builds, which `config` is ours of."""

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        """How the logits of its published weights are read: by the loss that trained them last."""
        return "softmax"

    def rename_foreign(self, state: State) -> State:
        """The weights under the names that its class has for them."""
        return state

    def checked_arguments(self, model: Model) -> dict[str, Any]:
        """The arguments that, with what the weights tell, build `model` there.

        Raises:
            InputError: it cannot hold this model; says which part.
        """
        if self.encodings:
            self.require("encoding", model.config.encoding, *self.encodings)
        given = self.export_arguments(model)
        whole, shapes, state = self.filled(given), shapes_of(model.config), {}
        for entry in self.tensor_maps(model.config, whole):
            # What ours has not, or has in another shape, shows where the configuration is read back.
            with contextlib.suppress(KeyError, RuntimeError):
                state |= convert_back([entry], shapes)
        self.require_no(differences(self.import_config(whole, state), model))
        return given

    def plain_fields(self, given: Arguments) -> dict[str, Any]:
        """The fields of `ViTConfig` that arguments are.

        Raises:
            InputError: a value has no meaning in ours.
        """
        for key in self.only:
            if given[key] != (expected := self.arguments[key]):
                raise InputError(f"{self.name}: {key} = {given[key]!r} cannot be ours (expected {expected!r})")
        found = {}
        for theirs, ours in self.fields.items():
            if isinstance(ours, str):
                found[ours] = given[theirs]
            else:
                require_known(f"{self.name}: {theirs}", given[theirs], ours[1])
                found[ours[0]] = ours[1][given[theirs]]
        if "mlp_hidden" in found:
            found["mlp_ratio"] = found.pop("mlp_hidden") / found["dim"]
        return found

    def plain_arguments(self, config: ViTConfig) -> dict[str, Any]:
        """The inverse of `plain_fields`; the first value of those that mean something for what none means."""
        held = {**vars(config), "image_size": config.table_size, "mlp_hidden": config.mlp_hidden}
        given = {}
        for theirs, ours in self.fields.items():
            if isinstance(ours, str):
                given[theirs] = held[ours]
            else:
                names = {value: name for name, value in ours[1].items()}
                given[theirs] = names.get(held[ours[0]], next(iter(ours[1])))
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
            if key not in ("img_size", "image_size"):
                zero = kind is Count and (default == 0 or key == "num_classes")
                check_value(f"{self.name}: {key}", value, Index if zero else kind)
        return {**self.arguments, **given}

    def own_arguments(self, given: Arguments) -> Arguments:
        """The arguments that say what the model is, where `given` may be a whole configuration of the project's."""
        if isinstance(whole := given.get(self.inside), Mapping):
            return {name: value for one in (whole, given) for name, value in one.items() if name in self.arguments}
        return {name: value for name, value in given.items() if name not in self.ignored}

    def computes_nothing(self, name: str) -> bool:
        """Whether a tensor of this name serves training alone, or is `aside`."""
        return any(re.match(pattern, name) for pattern in (*self.aside, *_TRAINING))

    def require(self, field: str, found: object, *allowed: object) -> None:
        """Refuse a model that has another value of a field than those allowed."""
        if found not in allowed:
            self.require_no([f"{field} = {found!r} (expected {' or '.join(map(repr, allowed))})"])

    def require_no(self, wrong: Sequence[str]) -> None:
        """Refuse a model in which something is wrong."""
        if wrong:
            raise InputError(f"{self.name}: cannot hold {'; '.join(wrong)}")


# Not of what a model computes: how it is prepared, trained and named.
_ASIDE = (
    "mean", "std", "interpolation", "crop", "crop_mode", "class_names", "score_link", "origin", "drop_path",
    # What counts of the last two is `train_grid`.
    "encoding_options", "table_grid", "clip_frames",
    # A project with heads of all tokens reads them off the head itself.
    "head_options",
)  # fmt: skip


def differences(config: ViTConfig, model: Model) -> list[str]:
    """Where a model built from `config` would not compute what `model` does, a phrase for each."""
    ours = _canonical(model.config)
    if wrong := [*_unequal(ours, _canonical(config)), *_other_texts(config, model)]:
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


def _other_texts(config: ViTConfig, model: Model) -> list[str]:
    """Where a text tower built from `config` would not be that of `model`."""
    ours = getattr(getattr(model.head, "options", None), "text", None)
    if ours is None or (there := config.head_options.get("text")) is None:
        return []
    tower, other = vars(ours), vars(build_config(type(ours), there, "text"))
    # Ratios are numbers of widths.
    tower, other = ({**one, "mlp_ratio": round(one["mlp_ratio"] * one["dim"])} for one in (tower, other))
    return [f"text {words}" for words in _unequal(tower, other)]


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
