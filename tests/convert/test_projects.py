"""Foreign weights through `import_weights`: the golden outputs, there and back bit by bit, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from sightline.convert import export_weights, import_weights, list_projects
from sightline.errors import InputError
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters
from tests.parity.golden_files import FOLDER, golden, weights

FILES = {
    "lookhere": ["lookhere_model_LH180", "lookhere_model_LH90", "lookhere_model_LH45"],
    "rope_vit": ["ropevit_axial", "ropevit_mixed", "ropevit_axial_ape", "ropevit_mixed_ape"],
    "big_vision": [f"bigvision_vit_{kind}" for kind in ("gap_learn", "gap_sincos", "map_sincos", "tok_learn")],
}
CASES = [(project, file) for project, files in FILES.items() for file in files]


def arguments(file: str) -> dict:
    with safe_open(FOLDER / f"{file}.safetensors", "pt") as opened:
        return json.loads(opened.metadata()["args"])


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.02
    assert (ours - theirs).abs().max() <= 2e-5


@pytest.mark.parametrize(("project", "file"), CASES)
@torch.no_grad()
def test_outputs(project: str, file: str) -> None:
    model, theirs = import_weights(project, weights(file), arguments(file)), golden(file)
    inputs = [key.removeprefix("in.") for key in theirs if key.startswith("in.")]
    assert inputs
    for shape in inputs:
        images = theirs[f"in.{shape}"]
        if shape == "x_nhwc":
            assert_close(model(images.permute(0, 3, 1, 2)), theirs["out.logits"])
        elif f"out.{shape}.logits" in theirs:
            assert_close(model(images), theirs[f"out.{shape}.logits"])
        else:
            model.set_knob(0.75)
            assert_close(model(images), theirs[f"out.{shape}_gs0.75.logits"])
            model.set_knob(1.0)


@pytest.mark.parametrize(("project", "file"), CASES)
def test_there_and_back(project: str, file: str) -> None:
    state = weights(file)
    model = import_weights(project, state, arguments(file))
    back, given = export_weights(model, project)
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor), name
    again = import_weights(project, back, given)
    assert again.config == model.config
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("project", "encoding", "options"),
    [
        ("lookhere", "lookhere_45", {"head": "mlp", "norm_eps": 1e-5, "layer_scale": 1.0, "num_classes": 5}),
        ("rope_vit", "rope_mixed", {"layer_scale": 1.0, "image_size": (24, 40)}),
        ("rope_vit", "rope_axial", {"layer_scale": 1.0, "num_classes": 0}),
        ("big_vision", "sincos_2d", {"gelu": "tanh", "pool": "attention"}),
        ("big_vision", "learned_1d", {"gelu": "tanh", "pool": "mean", "image_size": (24, 40)}),
    ],
)
@torch.no_grad()
def test_models_that_were_born_here(project: str, encoding: str, options: dict) -> None:
    model = create_model("vit_micro_patch4", encoding=encoding, depth=2, **{"num_classes": 5, **options})
    randomise_parameters(model).eval()
    other = import_weights(project, *export_weights(model, project))
    images = torch.randn(2, 3, 20, 28)
    assert torch.equal(model(images), other(images))
    assert model(images).std() > 0.02


def test_every_project_has_cases() -> None:
    assert list_projects() == sorted(FILES)


@pytest.mark.parametrize("project", sorted(FILES))
def test_what_does_not_belong_is_refused(project: str) -> None:
    file = FILES[project][0]
    state, given = weights(file), arguments(file)
    name = next(name for name in state if name.endswith(("fc2.weight", "Dense_1/kernel")))

    def refused(words: str, state: dict = state, given: dict = given) -> None:
        with pytest.raises(InputError, match=words) as caught:
            import_weights(project, state, given)
        assert "\n" not in str(caught.value)

    refused(f"missing {name}", {key: value for key, value in state.items() if key != name})
    refused("not known head.more", {**state, "head.more": torch.zeros(1)})
    refused(rf"{name} is \[1, 2\], expected \[", {**state, name: torch.zeros(1, 2)})
    broken = state[name].clone()
    broken.view(-1)[0] = torch.nan
    refused(f"{name} holds a number that is not finite", {**state, name: broken})
    refused("argument 'dept' is not known; did you mean 'depth'", given={**given, "dept": 2})
    with pytest.raises(InputError, match="did you mean 'lookhere'"):
        import_weights("lookher", state, given)


def test_what_cannot_be_held_is_refused() -> None:
    plain = create_model("vit_micro_patch4", encoding="fourier", depth=1)
    for project in FILES:
        with pytest.raises(InputError, match=f"{project}: cannot hold"):
            export_weights(plain, project)
    mixed = create_model("vit_micro_patch4", encoding="rope_mixed", depth=1, layer_scale=1.0)
    mixed.set_knob(20.0)
    with pytest.raises(InputError, match="set_knob back"):
        export_weights(mixed, "rope_vit")


def test_half_precision_becomes_float32() -> None:
    state = {name: tensor.half() for name, tensor in weights("ropevit_axial").items()}
    model = import_weights("rope_vit", state, arguments("ropevit_axial"))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_buffer_that_contradicts_the_configuration_is_refused() -> None:
    state = {**weights("ropevit_mixed"), "freqs_t_x": torch.ones(16)}
    with pytest.raises(InputError, match="freqs_t_x, freqs_t_y follow from the configuration"):
        import_weights("rope_vit", state, arguments("ropevit_mixed"))
