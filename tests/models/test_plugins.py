"""An embedder, an architecture and a head of somebody else's: each one file in a folder, and no other edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sightline import load_model, plugins, save_model
from sightline.errors import InputError
from sightline.models import create_model

STEM = '''
import torch
from torch import nn
from sightline.models.embedder import Embedder

class Stem(Embedder):
    """Two convolutions that look beyond a patch (Xiao et al., 2021)."""

    name = "outside_stem"

    def __init__(self, config):
        super().__init__(config)
        half = config.patch_size // 2
        wide = config.embedder_options.get("wide", 16)
        self.first = nn.Conv2d(config.channels, wide, 3, stride=2, padding=1)
        self.proj = nn.Conv2d(wide, config.dim, 2 * half - 1, stride=half, padding=half - 1)

    def forward(self, rows, layout):
        return self.tokens([self.proj(self.first(one).relu()) for one in self.images(rows, layout)], layout)
'''

MIXER = '''
import torch
from torch import nn
from sightline.models.model import Model
from sightline.models.trunk import Trunk

class Mean(nn.Module):
    """Each token sees the mean of its own image."""

    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(2 * dim, dim)

    def forward(self, tokens, layout):
        means = [one.mean(1, keepdim=True).expand_as(one) for one in layout.split(tokens)]
        return tokens + self.fc(torch.cat((tokens, torch.cat(means, 1)), -1)).tanh()

class MixerTrunk(Trunk):
    def layer_inputs(self, layer, tokens, layout, encoding):
        return layout

class Mixer(Model):
    name = "outside_mixer"

    def make_trunk(self, config):
        return MixerTrunk(Mean(config.dim) for _ in range(config.depth))
'''

PER_PATCH = '''
import torch
from torch import nn
from sightline.models.head import TokenHead, patch_tokens

from sightline.io.config import config_dataclass

@config_dataclass
class PerPatchOptions:
    outputs: int = 2

class PerPatch(TokenHead):
    """A vector for each patch: [patches of all images, outputs], image by image, row-major."""

    name = "outside_per_patch"
    Options = PerPatchOptions

    def __init__(self, config):
        super().__init__(config)
        self.fc = nn.Linear(config.dim, self.options.outputs)

    def forward(self, tokens, layout):
        return torch.cat([self.fc(one).flatten(0, 1) for one in patch_tokens(tokens, layout)])
'''

SIZES = ((16, 24), (32, 8), (16, 24), (8, 8))
TINY = {"dim": 48, "heads": 4, "depth": 2, "image_size": 16, "num_classes": 5, "encoding": "learned_1d"}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("plug-ins")
    for name, text in (("stem", STEM), ("mixer", MIXER), ("per_patch", PER_PATCH)):
        (folder / f"models_test_{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.FOLDERS, "")
        patch.setattr(plugins, "given", [])
        patch.setattr(plugins, "__path__", list(plugins.__path__))
        plugins.add(folder)
        yield folder


def images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, *size, generator=generator) for size in SIZES]


@pytest.mark.parametrize(
    "options",
    [
        {"embedder": "outside_stem"},
        {"embedder": "outside_stem", "embedder_options": {"wide": 8}, "num_registers": 2, "pool": "attention"},
        {"architecture": "outside_mixer"},
        {"architecture": "outside_mixer", "embedder": "outside_stem", "pool": "mean"},
        {"head": "outside_per_patch", "head_options": {"outputs": 3}},
        {"head": "outside_per_patch", "encoding": "lookhere_45", "embedder": "outside_stem"},
    ],
)
@torch.inference_mode()
def test_images_of_different_sizes_in_a_pack_are_each_alone(options: dict, tmp_path: Path) -> None:
    model = create_model("vit_tiny_patch8", **{**TINY, **options}).eval()
    packed = model(images())
    alone = torch.cat([model(image.unsqueeze(0)) for image in images()])
    assert float(alone.std()) > 1e-2
    torch.testing.assert_close(packed, alone, rtol=0, atol=2e-5)
    same = torch.stack([images()[0], images()[2]])
    torch.testing.assert_close(model(same), model([images()[0], images()[2]]), rtol=0, atol=2e-5)

    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert type(again) is type(model)
    assert torch.equal(again(images()), packed)


def test_a_stem_looks_beyond_its_patch_and_wants_whole_images() -> None:
    model = create_model("vit_tiny_patch8", **{**TINY, "embedder": "outside_stem"}).eval()
    image = images()[0].unsqueeze(0)
    moved = image.clone()
    moved[..., 7] += 1
    rows, layout = model.prepare(image)
    before, after = (model.embed(model.prepare(one)[0], layout)[0, 1:] for one in (image, moved))
    assert (before - after).abs().amax(1).gt(0).tolist() == [True, True, False] * 2
    kept = layout.keep([[0, 2, 3]])
    with pytest.raises(InputError, match="outside_stem: needs whole images"):
        model(rows[:, [0, 2, 3]], layout=kept)


def test_a_head_of_all_tokens_takes_the_place_of_the_classifier_and_goes_again() -> None:
    torch.manual_seed(0)
    model = create_model(
        "vit_tiny_patch8", **{**TINY, "final_norm": "after_pool", "class_names": tuple("abcde")}
    ).eval()
    trunk = {name: value.clone() for name, value in model.blocks.state_dict().items()}
    model.reset_head("outside_per_patch", outputs=4)
    assert (model.config.head, model.config.head_options) == ("outside_per_patch", {"outputs": 4})
    assert {name.split(".")[0] for name in model.state_dict()} & {"attn_pool", "fc_norm"} == set()
    rows, layout = model.prepare(images())
    assert model(rows, layout=layout).shape == (6 + 4 + 6 + 1, 4)
    features = model.forward_features(images())
    with pytest.raises(InputError, match="takes all tokens"):
        model.forward_head(features)
    assert torch.equal(model.forward_head(features, layout=layout), model(images()))
    with pytest.raises(InputError, match="did you mean 'outside_per_patch'"):
        model.reset_head("outside_per_path")
    model.reset_classifier(3)
    assert model(images()).shape == (4, 3)
    assert {"fc_norm.weight", "head.weight"} <= set(model.state_dict())
    assert all(torch.equal(value, trunk[name]) for name, value in model.blocks.state_dict().items())
