"""Clips in files, as tests make them: folders of frames, animated files, and stills."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (12, 16)


def frames_of(seed: int, count: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """uint8 [count, height, width, 3]: greys of few levels, which a GIF keeps, another one in each frame."""
    drawn = np.random.default_rng(seed).integers(0, 8, (count, *size, 1), dtype=np.uint8) * 32
    drawn[:, 0, 0] = np.arange(count, dtype=np.uint8)[:, None] * 8
    return np.repeat(drawn, 3, axis=3)


def save_gif(path: Path, frames: np.ndarray, **options: object) -> Path:
    return _animated(path, frames, optimize=False, **options)


def save_webp(path: Path, frames: np.ndarray) -> Path:
    return _animated(path, frames, lossless=True)


def _animated(path: Path, frames: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [Image.fromarray(one) for one in frames]
    first.save(path, save_all=True, append_images=rest, duration=40, **options)
    return path


def save_folder(path: Path, frames: Sequence[np.ndarray] | np.ndarray, first: int = 8) -> Path:
    """A folder whose files are numbered so that only natural order is that of the frames."""
    path.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(frames, start=first):
        Image.fromarray(one).save(path / f"frame{number}.png")
    return path


def save_still(path: Path, frame: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(frame).save(path)
    return path


def make(root: Path, splits: Sequence[str] = ("train", "test"), classes: Sequence[str] = ("jump", "run")) -> Path:
    """Of each class of each split a folder of 5 frames, a GIF of 4, a WebP of 3 and a still."""
    seed = 0
    for split in splits:
        for name in classes:
            seed += 10
            save_folder(root / split / name / "a", frames_of(seed, 5))
            save_gif(root / split / name / "b.gif", frames_of(seed + 1, 4))
            save_webp(root / split / name / "c.webp", frames_of(seed + 2, 3))
            save_still(root / split / name / "d.png", frames_of(seed + 3, 1)[0])
    return root
