"""The model that a suite measures: a folder of ours, the Hub's, or what timm builds by a name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sightline.convert import import_weights
from sightline.convert.timm import Timm, read_timm_folder
from sightline.convert.weights import read_weights
from sightline.data.config import SkipUnreadable
from sightline.data.image_file import MAX_PIXELS
from sightline.distributed.machine import preserve_rng_state
from sightline.errors import InputError
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.suite import side_of
from sightline.hub.load import load_model, resolve_source
from sightline.io.config import Count, check_value
from sightline.models import Model
from sightline.models.patch_size import set_patch_size
from sightline.training.run import Run, open_run

# With which weights that nobody trained are drawn: the same each time, so that what was stopped goes on.
_SEED = 0


@dataclass(frozen=True)
class SuiteRequest:
    """A model as it was asked for; see `opened`.

    Attributes:
        model: a folder, `hf-hub:owner/name`, or `timm:name`.
        pretrained: with timm's published weights; num_classes: of its head; weights: a file of its state dict.
        patch_size: to measure it with, where that is not to be its own.
    """

    model: str
    pretrained: bool = True
    num_classes: int | None = None
    weights: Path | None = None
    patch_size: int | None = None

    @property
    def is_timm(self) -> bool:
        """Whether timm builds it by a name."""
        return self.model.startswith("timm:")

    def opened(self, suite: str, device: torch.device) -> tuple[Model, RunInfo, SkipUnreadable, int]:
        """The model in evaluation mode with the patches that were asked for, what its rows say of it, how many images
        may be left out, and the most pixels of one: as of its training, where that is known.

        Raises:
            InputError: there is no such model, or what was asked of it goes with `timm:` alone.
        """
        model, identity, skip, pixels = self._as_it_is(suite, device)
        return model, replace(identity, patch_size=self._with_patches(model)), skip, pixels

    def _with_patches(self, model: Model) -> int | None:
        """Give a model the patches that were asked for; their side where it is not its own."""
        if self.patch_size is None or model.patch_embed.patch_size == (self.patch_size,) * 2:
            return None
        try:
            set_patch_size(model, self.patch_size)
        except InputError as error:
            raise InputError(f"{self.model}: {error}") from None
        return self.patch_size

    def _as_it_is(self, suite: str, device: torch.device) -> tuple[Model, RunInfo, SkipUnreadable, int]:
        kind, _, name = self.model.partition(":")
        if kind == "timm" and name:
            model = self._of_timm(name).to(device)
            words = "" if self.pretrained else ", random weights"
            if self.weights is not None:
                words = f", {self.weights.name}"
            return model, RunInfo(f"{self.model}{words}", suite, side_of(model), _SEED), 0, MAX_PIXELS
        self._refuse_options_of_timm()
        if read_timm_folder(resolve_source(self.model)) is not None:
            model = load_model(self.model).to(device)
            named = self.model if kind == "hf-hub" else resolve_source(self.model).resolve().name
            return model, RunInfo(named, suite, side_of(model), _SEED), 0, MAX_PIXELS
        run = open_run(self.model, suite, device=device)
        named = run.identity if kind != "hf-hub" else RunInfo(self.model, suite, run.side, run.identity.seed)
        return run.model, named, run.skip_unreadable, run.max_pixels

    def run(
        self, data: str | None, device: torch.device, skip_unreadable: SkipUnreadable | None, max_pixels: int | None
    ) -> Run:
        """The model, and one data set that it is measured on: what `open_run` opens, or `timm:` with its options.

        Raises:
            InputError: as `opened` and `open_run`; or no data is given for what names none.
        """
        if not self.is_timm:
            self._refuse_options_of_timm()
            run = open_run(self.model, data, device=device, skip_unreadable=skip_unreadable, max_pixels=max_pixels)
            run.patch_size = self._with_patches(run.model)
            return run
        if data is None:
            raise InputError(f"{self.model}: does not say what it was trained on; give the data (--data)")
        model, identity, skip, pixels = self.opened(data, device)
        skip = skip if skip_unreadable is None else skip_unreadable
        return Run(
            Path(self.model),
            {},
            {},
            "",
            model,
            data,
            skip,
            max_pixels or pixels,
            named=identity.run,
            patch_size=identity.patch_size,
        )

    def _refuse_options_of_timm(self) -> None:
        for option, given in (
            ("--no-pretrained", not self.pretrained),
            ("--num-classes", self.num_classes is not None),
            ("--weights", self.weights is not None),
        ):
            if given:
                raise InputError(f"{option}: goes with timm:NAME alone (got {self.model})")

    def built(self) -> Model:
        """What timm builds by the name, in evaluation mode; random weights are the same each time."""
        return self._of_timm(self.model.partition(":")[2])

    def _of_timm(self, name: str) -> Model:
        if self.num_classes is not None:
            check_value("--num-classes", self.num_classes, Count)
        if self.weights is None:
            with preserve_rng_state():
                torch.manual_seed(_SEED)
                return load_model(f"timm:{name}", pretrained=self.pretrained, num_classes=self.num_classes).eval()
        if not self.pretrained:
            raise InputError("--no-pretrained and --weights: expected one of them")
        state, _ = read_weights(self.weights)
        given = {"model": name}
        classes = self.num_classes
        if classes is None and (head := state.get("head.weight", state.get("head.fc.weight"))) is not None:
            classes = len(head)
        return import_weights(Timm.name, state, given if classes is None else given | {"num_classes": classes}).eval()
