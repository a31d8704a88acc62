"""Golden records: what the library computed when they were made, for a change that must not move a number.

    python -m tests.golden.records [GROUP ...]

writes `records/GROUP.json` anew; a change that does so says in CHANGELOG which lines moved and why. No record depends
on the processor: whole numbers, names and uint8 pixels are hashed (SHA-256), floats are stored as `summary` gives them
and compared within a tolerance.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

FOLDER = Path(__file__).parent / "records"
# Of the largest value of an array: passes of a model, and arithmetic on stored numbers.
PASS_TOLERANCE, EXACT_TOLERANCE = 1e-5, 1e-9
# Values of an array that are stored, spread over it.
SAMPLES = 24


def digest(*parts: Any) -> str:
    """The first 16 digits of the SHA-256 of arrays of whole numbers, text and JSON values."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.Tensor):
            part = part.numpy()
        if isinstance(part, np.ndarray):
            assert part.dtype.kind in "iub", part.dtype
            found.update(f"{part.shape}{part.dtype}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()[:16]


def summary(array: Any) -> dict[str, Any]:
    """An array of floats: its shape, how many are not finite, norm, largest value, two weighted sums, some values."""
    values = np.asarray(array.detach() if isinstance(array, torch.Tensor) else array, np.float64)
    missing = ~np.isfinite(values)
    flat = np.where(missing, 0.0, values).ravel()
    weights = np.random.Generator(np.random.Philox(7)).uniform(-1, 1, (2, flat.size))
    places = np.unique(np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(int)) if flat.size else []
    return {
        "shape": list(values.shape),
        "missing": int(missing.sum()),
        "norm": float(np.linalg.norm(flat)),
        "largest": float(np.abs(flat).max(initial=0)),
        "sums": (weights @ flat / max(1.0, flat.size**0.5)).tolist(),
        "values": flat[places].tolist() if flat.size else [],
    }


def plain(value: Any) -> Any:
    """A value as JSON holds it; integer arrays become digests, float arrays summaries."""
    if isinstance(value, torch.Tensor | np.ndarray):
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        if array.dtype.kind in "OU":
            return array.tolist()
        return digest(array) if array.dtype.kind in "iub" else summary(array)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def differences(recorded: Any, found: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Where two records differ: floats by more than `tolerance` of the largest of their list or summary."""
    if isinstance(recorded, Mapping) and isinstance(found, Mapping):
        for key in sorted({*recorded, *found}):
            if key in recorded and key in found:
                own = _scaled(recorded[key], recorded)
                yield from differences(own, _scaled(found[key], recorded), tolerance, f"{where}/{key}")
            else:
                yield f"{where}/{key}: {'not recorded' if key in found else 'not found'}"
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for place, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(one, other, tolerance, f"{where}[{place}]")
    elif isinstance(recorded, float) and isinstance(found, float | int):
        same = recorded == found or (recorded != recorded and found != found)
        if not same and not abs(recorded - found) <= tolerance * max(1.0, abs(recorded)):
            yield f"{where}: {found!r}, recorded {recorded!r}"
    elif recorded != found or type(recorded) is not type(found):
        yield f"{where}: {found!r}, recorded {recorded!r}"


def _scaled(value: Any, within: Mapping[str, Any]) -> Any:
    """The floats of a summary as parts of its largest value."""
    largest = within.get("largest")
    if not isinstance(largest, float) or not largest or "sums" not in within:
        return value
    if isinstance(value, float):
        return value / largest
    if isinstance(value, list):
        return [one / largest if isinstance(one, float) else one for one in value]
    return value


def read(group: str) -> Any:
    return json.loads((FOLDER / f"{group}.json").read_text())


def write(group: str, found: Any) -> None:
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in found.items()]
    (FOLDER / f"{group}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(groups: list[str]) -> None:
    """Write the records of some groups, or of all."""
    from tests.golden.data_cases import GROUPS as data
    from tests.golden.result_cases import GROUPS as results

    every: dict[str, Callable[[], Any]] = {**data, **results}
    for group in groups or every:
        write(group, plain(every[group]()))


if __name__ == "__main__":
    main(sys.argv[1:])
