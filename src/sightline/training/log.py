"""The records of a run that grow line by line: its log, and its validation curve.

A checkpoint holds the lines up to its step, under its checksums. What stands in the run's folder is for readers; where
it is missing or damaged, a continuation writes it anew from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.io.atomic import write_file
from sightline.io.config import is_finite_number
from sightline.io.read import ROWS, read_bytes, read_jsonl, read_text
from sightline.io.run_files import VALIDATION
from sightline.results.rows import FRACTION, MetricValue

# What every line of a log has, and what later versions added: all of them numbers.
_NEEDED, _NUMBERS = {"step", "images", "loss"}, ("step", "images", "loss", "tokens", "flops", "lr")
# What a line of the curve has beside its metric.
_PLACE, _KIND = ("step", "images", "split", "count", "loss"), ("unit", "better", "counted")


def unheard(line: str) -> None:
    """What takes the warnings that nobody asked for."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's log.

    Raises:
        InputError: it cannot be read, or is damaged; names the line and what is wrong in it.
    """
    lines = read_jsonl(path, "a record of a step")
    for number, line in lines:
        said = ""
        if not isinstance(line, dict) or not line.keys() >= _NEEDED:
            said = "it is no record of a step"
        elif wrong := [key for key in _NUMBERS if not is_finite_number(line.get(key, 0))]:
            said = f"{wrong[0]} {line[wrong[0]]!r}, expected a number"
        if said:
            raise InputError(f"{path}:{number}: cannot be read as the log of a run ({said})")
    return [line for _, line in lines]


def format_validation(one: MetricValue) -> dict[str, Any]:
    """What a line of the validation curve says of a number: that of a fraction its value and its count, as ever."""
    kind = {} if one.unit == FRACTION else {name: getattr(one, name) for name in _KIND}
    return {one.metric: one.value, "count": one.count, **kind}


def parse_validation(line: Mapping[str, Any]) -> MetricValue:
    """The inverse of `format_validation`.

    Raises:
        KeyError, StopIteration, TypeError, ValueError: the line is none.
    """
    metric = next(name for name in line if name not in (*_PLACE, *_KIND))
    kind: dict[str, Any] = (
        {name: line[name] for name in _KIND} if "unit" in line else {"unit": FRACTION, "better": "higher"}
    )
    one = MetricValue(metric, line[metric], **kind, count=line["count"])
    if not is_finite_number(one.value) or (one.unit == FRACTION and not 0 <= one.value <= 1):
        raise ValueError(f"{metric} {one.value}")
    return one


def read_curve(folder: Path) -> list[tuple[dict[str, Any], MetricValue]]:
    """The lines of a run's validation curve, and what each measured; none where the run was not validated.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    path, curve = folder / VALIDATION, []
    try:
        for number, line in read_jsonl(path, "a record of a validation") if path.exists() else ():
            one = parse_validation(line)
            if not one.count or not all(isinstance(line[key], int) and line[key] >= 0 for key in ("step", "images")):
                raise ValueError(f"line {number} is no record of a validation")
            curve.append((line, one))
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as validation while training ({error})") from None
    return curve


def read_lines(path: Path) -> list[str]:
    """The lines of a record in a checkpoint; raises InputError where it cannot be read."""
    return read_text(path, ROWS, "a record of a run").splitlines()


def text_of(lines: Sequence[str]) -> bytes:
    """The file of some lines."""
    return "".join(f"{line}\n" for line in lines).encode()


def restore_file(path: Path, lines: Sequence[str], warn: Callable[[str], None]) -> None:
    """See that a record begins with the lines that the checkpoint holds; where it does not, it is written anew.

    Args:
        warn: called with a line that says so.

    Raises:
        InputError: it is there, and cannot be read.
    """
    whole, found = text_of(lines), read_bytes(path, ROWS, "a record of a run") if path.exists() else None
    if not whole or (found is not None and found.startswith(whole)):
        return
    write_file(path, whole)
    # The beginning of it is what a kill after the checkpoint leaves.
    if not (found and whole.startswith(found)):
        what = "was not as the run had written it" if found is not None else "was missing"
        warn(f"{path}: {what}; its {len(lines)} lines are there again, from the checkpoint")
