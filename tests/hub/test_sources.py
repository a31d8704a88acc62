"""`load_model` from everywhere: folders, timm's names and folders, and a Hub, of which there is a double here."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

import sightline
from sightline.convert import import_weights
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.hub.load import resolve_source
from sightline.models import create_model
from sightline.results.rows import ResultRow
from tests.contract.randomise import randomise_parameters

SMALL = {"image_size": 16, "depth": 2, "dim": 48, "heads": 4, "num_classes": 5}
TINY = "vit_tiny_patch16_224"


class LocalHub:
    """What `snapshot_download` and `HfApi` do, with a folder for each repository."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, []

    def snapshot_download(self, repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append((repository, revision))
        kept = self.root / repository
        if not kept.is_dir():
            raise FileNotFoundError(f"404 Client Error: no repository\n{repository}")
        fetched = self.root / "cache" / repository
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        for file in kept.iterdir():
            if file.name in allow_patterns:
                # As the real cache: links to content.
                (fetched / file.name).symlink_to(file)
        return str(fetched)

    def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> None:
        (self.root / repository).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, folder_path: Path, repo_id: str, commit_message: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return f"hub/{repo_id}/commit/1"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    local = LocalHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", local.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda token: local)
    return local


@pytest.fixture
def model():
    return randomise_parameters(
        create_model("vit_micro_patch4", encoding="lookhere_45", **{**SMALL, "heads": 12})
    ).eval()


def images():
    return torch.randn(2, 3, 16, 24, generator=torch.Generator().manual_seed(1))


ROW = ResultRow(
    run="r", encoding="lookhere_45", task="classification", data="digits", split="test", metric="top1", value=0.75,
    unit="fraction", stderr=0.01, resolution=32, grid=(8, 8), train_resolution=16, knob=1.0, tuned=False, seed=0,
    count=500, seconds=1.0, commit="c", hardware="h",
)  # fmt: skip


@torch.inference_mode()
def test_pushed_and_read_back(hub, model):
    model.set_knob(1.25)
    assert sightline.push_to_hub(model, "me/small-lookhere", results=[ROW]) == "hub/me/small-lookhere/commit/1"
    kept = hub.root / "me" / "small-lookhere"
    assert {file.name for file in kept.iterdir()} == {
        "README.md", "model.safetensors", "config.json", "checksums.json",
    }  # fmt: skip
    again = sightline.load_model("hf-hub:me/small-lookhere@v2")
    assert set(hub.asked) == {("me/small-lookhere", "v2")}
    assert torch.equal(again(images()), model(images()))
    assert again.knob.value == 1.25
    # The card is the Hub's to edit.
    (kept / "README.md").write_text("edited")
    assert sightline.load_model("hf-hub:me/small-lookhere").num_classes == 5


def test_the_card_says_what_the_model_is(hub, model):
    sightline.push_to_hub(model, "me/small-lookhere", results=[ROW])
    card = (hub.root / "me/small-lookhere/README.md").read_text()
    front, _, text = card.removeprefix("---\n").partition("\n---\n")
    assert "library_name: sightline" in front
    assert re.search(r"type: top1\n\s+value: 0.75", front)
    assert "# small-lookhere" in text
    for word in (
        "lookhere_45",
        "16 x 16 pixels",
        "4 x 4 patches",
        "2, 48, 12",
        'load_model("hf-hub:me/small-lookhere")',
    ):
        assert word in text, word
    assert re.search(r"\| digits test \| 32 \| top1 \| 0.7500 \| 0.0100 \| 500 \|", text)


# timm's names


@torch.inference_mode()
def test_a_damaged_repository_is_refused(hub, model):
    sightline.push_to_hub(model, "me/small")
    file = hub.root / "me/small/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors: differs from its checksum"):
        sightline.load_model("hf-hub:me/small")


def test_a_name_of_timm_starts_as_timm_does():
    timm = import_timm()
    torch.manual_seed(5)
    theirs = timm.create_model(TINY, depth=2, num_classes=7, dynamic_img_size=True).eval()
    torch.manual_seed(5)
    ours = sightline.load_model(f"timm:{TINY}", pretrained=False, depth=2, num_classes=7)
    assert not ours.training
    for size in ((224, 224), (96, 160)):
        given = torch.randn(1, 3, *size)
        assert (theirs(given) - ours(given)).abs().max() < 2e-5
        assert ours(given).std() > 1e-3


@torch.inference_mode()
def test_published_weights_of_timm_come_with_their_preparation_and_names(tmp_path):
    """The file stands for what would be fetched."""
    timm = import_timm()
    theirs = randomise_parameters(timm.create_model("deit_tiny_patch16_224", depth=2)).eval()
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    overlay = {"file": str(tmp_path / "w.safetensors"), "custom_load": False}
    ours = sightline.load_model("timm:deit_tiny_patch16_224", depth=2, pretrained_cfg_overlay=overlay)
    given = torch.randn(1, 3, 224, 224)
    assert (theirs(given) - ours(given)).abs().max() < 2e-5
    assert ours.config.mean == pytest.approx((0.485, 0.456, 0.406))
    assert ours.config.crop == pytest.approx(0.9)
    assert ours.config.class_names[1].startswith("goldfish")
    # It stays a model of ours: saved, read, other sizes.
    sightline.save_model(ours, tmp_path / "m")
    again = sightline.load_model(tmp_path / "m")
    options = again.config.encoding_options
    # Written as they are by default.
    assert options.items() >= ours.config.encoding_options.items()
    assert again.config == ours.config.replace(encoding_options=options)
    assert again.config.origin == ours.config.origin
    assert torch.equal(again(given[..., :96, :64]), ours(given[..., :96, :64]))


