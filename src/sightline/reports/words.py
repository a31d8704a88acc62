"""How metrics, numbers, times and names are written: a metric that is not known here by its own name and unit."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from sightline.results.rows import FRACTION, MetricValue

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

# What the highest value is called, and the lowest where that is the better one.
EXTREME = {"higher": "highest", "lower": "lowest"}
# Of a size, whether all runs that are spoken of were trained at it alone, saw it among others, or only name it.
SEEN = {"trained": ", as trained", "seen": ", seen in training", "nominal": ", nominal size", "": ""}


@functools.cache
def about() -> dict[str, Any]:
    """What is said of metrics and data: `about.toml`."""
    return tomllib.loads(files("sightline.reports").joinpath("about.toml").read_text("utf-8"))


def title(metric: str) -> str:
    """ "top-1 accuracy": a metric in words."""
    known = about()["accuracies"] | about()["names"]
    return known.get(metric) or printable(metric.replace("_", " "))


def short(metric: str) -> str:
    """The same where nothing else is spoken of: "accuracy"."""
    return "accuracy" if metric in about()["accuracies"] else title(metric)


def capital(text: str) -> str:
    """The text with a capital."""
    return text[:1].upper() + text[1:]


def heading(one: MetricValue) -> str:
    """ "Top-1 accuracy in %"."""
    return capital(title(one.metric)) + (f" in {unit(one.unit)}" if one.unit else "")


def axis(one: MetricValue) -> str:
    """ "top-1 accuracy (%)"."""
    return title(one.metric) + (f" ({unit(one.unit)})" if one.unit else "")


def unit(name: str) -> str:
    """The unit in which numbers are shown: fractions are, in percent."""
    return "%" if name == FRACTION else printable(name)


def scaled(value: float, unit: str) -> float:
    """The value as it is shown: fractions in percent."""
    return 100 * value if unit == FRACTION else value


def number(value: float, unit: str, sign: str = "") -> str:
    """ "93.8" for a fraction, and four digits of anything else; `sign` is "+" for a difference."""
    return f"{scaled(value, unit):{sign}{'.1f' if unit == FRACTION else '.4g'}}"


def quantity(value: float, name: str) -> str:
    """ "93.8 %" or "3.21 px", with a blank that does not break."""
    return f"{number(value, name)}\u00a0{unit(name)}".rstrip("\u00a0")


def percent(fraction: float) -> str:
    """ "93.8 %"."""
    return quantity(fraction, FRACTION)


def limits(one: MetricValue) -> tuple[str, ...]:
    """Where a value lies with 95 %, as two numbers; none where that is not known."""
    return tuple(number(limit, one.unit) for limit in one.limits() or ())


def clip(limits: Sequence[float], unit: str) -> list[float]:
    """Limits of an interval, those of a fraction within 0 and 1."""
    return [min(max(limit, 0.0), 1.0) if unit == FRACTION else limit for limit in limits]


def interval(limits: Sequence[str]) -> str:
    """ "[92.6, 94.8]"."""
    return f"[{limits[0]},\u00a0{limits[1]}]" if limits else ""


def with_interval(one: MetricValue) -> str:
    """ "93.8 % [92.6, 94.8]"."""
    return f"{quantity(one.value, one.unit)} {interval(limits(one))}".rstrip()


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def span(values: Sequence[object]) -> str:
    """ "16" or "16 to 64"."""
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def printable(text: object) -> str:
    """`text` on one line without control characters, which neither a terminal nor XML should be handed."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def duration(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 05 s" or "2 h 07 min"; an en dash for 0."""
    if seconds <= 0:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}\u00a0s"
    if minutes < 60:
        return f"{minutes}\u00a0min\u00a0{rest:02d}\u00a0s"
    hours, minutes = divmod(round(minutes + rest / 60), 60)
    return f"{hours}\u00a0h\u00a0{minutes:02d}\u00a0min"
