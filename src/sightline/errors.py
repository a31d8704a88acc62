"""The faults that a user can cause, each with the exit code that the command line promises."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

if TYPE_CHECKING:
    from pydantic import ValidationError


class SightlineError(Exception):
    """A fault with one line for the user; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class InputError(SightlineError, ValueError):
    """The user's input or configuration is wrong; nothing was written.

    Attributes:
        field: the key of a configuration that is wrong, as "optimizer.lr"; None where it is none.
        value: what was given for it.
    """

    exit_code = 2

    def __init__(self, said: str = "", *, field: str | None = None, value: object = None) -> None:
        super().__init__(said)
        self.field = field
        self.value = value


class UnreadableDataError(SightlineError):
    """Data could not be read, beyond the number of files that may be skipped."""

    exit_code = 3


class InaccessibleDataError(UnreadableDataError):
    """The system did not let a file be read: it may be whole, and readable another time."""


class NonFiniteError(SightlineError):
    """Training stopped before an optimiser step because a number was not finite."""

    exit_code = 4


class StorageError(SightlineError):
    """A file could not be written; what was there before is untouched."""

    exit_code = 5


class RanksError(SightlineError):
    """Another process of a run on several ended or cannot be reached; what was saved is whole."""

    exit_code = 6


class SweepError(SightlineError):
    """Cells of a sweep failed, each as often as it is tried; all others are finished."""

    exit_code = 7


class StoppedError(SightlineError):
    """A run was asked to stop; it finished its step and is saved."""

    exit_code = 143


# Our names, the first that a command has before others -> what other programs call them.
_SYNONYMS = {
    "lr": "learning_rate",
    "weight_decay": "wd",
    "ema": "ema_decay model_ema model_ema_decay",
    "batch_size": "bs",
    "workers": "num_workers",
    "resolution": "img_size image_size input_size",
    "resolutions": "img_size image_size input_size",
    "init_from": "pretrained checkpoint ckpt",
    "model": "pretrained checkpoint ckpt",
}


def known_as(name: object, allowed: Iterable[str]) -> list[str]:
    """The one of `allowed` that has this name, or that other programs call so; empty where none is."""
    names, said = list(allowed), str(name).lower().replace("-", "_")
    called = (one for one, words in _SYNONYMS.items() if said in words.split())
    return [one for one in (said, *called) if one in names][:1]


