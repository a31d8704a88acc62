"""A fault of a plug-in or of the library is shown as what it is, also on one of several ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sightline import plugins
from sightline.cli.app import main
from sightline.errors import RanksError
from sightline.tasks.classification import Classification
from tests.cli.test_torchrun import SMALL, environment
from tests.ranks import free_port, together
from tests.tiny import tiny_config, train


class Breaks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("broken in backward")


PLUGIN = """
import os

from sightline.tasks.classification import Classification
from tests.faults.test_own_faults import Breaks


class Broken(Classification):
    name = "broken"

    def loss(self, outputs, targets, layout):
        if os.environ.get("RANK", "1") != "1":
            return super().loss(outputs, targets, layout)
        if os.environ["WHERE"] == "loss":
            raise RuntimeError("broken in loss")
        total, units = super().loss(outputs, targets, layout)
        return Breaks.apply(total), units
"""


@pytest.mark.parametrize("where", ["loss", "backward"])
def test_a_plug_in_s_fault_is_raised_as_itself(tmp_path, monkeypatch, where):
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "broken.py").write_text(PLUGIN)
    monkeypatch.setenv(plugins.FOLDERS, "")
    monkeypatch.setattr(plugins, "given", [])
    monkeypatch.setattr(plugins, "__path__", list(plugins.__path__))
    monkeypatch.setenv("WHERE", where)
    words = ["train", "--device", "cpu", *SMALL, "--images", "64", "--task=broken", "--out", tmp_path / "run"]
    with pytest.raises(RuntimeError, match=f"broken in {where}"):
        main([*map(str, words), "--plugins", str(tmp_path / "plug")])


def breaks_on_one(ranks, out, where):
    real = Classification.loss

    def loss(self, *given):
        if ranks.rank == 1 and where == "loss":
            raise RuntimeError("broken in loss")
        total, units = real(self, *given)
        return (Breaks.apply(total), units) if ranks.rank == 1 else (total, units)

    Classification.loss = loss
    train(tiny_config(batch_size=32), out, ranks=ranks, device="cpu")


@pytest.mark.parametrize("where", ["loss", "backward"])
def test_the_rank_with_the_fault_says_it(tmp_path, where):
    other, own = together(2, breaks_on_one, tmp_path / "run", where)
    assert (type(own), str(own)) == (RuntimeError, f"broken in {where}")
    assert isinstance(other, RanksError)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loss", "backward"])
def test_torchrun_shows_the_traceback(tmp_path, where):
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "broken.py").write_text(PLUGIN)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    words = [*SMALL, "--images", "64", "--task=broken", "--out", tmp_path / "run", "--plugins", tmp_path / "plug"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "sightline", "train", "--device", "cpu", *map(str, words)],
        capture_output=True, text=True, timeout=600, env={**environment(), "WHERE": where}, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert f"RuntimeError: broken in {where}" in done.stderr
