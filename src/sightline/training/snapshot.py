"""What a run is at a step, copied to memory: what a checkpoint is made of, whoever writes it, and wherever.

Taking it (`state.snapshot`) and writing it (`saving.write_asked_checkpoint`) are apart: the steps go on
while it is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sightline.io.run_files import LOG, MODEL, TRAINING, VALIDATION, WEIGHTS
from sightline.io.sharded import copy_to_host, local_tensor
from sightline.training.log import text_of


@dataclass(frozen=True)
class Folder:
    """What a folder is to hold: files, and tensors by the file that holds them and by name."""

    files: Mapping[str, bytes]
    tensors: Mapping[str, Mapping[str, Tensor]]


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

    def checkpoint(self) -> Folder:
        """All of it."""
        training = {**self.record["training"], "data": self.data}
        lines = {LOG: text_of(self.log), VALIDATION: text_of(self.validation)}
        record = _record_file({**self.record, "training": training})
        return Folder({**record, **lines, **self.files}, {WEIGHTS: self.weights, TRAINING: self.training})

    def model(self) -> Folder:
        """The model alone, without the state of its training."""
        return Folder(_record_file(self.record), {WEIGHTS: self.weights})


def _record_file(record: Mapping[str, Any]) -> dict[str, bytes]:
    return {MODEL: (json.dumps(record, indent=2) + "\n").encode()}


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
        place, shape = self._kept.get(name), local_tensor(tensor).shape
        if place is None or place.shape != shape or place.dtype != wanted:
            place = torch.empty(shape, dtype=wanted, pin_memory=tensor.device.type == "cuda")
            self._kept[name] = place
        return copy_to_host(tensor, place)
