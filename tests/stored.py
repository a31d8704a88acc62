"""Files of logits as `sightline evaluate --logits` writes them, of numbers that a test gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.evaluation.logits import StoredLogits, write_logits


def store(
    folder: Path,
    logits: Any,
    labels: Any,
    *,
    run: str = "a",
    side: int = 16,
    names: Sequence[str] | None = None,
    indices: Any = None,
    classes: Sequence[str] | None = None,
    link: str = "softmax",
    work: str = "weights-work",
    **measured: Any,
) -> Path:
    """Write one measurement; `measured` are other fields of its rows."""
    logits, labels = np.asarray(logits, np.float32), np.asarray(labels, np.int64)
    count, most = logits.shape
    about = {
        "run": run, "encoding": "lookhere_90", "task": "t", "data": "d", "split": "test", "train_resolution": 16,
        "seed": 0, "commit": "c", "hardware": "h", "resolution": side, "grid": (side // 4, side // 4), "knob": None,
        "tuned": False, "seconds": 1.0, "view": "square", "patches": float((side // 4) ** 2), "shrunk": None,
        "ranks": 1,
    } | measured  # fmt: skip
    task = {
        "score_link": link, "options": {"loss": "ce", "label_smoothing": 0.0}, "groups": {},
        "classes": list(classes or map(str, range(most))),
    }  # fmt: skip
    stored = StoredLogits(
        logits, labels, np.arange(count) if indices is None else np.asarray(indices, np.int64),
        list(names or (f"{number}.png" for number in range(count))), [{}] * count, task, about, work,
    )  # fmt: skip
    told = "-".join(str(about[name]) for name in ("run", "seed", "shrunk", "view"))
    name = f"{about['split']}_{told}_{side}_px{'_tuned' if about['tuned'] else ''}.npz"
    write_logits(folder, name, stored)
    return folder / name
