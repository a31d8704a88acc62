"""Models to and from a folder: everything comes back, and nothing that does not fit is taken."""

from __future__ import annotations

import json

import pytest
import torch

from sightline import list_encodings, load_model, save_model
from sightline.encodings.knob import without_knobs
from sightline.errors import InputError
from sightline.hub.load import read_config_record
from sightline.io.tensors import load_tensors
from sightline.models import create_model
from tests.tiny import put, reseal

SMALL = {"image_size": 16, "depth": 2, "dim": 48, "heads": 4, "num_classes": 5}
PAIRS = ["rope_mixed+learned_1d", "lookhere_45+sincos_2d", "rpe_learned+rope_axial", "alibi_2d+factorized"]


@pytest.fixture
def model(randomise):
    def make(encoding="rope_mixed", **options):
        return randomise(create_model("vit_micro_patch4", encoding=encoding, **{**SMALL, **options})).eval()

    return make


def images():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(3, *size, generator=generator) for size in ((16, 16), (8, 20))]


@pytest.mark.parametrize("encoding", [*list_encodings(), *PAIRS])
def test_every_encoding_comes_back(encoding, model, tmp_path):
    one = model(encoding)
    if one.knob is not None:
        one.set_knob((one.knob.value + one.knob.candidates[0]) / 2 + 0.125)
    save_model(one, tmp_path / "m")
    two = load_model(tmp_path / "m")
    assert not two.training
    assert two.encoding.name == encoding
    assert two.knob == one.knob
    with torch.inference_mode():
        expected, found = one(images()), two(images())
    assert torch.equal(expected, found)
    assert (expected[0] - expected[1]).abs().max() > 1e-4
    # And once more: what was written out in full reads as the same.
    save_model(two, tmp_path / "again")
    assert read_config_record(tmp_path / "again") == read_config_record(tmp_path / "m")


def test_every_field_of_the_configuration_comes_back(model, tmp_path):
    one = model(
        image_size=(8, 16), pool="attention", num_registers=2, class_token=True, qk_norm=True, layer_scale=0.1,
        head="mlp", head_hidden=7, final_norm="after_pool", gelu="tanh", fit="pad", mean=(0.1, 0.2, 0.3), crop=0.875,
        class_names=("a", "ä b", "c", "d", "e"), encoding_options={"theta": 50.0}, interpolation="lanczos",
    )  # fmt: skip
    save_model(one, tmp_path / "m")
    two = load_model(tmp_path / "m")
    assert two.config.replace(encoding_options={}) == one.config.replace(encoding_options={})
    assert two.config.encoding_options["theta"] == 50.0
    assert torch.equal(one(images()), two(images()))


def test_a_wrapped_model_is_saved_bare(model, tmp_path):
    one = model()
    for number, wrapped in enumerate((torch.compile(one), torch.nn.DataParallel(one))):
        save_model(wrapped, tmp_path / str(number))
        assert set(load_tensors(tmp_path / str(number) / "model.safetensors")) == set(without_knobs(one.state_dict()))
        assert torch.equal(load_model(tmp_path / str(number))(images()), one(images()))
    with pytest.raises(InputError, match="expected a VisionTransformer, got Linear"):
        save_model(torch.nn.Linear(2, 2), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_run_and_its_checkpoint_are_the_same_model(tiny_run):
    one, two = load_model(tiny_run), load_model(tiny_run / "checkpoint")
    assert torch.equal(one(images()), two(images()))
    assert one.config.class_names == tuple("0123456789")
    assert read_config_record(tiny_run)["training"]["config"]["data"] == "digits"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_beside_the_checkpoint_makes_no_model_of_a_run(name, run_copy):
    expected = load_model(run_copy)(images())
    (run_copy / name).write_text('{"architecture": "mine"}\n')
    assert torch.equal(load_model(run_copy)(images()), expected)


def changed(**changes):
    return lambda record: record.update(changes)


def in_model(**changes):
    return lambda record: put(record, **changes)


def in_training(**changes):
    return lambda record: record["training"].update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(format=3), "expected format 2"),
        (changed(preparation=[]), "not the configuration of a model"),
        (changed(training=[]), "not the configuration of a model"),
        (in_training(config=3), "training.config is not a group of keys"),
        (changed(knob="x"), "config.json: knob"),
        (changed(knob=-1.0), "config.json: knob"),
        (in_model(depth="x"), 'config.json: model: depth = "x"'),
        (in_model(depth=0), "config.json: model: depth = 0"),
        (in_model(heads=5), "dim 48: must be divisible by heads 5"),
        (in_model(wdith=5), "'wdith' is not known; did you mean"),
        (in_model(encoding="lookher"), "encoding 'lookher' is not known; did you mean 'lookhere'?"),
        (in_model(encoding_options={"depth": 3}), "encoding_options.depth: is decided by the model"),
        (in_model(encoding_options=[1]), "encoding_options = [1]"),
        (in_model(class_names=[1] * 5), "class_names"),
        (in_model(class_names="abcde"), "class_names"),
        (in_model(class_names=["a"]), "class_names: 1 names for 5 classes"),
        (in_model(mean=None), "mean = null"),
        (in_model(image_size=18), "image_size 18"),
    ],
)
def test_a_configuration_that_was_written_by_hand(change, words, model, tmp_path):
    save_model(model(), tmp_path / "m")
    record = json.loads((tmp_path / "m" / "config.json").read_text())
    change(record)
    (tmp_path / "m" / "config.json").write_text(json.dumps(record))
    reseal(tmp_path / "m")
    with pytest.raises(InputError) as error:
        load_model(tmp_path / "m")
    assert words in str(error.value)
    assert str(tmp_path / "m") in str(error.value)


@pytest.mark.parametrize("asked", [{}, {"num_classes": 3}])
def test_loading_leaves_the_random_numbers_alone(asked, model, tmp_path):
    save_model(model("rope_mixed+learned_1d"), tmp_path / "m")
    before = torch.get_rng_state()
    load_model(tmp_path / "m", **asked)
    assert torch.equal(torch.get_rng_state(), before)
    if torch.cuda.is_available():
        kept = torch.cuda.get_rng_state()
        torch.set_default_device("cuda")
        try:
            load_model(tmp_path / "m", **asked)
        finally:
            torch.set_default_device("cpu")
        assert torch.equal(torch.cuda.get_rng_state(), kept)


@pytest.mark.parametrize("change", [{"format": 1}, {"format": 1, "model": {}}, {"score_link": None}])
def test_a_folder_of_another_version_is_refused(change, model, tmp_path):
    save_model(model(), tmp_path / "m")
    record = json.loads((tmp_path / "m" / "config.json").read_text()) | change
    record = {key: value for key, value in record.items() if value is not None}
    (tmp_path / "m" / "config.json").write_text(json.dumps(record))
    reseal(tmp_path / "m")
    with pytest.raises(InputError, match=r"config\.json: is not the configuration of a model"):
        load_model(tmp_path / "m")
