"""Foreign weights through `import_weights`: there and back bit by bit, what is kept, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from sightline import convert, load_model, save_model
from sightline.convert import export_weights, import_weights, list_projects
from sightline.encodings.create import encoding_options
from sightline.errors import InputError
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters
from tests.convert.test_dense import HOLDS as DENSE
from tests.convert.test_export import HOLDS, ours
from tests.parity.golden_files import golden, weights
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
def test_the_caller_keeps_his_tensors(project: str) -> None:
    """Nothing is shared or changed: not the state dict, not the arguments, not the golden file's cache."""
    file = ONE_EACH[project]
    state, given = {name: tensor.clone() for name, tensor in weights(file).items()}, arguments(file)
    model = import_weights(project, state, given)
    assert given == arguments(file)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(state[name], tensor) for name, tensor in golden_state(file).items())
    exported, _ = export_weights(toy_model(file), project)
    assert all(tensor.is_contiguous() for tensor in exported.values())


def golden_state(file: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix("sd."): tensor for name, tensor in golden(file).items() if name.startswith("sd.")}


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
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(project: str, dtype: torch.dtype) -> None:
    file = ONE_EACH[project]
    state = {name: tensor.to(dtype) for name, tensor in weights(file).items()}
    model = import_weights(project, state, arguments(file))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    back, _ = export_weights(model, project)
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor.float()), name


@pytest.mark.parametrize("project", ONE_EACH)
def test_tensors_that_lie_otherwise_in_memory(project: str) -> None:
    """Views with other strides, as numpy's transposed arrays are."""
    file = ONE_EACH[project]
    state = {name: torch.from_numpy(np.asfortranarray(tensor.numpy())) for name, tensor in weights(file).items()}
    assert not all(tensor.is_contiguous() for tensor in state.values())
    model = import_weights(project, state, arguments(file))
    for one, other in zip(model.state_dict().values(), toy_model(file).state_dict().values(), strict=True):
        assert torch.equal(one, other)
        assert one.is_contiguous()


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


WRONG: list[Any] = [None, "x", -1, 0, [], {}, 1.5, math.nan, True, (4,), (4, 4, 4), 7]


# Of projects that have no file, and are not in test_export.
OF_FAMILIES: dict[str, dict[str, Any]] = {
    "scenic": {
        "architecture": "axial", "architecture_options": {"first": "columns"}, "encoding": "learned_xy", "gelu": "tanh",
        "pool": "mean",
    },
    "irpe": {"encoding": "learned_1d+irpe", "options": {"learned_1d.interpolation": "bicubic"}},
    "rope_swin": {
        "architecture": "swin", "architecture_options": {"depths": [1, 1], "heads": [3, 6], "window": 4},
        "encoding": "rope_mixed", "pool": "mean", "patch_norm": "after", "norm_eps": 1e-5,
    },
    "vivit": {"encoding": "learned_1d", "gelu": "tanh", "embedder": "tubelets", "clip_frames": 4},
}  # fmt: skip


def born_here(project: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A model of a project that has no file."""
    given = dict({**HOLDS, **OF_FAMILIES}[project])
    return export_weights(ours(given.pop("encoding"), given.pop("options", None), **given), project)


@pytest.mark.parametrize("project", sorted(set(list_projects()) - DENSE.keys()))
def test_arguments_of_another_kind(project: str) -> None:
    """Each argument with each wrong value: what is not understood is one line, never a traceback."""
    file = ONE_EACH.get(project)
    state, given = (weights(file), arguments(file)) if file else born_here(project)
    known = (
        {**given, "reg_tokens": 0, "class_token": True} if project == "timm" else convert._projects()[project].arguments
    )
    refused = 0
    for key in known:
        for value in WRONG:
            try:
                import_weights(project, state, {**given, key: value})
            except InputError as error:
                refused += 1
                assert "\n" not in str(error)  # noqa: PT017
    assert refused > 5 * len(known)
    with pytest.raises(InputError, match=f"{project}: config None: expected"):
        import_weights(project, state, None)  # type: ignore[arg-type]


def test_a_buffer_that_contradicts_the_configuration_is_refused() -> None:
    state = {**weights("ropevit_mixed"), "freqs_t_x": torch.ones(16)}
    with pytest.raises(InputError, match="freqs_t_x, freqs_t_y follow from the configuration"):
        import_weights("rope_vit", state, arguments("ropevit_mixed"))


def test_rope_vit_without_square_images_has_its_buffers() -> None:
    """x runs along rows of 10 patches, y down 6 of them."""
    model = create_model(
        "vit_micro_patch4", depth=1, encoding="rope_mixed", layer_scale=1.0, image_size=(24, 40), num_classes=3
    )
    state, given = export_weights(model, "rope_vit")
    assert state["freqs_t_x"][:12].tolist() == [*range(10), 0, 1]
    assert state["freqs_t_y"][8:12].tolist() == [0, 0, 1, 1]
    assert tuple(given["img_size"]) == (24, 40)


def test_big_vision_and_vit_need_a_shape_where_the_table_is_not_square() -> None:
    for project, encoding in (("big_vision", {"pool": "mean"}), ("vision_transformer", {})):
        model = create_model(
            "vit_micro_patch4", depth=1, image_size=(24, 40), num_classes=3, gelu="tanh",
            encoding_options={"interpolation": "corner_aligned"}, encoding="learned_1d", **encoding,
        )  # fmt: skip
        state, given = export_weights(model, project)
        del given["image_size"]
        with pytest.raises(InputError, match="60 patches, no square; give image_size"):
            import_weights(project, state, given)


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
