"""Options that are made of a configuration: one for each of its fields and groups, as `--optimizer.lr 1e-3`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from sightline.errors import InputError, dataclass_in, known_as, near
from sightline.io.yaml import parse_yaml

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

# Shorter names for what is typed often.
_ALIASES = {"optimizer.lr": "--lr", "optimizer.weight_decay": "--weight-decay", "validation": "--val"}
_given: ContextVar[Mapping[str, Any]] = ContextVar("given")


def settings_class(
    cls: type,
    *,
    without: Collection[str] = (),
    titles: Mapping[str, Collection[str]] = MappingProxyType({}),
    prefix: str = "",
) -> type:
    """A class that cyclopts makes options of: one for each field of a configuration and of the groups in it.

    Its instances hold nothing: only `command_line_settings` tells what was given from what is a default.

    Args:
        titles: a heading of the help -> the fields below it.
    """
    headings = {name: Group(title, sort_key=place) for place, title in enumerate(titles) for name in titles[title]}
    hints, made = get_type_hints(cls), []
    for one in dataclasses.fields(cls):
        if one.name in without:
            continue
        path = f"{prefix}{one.name}"
        group = dataclass_in(hints[one.name])
        default = one.default if one.default not in (None, dataclasses.MISSING, (), False) else None
        look: dict[str, Any] = {"alias": _ALIASES.get(path), "show_default": default and (lambda _, text=default: text)}
        if group is not None:
            kind = settings_class(group, prefix=f"{path}.")
            look = {"alias": _ALIASES.get(path), "group": f"{one.name.replace('_', ' ').capitalize()}"}
        elif any(get_origin(part) is tuple for part in (hints[one.name], *get_args(hints[one.name]))):
            kind, look = tuple[str, ...], look | {"consume_multiple": True}
        elif bool in (hints[one.name], *get_args(hints[one.name])):
            kind, look = bool, look | {"negative": f"--no-{one.name.replace('_', '-')}"}
        else:
            kind, look = hints[one.name], look | {"allow_leading_hyphen": True}
        if group is None and one.name in headings:
            look["group"] = headings[one.name]
        # Words are read as YAML, in which JSON is contained.
        made.append((one.name, Annotated[kind | None, Parameter(json_dict=False, json_list=False, **look)], None))
    made_of = {"__doc__": cls.__doc__, "__module__": cls.__module__, "is_settings": True}
    return dataclasses.make_dataclass(cls.__name__, made, namespace=made_of, frozen=True, kw_only=True)


def command_line_settings() -> dict[str, Any]:
    """What the command line says of a configuration, nested, as YAML has it."""
    return dict(_given.get())


def collect_settings(app: App, commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Read the words that are given for a configuration as YAML; a part of cyclopts' parsing (`App.config`).

    Words of a `settings_class` go to `command_line_settings`; those of an option with keys, as
    `--task-options.threshold .1`, stay its own, as one mapping.

    Raises:
        InputError: a word is no YAML, or two of them are for one place.
    """
    given: dict[str, Any] = {}
    roots = [one for one in arguments if getattr(one.resolved_hint, "is_settings", False)]
    mine = [inside for root in roots for inside in (root, *root.children_recursive)]
    for argument in arguments:
        if not argument.tokens:
            continue
        ours = any(argument is one for one in mine)
        path = argument.name.removeprefix("--").replace("-", "_").split(".") if ours else []
        values: dict[str, Any] = given if ours else {}
        for keys in dict.fromkeys(token.keys for token in argument.tokens):
            tokens = [token for token in argument.tokens if token.keys == keys]
            where = [*path, *(key.replace("-", "_") for key in keys)]
            if where:
                _put(values, where, _value(argument.resolved_hint, tokens, keys), str(tokens[0].keyword))
        if ours:
            argument.tokens.clear()
        elif values:
            # As one mapping, which `runs.options.KeyOptions` reads.
            argument.tokens[:] = [argument.tokens[0].evolve(keys=(), value=json.dumps(values))]
    _given.set(given)


def _value(hint: Any, tokens: Sequence[Any], keys: Sequence[str]) -> Any:
    """What the words of one option stand for."""
    first = tokens[0]
    if first.implicit_value is True or first.implicit_value is False:
        return first.implicit_value
    texts = [token.value for token in tokens]
    if hint is str and not keys:
        return None if texts[-1] == "null" else texts[-1]
    if get_origin(hint) is tuple and not texts[0].startswith("[") and texts != ["null"]:
        return parse_yaml(f"[{','.join(texts)}]", first.keyword)
    if len(texts) > 1:
        raise InputError(f"{first.keyword} {texts[1]}: is given twice", field=".".join(keys), value=texts[1])
    return parse_yaml(texts[0], f"{first.keyword} {texts[0]}")


def _put(values: dict[str, Any], path: Sequence[str], value: Any, option: str) -> None:
    *groups, last = path
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise InputError(f"{option}: {group} is given as well, which holds it", field=".".join(path))
    if last in values:
        raise InputError(f"{option}: a part of it is given as well", field=".".join(path))
    values[last] = value


def meant(option: str, taken: Collection[str], *, trains: bool = False) -> str:
    """What was probably meant by an option that a command does not have, as `--resolution`, or "".

    Args:
        option: the word, with or without "=VALUE".
        taken: the options that the command has.
        trains: it has those of a run too; of other commands, what is an option of `sightline train` is said.
    """
    from sightline.training.config import TrainConfig

    name = _field(option.partition("=")[0])
    groups = [one for one in taken if one in ("--task-options", "--options", "--arguments")]
    if name == "set":
        return " or ".join(["--optimizer.lr 1e-3"] if trains else [f"{one}.NAME VALUE" for one in groups])
    if name == "head" and "--task-options" in groups:
        return "--task-options.head"
    here, there = _by_field(taken), {} if trains else _by_field(_option_names(TrainConfig))
    if not known_as(name, here) and (found := known_as(name, there)):
        return f"sightline train {there[found[0]]}"
    return " or ".join(here[one] for one in near(name, here))


def _by_field(options: Iterable[str]) -> dict[str, str]:
    """Options by the last part of their names; of those that end alike the shortest, as --images."""
    found: dict[str, str] = {}
    for one in options:
        name = _field(one)
        found[name] = min(one, found.get(name, one), key=len)
    return found


def _field(option: str) -> str:
    return option.lstrip("-").replace("-", "_").rpartition(".")[2]


def _option_names(cls: type, prefix: str = "--") -> Iterable[str]:
    hints = get_type_hints(cls)
    for one in dataclasses.fields(cls):
        name = f"{prefix}{one.name.replace('_', '-')}"
        yield name
        if group := dataclass_in(hints[one.name]):
            yield from _option_names(group, f"{name}.")
