"""The knob is part of a model's state: whatever carries the weights carries it."""

from __future__ import annotations

import copy
import importlib
import io
import warnings
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes

from sightline import load_model, save_model
from sightline.distributed.machine import import_timm
from sightline.encodings import list_encodings
from sightline.encodings.knob import KNOB_STATE, without_knobs
from sightline.errors import InputError
from sightline.io.tensors import load_tensors
from sightline.models import VisionTransformer, create_model

SMALL: dict[str, Any] = {"depth": 1, "dim": 48, "heads": 4, "num_classes": 3, "image_size": 16}
TUNED = ["lookhere_90", "alibi_2d", "rope_axial", "rope_mixed", "rope_mixed+learned_1d", "learned_1d+lookhere_45"]
# No float of 16 or 32 bits holds it.
VALUE = 1.1


def model(encoding: str) -> VisionTransformer:
    return create_model("vit_micro_patch4", encoding=encoding, **SMALL)


def turned(encoding: str) -> VisionTransformer:
    made = model(encoding)
    made.set_knob(VALUE)
    return made


def value(one: VisionTransformer) -> float:
    assert one.knob is not None
    return one.knob.value


@pytest.mark.parametrize("encoding", TUNED)
def test_the_knob_is_in_the_state(encoding: str) -> None:
    one = turned(encoding)
    state = one.state_dict()
    place = f"parts.{0 if encoding.startswith('rope') else 1}." if "+" in encoding else ""
    assert [name for name in state if name.endswith(KNOB_STATE)] == [f"encoding.{place}{KNOB_STATE}"]
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    carried = {
        "itself": state,
        "torch": torch.load(stream, weights_only=True),
        "safetensors": load_bytes(save_bytes(dict(state))),
        "a copy": copy.deepcopy(one).state_dict(),
        "other precision": copy.deepcopy(one).half().bfloat16().state_dict(),
        "a compiled model": {
            name.removeprefix("_orig_mod."): tensor for name, tensor in torch.compile(one).state_dict().items()
        },
    }
    for how, state in carried.items():
        two = model(encoding)
        two.load_state_dict(state, strict=True)
        assert value(two) == VALUE, how
    two = model(encoding)
    two.load_state_dict(one.state_dict(), strict=True, assign=True)
    assert value(two) == VALUE


@pytest.mark.parametrize("encoding", TUNED)
def test_states_without_a_knob_load_without_a_word(encoding: str) -> None:
    older = without_knobs(turned(encoding).state_dict())
    one = model(encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert one.load_state_dict(older, strict=True) == ([], [])
    assert value(one) == one.knob.default
    # What is missing or too much besides is still refused.
    name = next(iter(older))
    with pytest.raises(RuntimeError, match="Missing key"):
        one.load_state_dict({key: tensor for key, tensor in older.items() if key != name})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        one.load_state_dict({**older, "encoding.more": older[name]})
    wrong = {key: torch.tensor(-5.0) if key.endswith(KNOB_STATE) else old for key, old in one.state_dict().items()}
    with pytest.raises(InputError, match="knob"):
        one.load_state_dict(wrong)


def test_encodings_without_a_knob_have_no_more_than_before() -> None:
    for encoding in list_encodings():
        one = model(encoding)
        assert (one.knob is not None) == any(name.endswith(KNOB_STATE) for name in one.state_dict())


def test_a_folder_s_weights_are_as_before(tmp_path) -> None:
    """The knob stands in config.json, as older versions read it."""
    one = turned("rope_axial")
    save_model(one, tmp_path / "m")
    assert set(load_tensors(tmp_path / "m" / "model.safetensors")) == set(without_knobs(one.state_dict()))
    assert value(load_model(tmp_path / "m")) == VALUE


def test_running_means_keep_the_knob() -> None:
    import_timm()
    utils: Any = importlib.import_module("timm.utils")
    one = turned("lookhere_90")
    means = [utils.ModelEmaV2(one, decay=0.5), utils.ModelEmaV3(one, decay=0.5), utils.ModelEmaV3(one, foreach=True)]
    means.append(torch.optim.swa_utils.AveragedModel(one, use_buffers=True))
    for mean in means:
        (mean.update if hasattr(mean, "update") else mean.update_parameters)(one)
        assert value(mean.module) == VALUE
        assert value(one) == VALUE
        two = copy.deepcopy(mean)
        two.module.set_knob(1.0)
        two.load_state_dict(mean.state_dict())
        assert value(two.module) == VALUE
