"""Foreign weights through `import_weights`: there and back bit by bit, what is kept, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from sightline import load_model, save_model
from sightline.convert import export_weights, import_weights
from sightline.encodings.create import encoding_options
from sightline.errors import InputError
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters
from tests.parity.golden_files import weights
from tests.parity.toy_models import FILES, arguments, toy_model

# One file of each project that has some; the rest has no file, and is compared with timm (test_beside_timm.py).
ONE_EACH = {project: file for file, project in reversed(FILES.items())}


@pytest.mark.parametrize("file", FILES)
def test_there_and_back(file: str) -> None:
    project, state = FILES[file], weights(file)
    model = toy_model(file)
    back, given = export_weights(model, project)
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor), name
    # The arguments are plain values that a file can hold, and build the same again.
    again = import_weights(project, back, json.loads(json.dumps(given)))
    assert again.config == model.config
    for (name, one), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("file", FILES)
@torch.no_grad()
def test_imported_models_are_saved_whole(file: str, tmp_path) -> None:
    """Rules of the original and where the weights came from are in the folder; what is read goes back to it."""
    model = toy_model(file)
    save_model(model, tmp_path / "m")
    read = load_model(tmp_path / "m")
    assert encoding_options(read.encoding) == encoding_options(model.encoding)
    assert read.config.replace(encoding_options=model.config.encoding_options) == model.config
    assert read.config.origin == {"project": FILES[file], "config": arguments(file)}
    for (name, one), other in zip(model.state_dict().items(), read.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    images = torch.randn(1, 3, 20, 28)
    assert torch.equal(model(images), read(images))
    back, _ = export_weights(read, FILES[file])
    assert all(torch.equal(back[name], tensor) for name, tensor in weights(file).items())


@pytest.mark.parametrize("project", ONE_EACH)
def test_what_does_not_belong_is_refused(project: str) -> None:
    file = ONE_EACH[project]
    state, given = weights(file), arguments(file)
    name = next(name for name in state if name.endswith(("fc2.weight", "Dense_1/kernel", "1.4.weight")))

    def refused(words: str, state: dict = state, given: dict = given) -> None:
        with pytest.raises(InputError, match=words) as caught:
            import_weights(project, state, given)
        assert "\n" not in str(caught.value)

    refused(f"missing: {name}", {key: value for key, value in state.items() if key != name})
    refused("not expected: head.more", {**state, "head.more": torch.zeros(1)})
    refused(rf"{name} is \[1, 2\], expected \[", {**state, name: torch.zeros(1, 2)})
    for value in (torch.nan, torch.inf):
        broken = state[name].clone()
        broken.view(-1)[0] = value
        refused(f"{name} holds a number that is not finite", {**state, name: broken})
    refused("missing head.fc1.weight" if project == "lookhere" else r"missing: .* in all", {})
    wrong = "timm: .* cannot be built: .*'dept'" if project == "timm" else "'dept' is not known; did you mean 'depth'"
    refused(wrong, given={**given, "dept": 2})
    depth = given["depth"] + 1
    refused(f"missing: .*{depth - 1}.* in all", given={**given, "depth": depth})
    with pytest.raises(InputError, match=f"did you mean '{project}'"):
        import_weights(project[:-1], state, given)


@pytest.mark.parametrize("project", ONE_EACH)
def test_arrays_of_numpy_are_weights_too(project: str) -> None:
    """As `np.load` gives them; what is no array of numbers is named."""
    state = {name: tensor.numpy() for name, tensor in weights(ONE_EACH[project]).items()}
    model = import_weights(project, state, arguments(ONE_EACH[project]))
    expected = toy_model(ONE_EACH[project]).state_dict()
    assert all(torch.equal(one, expected[name]) for name, one in model.state_dict().items())
    name = next(iter(state))
    with pytest.raises(InputError, match=f"{project} weights: {name} is a str, expected a tensor"):
        import_weights(project, {**state, name: "text"}, arguments(ONE_EACH[project]))


@pytest.mark.parametrize("project", ["big_vision", "vision_transformer"])
def test_flax_tables_are_resized_from_corner_to_corner(project: str) -> None:
    """As scipy's zoom with order 1 does in both: the corners of any grid are those of the table."""
    given: dict[str, Any] = {"gelu": "tanh", "encoding_options": {"interpolation": "corner_aligned"}}
    model = create_model("vit_micro_patch4", encoding="learned_1d", depth=1, num_classes=3, **given)
    if project == "big_vision":
        model = create_model("vit_micro_patch4", encoding="learned_1d", depth=1, num_classes=3, pool="mean", **given)
    randomise_parameters(model)
    imported: Any = import_weights(project, *export_weights(model, project))
    small, large = (imported.encoding.embedding((rows, rows)) for rows in (8, 13))
    for one, other in ((0, 0), (7, 12), (56, 156), (63, 168)):
        assert torch.allclose(small[one], large[other], atol=1e-6)
    assert not torch.allclose(small[9], large[14], atol=1e-2)
