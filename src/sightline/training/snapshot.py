"""What a run is at a step, copied to memory: what a checkpoint is made of, whoever writes it, and wherever.

Taking it (`state.snapshot`) and writing it (`saving.write_checkpoint`) are apart: the steps go on while it is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.checkpoint import tensor_writer
from sightline.run_files import LOG, MODEL, TRAINING, VALIDATION, WEIGHTS
from sightline.training.log import text_of

Content = bytes | Callable[[Path], None]


@dataclass(frozen=True)
class Snapshot:
    """A run at a step; no later step changes any of it.

    Attributes:
        weights: of the model as it is tested, by name; training: what the next step needs beside them. On the CPU.
        record: of the model, with that of its training in "training", as JSON has it.
        data: what the training's record says of the data.
        log, validation: the lines until here.
        files: what else stands in a checkpoint, by name.
    """

    step: int
    weights: Mapping[str, Tensor]
    training: Mapping[str, Tensor]
    record: Mapping[str, Any]
    data: Mapping[str, Any]
    log: Sequence[str]
    validation: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of training until here."""
        return self.record["training"]["seconds"]

    def checkpoint_files(self) -> dict[str, Content]:
        """All of it, as files of a folder by name."""
        training = {**self.record["training"], "data": self.data}
        state = {TRAINING: tensor_writer(self.training), LOG: text_of(self.log), VALIDATION: text_of(self.validation)}
        return {**self._model_files({**self.record, "training": training}), **state, **self.files}

    def model_files(self) -> dict[str, Content]:
        """The model alone, without the state of its training."""
        return self._model_files(self.record)

    def _model_files(self, record: Mapping[str, Any]) -> dict[str, Content]:
        text = (json.dumps(record, indent=2) + "\n").encode()
        return {WEIGHTS: tensor_writer(self.weights), MODEL: text}


class Memory:
    """Where tensors are copied to, kept from one snapshot to the next: to get fresh memory takes longer than a copy.

    A snapshot is not to be read any more when the next one is taken.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def copied(self, tensors: Mapping[str, Tensor], prefix: str, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Tensors by name on the CPU, contiguous.

        Args:
            prefix: tells these names from others of the same snapshot.
            dtype: of those that are floating point; None leaves it.
        """
        copies = {name: self._copy(prefix + name, tensor.detach(), dtype) for name, tensor in tensors.items()}
        for device in {tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"}:
            # Copies from there to pinned memory run on by themselves.
            torch.cuda.current_stream(device).synchronize()
        return copies

    def _copy(self, name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
        wanted = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        place, from_gpu = self._kept.get(name), tensor.device.type == "cuda"
        if place is None or place.shape != tensor.shape or place.dtype != wanted:
            place = torch.empty(tensor.shape, dtype=wanted, pin_memory=from_gpu)
            self._kept[name] = place
        return place.copy_(tensor, non_blocking=from_gpu)
