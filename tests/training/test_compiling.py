"""A run with compiled blocks is the run."""

from __future__ import annotations

import dataclasses

import pytest

from sightline.errors import InputError
from sightline.training.config import OptimizerConfig
from tests.tiny import MODEL, tiny_config, train
from tests.training.test_ranks import assert_alike

CONFIG = tiny_config(
    images=64, optimizer=OptimizerConfig(lr=0.1, name="sgd", clip=0.5), encoding="rope_axial",
    model_options={**MODEL, "depth": 2, "drop_path": 0.2},
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
def test_a_run_with_compiled_blocks(recompute, tmp_path):
    train(CONFIG, tmp_path / "one")
    found = train(dataclasses.replace(CONFIG, compile=True, recompute=recompute), tmp_path / "compiled")
    assert_alike(tmp_path / "one", tmp_path / "compiled")
    assert not any("forward" in vars(block) for block in found.blocks)
    assert not any("_orig_mod" in name for name in found.state_dict())


def test_without_a_compiler_it_is_refused_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    from torch._inductor import cpp_builder

    def missing():
        raise RuntimeError("no compiler")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(InputError, match=r"^compile true"):
        train(dataclasses.replace(CONFIG, compile=True), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()