@torch.inference_mode()
def test_a_folder_that_timm_saved(hub):
    timm = import_timm()
    theirs = randomise_parameters(timm.create_model(TINY, depth=2, num_classes=3, img_size=64)).eval()
    folder = hub.root / "them" / "tiny"
    folder.mkdir(parents=True)
    config = {
        "architecture": TINY,
        "num_classes": 3,
        "model_args": {"depth": 2, "img_size": 64},
        "label_names": ["a", "b", "c"],
        "pretrained_cfg": {
            "mean": [0.1, 0.2, 0.3],
            "std": [0.4, 0.5, 0.6],
            "interpolation": "bilinear",
            "crop_pct": 0.5,
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(theirs.state_dict(), folder / "model.safetensors")
    for source in (folder, f"local-dir:{folder}", "hf-hub:them/tiny"):
        ours = sightline.load_model(source)
        assert ours.config.class_names == ("a", "b", "c")
        assert (ours.config.mean, ours.config.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
        assert (ours.config.interpolation, ours.config.crop) == ("bilinear", 0.5)
        given = torch.randn(1, 3, 64, 64)
        assert (theirs(given) - ours(given)).abs().max() < 2e-5
    assert sightline.load_model(folder, num_classes=9).num_classes == 9
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights"):
        sightline.load_model(folder)


@torch.inference_mode()
def test_pixels_beyond_the_last_patch_are_passed_over_as_timm_does():
    timm = import_timm()
    theirs = randomise_parameters(timm.create_model(TINY, depth=1, img_size=(70, 90), num_classes=4)).eval()
    ours = import_weights(
        "timm", theirs.state_dict(), {"model": TINY, "depth": 1, "img_size": (70, 90), "num_classes": 4}
    )
    assert (ours.config.fit, ours.config.train_grid) == ("crop", (4, 5))
    given = torch.randn(2, 3, 70, 90)
    assert (theirs(given) - ours(given)).abs().max() < 2e-5
    assert torch.equal(ours(list(given)), ours([one[:, :64, :80] for one in given]))
    with pytest.raises(InputError, match="holds no whole patch"):
        ours(torch.randn(1, 3, 15, 90))


LOOKHERE = {"global_slope": 1.0, "layer_slopes": [1.5, 0.5], "head_directions": "halves-diagonals-none"}


@pytest.mark.parametrize(
    ("project", "config", "state"),
    [
        ("big_vision", {"num_classes": 3, "mlp_dim": 10**9}, {}),
        ("big_vision", {"num_classes": 3, "depth": 2, "width": 10**30}, {}),
        ("lookhere", {"lh_config": LOOKHERE}, {"head.fc1.weight": torch.tensor(1.0)}),
        ("big_vision", {"num_classes": 3}, {"pos_embedding": torch.tensor(1.0)}),
        ("timm", {"model": TINY, "img_size": 10**30}, {}),
    ],
)  # fmt: skip
def test_absurd_sizes_are_one_line_and_take_no_memory(project, config, state):
    with pytest.raises(InputError) as caught:
        import_weights(project, state, config)
    assert "\n" not in str(caught.value)


def test_a_repository_with_a_torch_file_alone_is_fetched(hub):
    timm = import_timm()
    original = randomise_parameters(timm.create_model(TINY, depth=1, img_size=32, num_classes=3)).eval()
    kept = hub.root / "them" / "old"
    kept.mkdir(parents=True)
    arguments = {"depth": 1, "img_size": 32}
    (kept / "config.json").write_text(json.dumps({"architecture": TINY, "num_classes": 3, "model_args": arguments}))
    torch.save(original.state_dict(), kept / "pytorch_model.bin")
    loaded = sightline.load_model("hf-hub:them/old")
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(loaded(images), original(images), rtol=0, atol=2e-5)


def test_a_torch_file_beside_safetensors_is_not_fetched(hub, model):
    sightline.push_to_hub(model, "me/both")
    (hub.root / "me/both/pytorch_model.bin").write_bytes(b"large")
    sightline.load_model("hf-hub:me/both")
    assert not (hub.root / "cache/me/both/pytorch_model.bin").exists()


def test_one_file_of_weights_of_a_repository_of_two_kinds(hub, tmp_path):
    """open_clip's repositories often have transformers' files too."""
    kept = hub.root / "them/clip"
    kept.mkdir(parents=True)
    for name in ("open_clip_config.json", "config.json", "open_clip_pytorch_model.bin", "model.safetensors"):
        (kept / name).write_bytes(b"{}")
    fetched = resolve_source("hf-hub:them/clip")
    assert {one.name for one in fetched.iterdir()} == {
        "open_clip_config.json", "config.json", "open_clip_pytorch_model.bin",
    }  # fmt: skip
