"""What a foreign project is: what its arguments mean in our configuration, and which tensors of both are the same."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sightline.encodings.base import PositionEncoding
from sightline.encodings.create import components, encoding_options
from sightline.encodings.discovery import registry
from sightline.encodings.knob import without_knobs
from sightline.errors import InputError, require_known
from sightline.io.config import Number, check_value, whole
from sightline.io.tensors import is_finite
from sightline.models import Model, ViTConfig, make_model
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.models.head import ScoreLink
from sightline.models.kernel_resize import KERNEL_RULES
from sightline.models.patch_size import kernel_side

State = dict[str, Tensor]
Turn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TensorMap:
    """Some foreign tensors that are some of ours, and how each side is made of the other, bit by bit.

    Attributes:
        theirs, ours: names; no `ours` for a buffer that follows from the configuration.
        to_ours, to_theirs: inverse to each other; they take and give tensors in the order of the names.
    """

    foreign: tuple[str, ...]
    ours: tuple[str, ...]
    import_fn: Callable[[Sequence[Tensor]], list[Tensor]] = list
    export_fn: Callable[[Sequence[Tensor]], list[Tensor]] = list


def copy(theirs: str, ours: str) -> TensorMap:
    """The same tensor under another name, or under its own."""
    return TensorMap((theirs,), (ours,))


def transform(theirs: str, ours: str, to_ours: Turn, to_theirs: Turn) -> TensorMap:
    """One tensor that is laid out in another way."""
    return concat((theirs,), ours, to_ours, to_theirs)


def linear(theirs: str, ours: str) -> list[TensorMap]:
    """The weight and bias of a torch layer."""
    return [copy(f"{theirs}.{part}", f"{ours}.{part}") for part in ("weight", "bias")]


def unbatched(theirs: str, ours: str) -> TensorMap:
    """One tensor that has a first axis of length 1 there."""
    return transform(theirs, ours, lambda x: x[0], lambda x: x.unsqueeze(0))


def prefixed(theirs: str, ours: str, prefix: int = 1) -> TensorMap:
    """A table of one image whose first rows, those of the prefix tokens, are a tensor of their own here."""
    return TensorMap(
        (theirs,),
        (f"{ours}.prefix", f"{ours}.table"),
        lambda one: [one[0][0, :prefix], one[0][0, prefix:]],
        lambda parts: [torch.cat(list(parts)).unsqueeze(0)],
    )


def concat(
    theirs: Sequence[str],
    ours: str,
    to_ours: Turn = torch.clone,
    to_theirs: Turn = torch.clone,
    *,
    shares: Sequence[int] | None = None,
) -> TensorMap:
    """Tensors that are one here, one after the other, each turned first; of one length, or of these shares of all."""
    parts = shares or [1] * len(theirs)

    def apart(one: Sequence[Tensor]) -> list[Tensor]:
        unit = len(one[0]) // sum(parts)
        return [to_theirs(part) for part in one[0].split([unit * part for part in parts])]

    return TensorMap(tuple(theirs), (ours,), lambda all_: [torch.cat([to_ours(one) for one in all_])], apart)


def derived(theirs: Sequence[str], *values: Tensor) -> TensorMap:
    """Tensors that follow from the configuration, and are nothing here."""
    return TensorMap(tuple(theirs), (), lambda _: [], lambda _: list(values))


def kernel(config: ViTConfig, theirs: str = "patch_embed.proj.weight") -> TensorMap:
    """The convolution of a patch embedding, [dim, channels, height, width]."""
    shape = embedder_class(config.embedder).kernel_of(config)
    return transform(theirs, "patch_embed.proj.weight", lambda x: x.flatten(1), lambda x: x.reshape(shape))


def map_remaining(
    config: ViTConfig, special: Sequence[TensorMap], renamed: Sequence[tuple[str, str]] = ()
) -> list[TensorMap]:
    """`special`, and every other tensor of ours under its own name, but for `renamed`: patterns of ours, and theirs."""
    with torch.device("meta"):
        names = without_knobs(make_model(config).state_dict())
    taken = {name for entry in special for name in entry.ours}
    entries = list(special)
    for ours in names:
        if ours not in taken:
            theirs = ours
            for pattern, there in renamed:
                theirs = re.sub(pattern, there, theirs)
            entries.append(copy(theirs, ours))
    return entries


class Project(ABC):
    """A foreign project whose models can be ours, and ours its.

    Attributes:
        name: as `import_weights` is asked for it.
        source: where its code is.
        arguments: the arguments of its class that are understood, with its own defaults.
        plain: those of them that are fields of ours, and mean the same.
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
    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        """Our configuration of the model that `given`, its arguments with the defaults filled in, would build."""

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        """How the logits of its published weights are read: by the loss that trained them last."""
        return "softmax"

    @abstractmethod
    def export_arguments(self, model: Model) -> dict[str, Any]:
        """The arguments that would build `model` there.

        Raises:
            InputError: it cannot hold this model; says which part.
        """

    @abstractmethod
    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        """Every tensor of the state dict of the model that `given` builds, which `config` is ours of."""

    def plain_fields(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `ViTConfig` that `plain` arguments and `choices` are.

        Raises:
            InputError: a value is not among the choices, or not the only one.
        """
        for key in self.only:
            if given[key] != self.arguments[key]:
                expected = self.arguments[key]
                raise InputError(f"{self.name}: {key} = {given[key]!r} cannot be ours (expected {expected!r})")
        fields = {ours: given[theirs] for theirs, ours in self.plain.items()}
        for key, (ours, values) in self.choices.items():
            require_known(f"{self.name}: {key}", given[key], values)
            fields[ours] = values[given[key]]
        return fields

    def plain_arguments(self, config: ViTConfig) -> dict[str, Any]:
        """The inverse of `plain_fields`; the first choice for what is none."""
        held = {**vars(config), "image_size": config.table_size}
        given = {theirs: held[ours] for theirs, ours in self.plain.items()}
        for key, (ours, values) in self.choices.items():
            names = {value: name for name, value in values.items()}
            given[key] = names.get(held[ours], next(iter(values)))
        return given

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the project's defaults.

        Raises:
            InputError: one is not known (names the nearest), or is not of its default's kind.
        """
        for key, value in given.items():
            require_known(f"{self.name}: argument", key, self.arguments)
            # A side may be a pair, and is checked with the whole configuration.
            if key != "img_size":
                _check_kind(f"{self.name}: {key}", self.arguments[key], value, may_be_zero=key == "num_classes")
        return {**self.arguments, **given}

    def own_arguments(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, where `given` may be a whole configuration of the project's."""
        return given

    def rename_foreign(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights under the names that its class has for them."""
        return state

    def used_weights(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Those of them that compute what ours does."""
        return state

    def stored_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that say what the model is, to be written down with it."""
        return dict(given)

    def check_roundtrip(
        self, given: dict[str, Any], model: Model, state: Mapping[str, Tensor] | None = None
    ) -> dict[str, Any]:
        """`given`, where it (with what the weights `state` tell) would build `model`; else refused, saying in what."""
        wrong = differences(self.import_config(self.filled(given), state or {}), model)
        if wrong:
            raise InputError(f"{self.name}: cannot hold {'; '.join(wrong)}")
        return given

    def check_encoding(self, model: Model, *allowed: str) -> None:
        """Refuse a model with another encoding."""
        found = model.config.encoding
        if found not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise InputError(f"{self.name}: cannot hold encoding = {found!r} (expected {expected})")


def _check_kind(name: str, default: Any, value: Any, *, may_be_zero: bool) -> None:
    """Refuse an argument that is of another kind than its default."""
    count = whole(0 if default == 0 or may_be_zero else 1)
    # 0 and 1 are what they are in Python.
    flag = bool | Literal[0, 1]
    for kind, expected in ((str, str), (Mapping, dict[str, Any]), (bool, flag), (float, Number), (int, count)):
        if isinstance(default, kind):
            check_value(name, value, expected)
            return


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
        return [
            words.replace(f"encoding = {ours['encoding']!r}", f"encoding = {model.config.encoding!r}")
            for words in wrong
        ]
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
    """The options of an encoding, the frame of squeezed coordinates written out where there is one."""
    options = encoding_options(part)
    if "reference" in options:
        frame = tuple(options["reference"] or part.shape.train_grid)
        options["reference"] = frame if options["coordinates"] == "squeezed" else None
    return options


def _canonical(config: ViTConfig) -> dict[str, Any]:
    """The fields with what follows from others written out, so that equal models are equal."""
    probe = config.pool == "attention"
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
        **_embedder(config),
    }
    return {key: value for key, value in fields.items() if key not in _ASIDE}


def _embedder(config: ViTConfig) -> dict[str, Any]:
    """The embedder and its options, as far as they count: a flexible one with patches of its kernel's size is a plain
    one, and of that no rule counts."""
    plain = config.embedder == "patches" or (config.embedder == "flexible" and kernel_side(config) == config.patch_size)
    if plain:
        return {"embedder": "patches", "embedder_options": {}}
    if config.embedder != "flexible":
        return {}
    rule = config.embedder_options.get("rule", KERNEL_RULES[0])
    return {"embedder_options": {"base": kernel_side(config), "rule": rule}}


def convert(entries: Sequence[TensorMap], state: Mapping[str, Tensor]) -> State:
    """Foreign tensors to ours."""
    return {
        name: tensor.contiguous()
        for entry in entries
        for name, tensor in zip(entry.ours, entry.import_fn([state[one] for one in entry.foreign]), strict=True)
    }


def convert_back(entries: Sequence[TensorMap], state: Mapping[str, Tensor]) -> State:
    """Our tensors to foreign ones."""
    return convert([TensorMap(one.ours, one.foreign, one.export_fn, one.import_fn) for one in entries], state)


def check_state(project: str, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Refuse names missing or beyond those expected, another shape, or a number that is not finite; says which."""
    parts = []
    for what, one, other in (("missing", expected, state), ("not known", state, expected)):
        if names := [name for name in one if name not in other]:
            parts.append(f"{what} {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}")
    if parts:
        raise InputError(f"{project} weights: {'; '.join(parts)}")
    for name, tensor in expected.items():
        found = state[name]
        if found.shape != tensor.shape:
            raise InputError(f"{project} weights: {name} is {list(found.shape)}, expected {list(tensor.shape)} here")
        if not is_finite(found):
            raise InputError(f"{project} weights: {name} holds a number that is not finite")