def near(name: object, allowed: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """What was probably meant, at least so similar; of a family, as `rope`, some of its members."""
    names, family = list(allowed), f"{str(name).lower().replace('-', '_')}_"
    begun = [one for one in names if one.startswith(family)][:4]
    return known_as(name, names) or begun or difflib.get_close_matches(str(name), names, n=1, cutoff=cutoff)


def did_you_mean(name: object, allowed: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of a message that says what is near, "; did you mean 'lr'?", or nothing."""
    close = near(name, allowed, cutoff)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def unknown_name_error(
    kind: str, name: object, allowed: Iterable[str], *, limit: int = 40, cutoff: float = 0.5
) -> InputError:
    """The error for a name that is not among `allowed`: it says the nearest ones and the list.

    Returned, not raised, so that the caller's line says `raise`.
    """
    names = sorted(allowed)
    hint = did_you_mean(name, names, cutoff)
    shown = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return InputError(f"{kind} {str(name)!r} is not known{hint} (allowed: {shown})")


def require_known(kind: str, name: object, allowed: Collection[str]) -> None:
    """Refuse a name that is not one of `allowed`, as `unknown_name_error`."""
    if name not in allowed:
        raise unknown_name_error(kind, name, allowed)


_UNKNOWN = "unexpected_keyword_argument"
# Kinds of pydantic's faults, and what they expected; of others its own words are taken.
_EXPECTED = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a group of keys",
    "dataclass_type": "a group of keys",
    "dataclass_exact_type": "a group of keys",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "missing": "a value",
}


def validation_error(error: ValidationError, where: str, cls: type | None, name: str = "") -> InputError:
    """The error of one line for what pydantic refused of a configuration of class `cls`, or of a value called `name`.

    It names the key, its value, what was expected and the nearest name; of several faults a key that is not known, or
    else the first. Returned, not raised, so that the caller's line says `raise`.
    """
    faults: Any = error.errors(include_url=False)
    places = [_locate(one["loc"], cls, name) for one in faults]
    # A member of a union that looked into a value says more than one that it is nothing for.
    inside = [one for one, (path, _) in zip(faults, places, strict=True) if path.startswith(f"{places[0][0]}[")]
    fault = next((one for one in faults if one["type"] == _UNKNOWN), (*inside, faults[0])[0])
    value, start = fault["input"], f"{where}: " if where else ""
    if fault["type"] == _UNKNOWN:
        path, owner = _locate(fault["loc"][:-1], cls)
        return _unknown_key_error(where, path, str(fault["loc"][-1]), owner or cls, value)
    path, _ = _locate(fault["loc"], cls, name)
    if fault["type"] == "value_error":
        cause = fault["ctx"]["error"]
        if not isinstance(cause, InputError):
            return InputError(f"{start}{path} = {_shortened(value)}: {cause}", field=path, value=value)
        if (field := cause.field) and path:
            joined = f"{path}.{cause}" if str(cause).startswith(field) else f"{path}: {cause}"
            return InputError(f"{start}{joined}", field=f"{path}.{field}", value=cause.value)
        said = f"{start}{path}: {cause}" if path else f"{start}{cause}"
        return InputError(said, field=field or path or None, value=cause.value if field else value)
    if fault["type"] == "missing" and path.endswith("]"):
        path = path[: path.rindex("[")]
        return InputError(f"{start}{path} = {_shortened(value)}: expected more entries", field=path, value=value)
    # Of a union each member has a fault of its own in the same place.
    same = [one for one, (other, _) in zip(faults, places, strict=True) if other == path]
    # What a user can write goes before objects of ours.
    same = [one for one in same if one["type"] != "is_instance_of"] or same
    expected = " or ".join(dict.fromkeys(map(_expected, same)))
    said = "is missing" if fault["type"] == "missing" else f"= {_shortened(value)}" if cls else _shortened(value)
    words = [word for one in same for word in _choices(one)]
    hint = did_you_mean(value, words) if isinstance(value, str) else ""
    return InputError(f"{start}{path} {said}: expected {expected}{hint}", field=path, value=value)


def _locate(places: Sequence[str | int], cls: type | None, path: str = "") -> tuple[str, type | None]:
    """Where pydantic found a fault, as "optimizer.betas[0]", and the dataclass there; members of unions are no keys."""
    owner, inside = cls, None
    for step in places:
        if isinstance(step, int):
            path += f"[{step}]"
        elif owner is not None and step in owner.__dataclass_fields__:  # type: ignore[attr-defined]
            path = f"{path}.{step}".lstrip(".")
            inside = owner = dataclass_in(get_type_hints(owner)[step])
    return path, cls if not places else inside


def dataclass_in(hint: Any) -> Any:
    """The dataclass in an annotation, as `PackingConfig | None`; None where there is none."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for one in get_args(hint) if (found := dataclass_in(one)) is not None), None)


def _unknown_key_error(where: str, path: str, key: str, owner: Any, value: object) -> InputError:
    """`lr` may also mean `optimizer.lr`, a key of one of the groups."""
    hints = get_type_hints(owner)
    names = {one.name: one.name for one in dataclasses.fields(owner)}
    groups = {name: dataclass_in(hints[name]) for name in names}
    inside = {one.name: f"{name}.{one.name}" for name, at in groups.items() if at for one in dataclasses.fields(at)}
    paths = inside | names
    close = [paths[one] for one in known_as(key, paths) or near(key, names) or near(key, inside)]
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    full = f"{path}.{key}".lstrip(".")
    return InputError(
        f"{where}: option {full!r} is not known{hint} (allowed: {', '.join(names)})", field=full, value=value
    )


def _expected(fault: Any) -> str:
    if choices := _choices(fault):
        return f"one of {', '.join(choices)}" if len(choices) > 1 else repr(choices[0])
    if fault["type"] in _EXPECTED:
        bounds = {name: _figure(one) for name, one in fault.get("ctx", {}).items()}
        return _EXPECTED[fault["type"]].format(**bounds)
    return fault["msg"].removeprefix("Input should be ")


def _figure(value: object) -> str:
    return f"{value:,.7g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _choices(fault: Any) -> list[str]:
    return re.findall("'([^']*)'", fault["ctx"]["expected"]) if fault["type"] in ("literal_error", "enum") else []


def _shortened(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
