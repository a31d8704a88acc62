"""Exported files, made once where no test changes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.export import SUFFIXES, export_model
from sightline.models import VisionTransformer
from tests.export.models import small


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """`exported(model, **options)` is a new file."""
    folder = tmp_path_factory.mktemp("exported")

    def make(model: VisionTransformer, to: str = "onnx", **options) -> Path:
        file = folder / f"{len(list(folder.iterdir()))}{SUFFIXES[to]}"
        export_model(model, file, to=to, **options)
        return file

    return make


@pytest.fixture(scope="session")
def onnx_file(exported) -> Path:
    """`small()` as ONNX, which no test changes."""
    return exported(small())


@pytest.fixture
def no_work(monkeypatch):
    """Tracing fails the test: what is refused is refused before."""

    def forbidden(*_, **__):
        raise AssertionError("work was done before the refusal")

    monkeypatch.setattr(torch.export, "export", forbidden)
