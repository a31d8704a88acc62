"""Images as a model wants them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import sightline
from sightline.data.augmentations import apply_augmentations, make_augmentations
from sightline.data.image_file import read_image, read_image_size, read_picture, rgb_pixels
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.models import create_model
from tests.tiny import INPUTS


@pytest.fixture
def model():
    return create_model(
        "vit_micro_patch4", encoding="none", num_classes=5, image_size=16, depth=1, dim=48, heads=4,
        mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6),
    ).eval()  # fmt: skip


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_normalisation_and_layout(model):
    pixels = picture(16, 16)
    tensor = sightline.preprocessing(model)(pixels)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.float32, (3, 16, 16))
    for channel, (mean, std) in enumerate(((0.1, 0.4), (0.2, 0.5), (0.3, 0.6))):
        expected = (pixels[:, :, channel] / 255 - mean) / std
        np.testing.assert_allclose(tensor[channel].numpy(), expected, atol=1e-6)


def test_the_same_from_a_file_an_image_and_an_array(model, tmp_path):
    pixels = picture(20, 31)
    Image.fromarray(pixels).save(tmp_path / "ä b.png")
    prepare = sightline.preprocessing(model)
    one = prepare(pixels, "native")
    assert tuple(one.shape) == (3, 20, 32)
    for other in (tmp_path / "ä b.png", str(tmp_path / "ä b.png"), Image.open(tmp_path / "ä b.png")):
        assert torch.equal(prepare(other, "native"), one)


@pytest.mark.parametrize(
    ("resolution", "most", "size"),
    [(None, None, (16, 16)), (24, None, (24, 24)), ("native", None, (60, 100)), ("native", 100, (32, 48))],
)
def test_sizes(resolution, most, size, model):
    tensor = sightline.preprocessing(model)(picture(60, 101), resolution, most)
    assert tuple(tensor.shape[1:]) == size or (most and tensor[0].numel() // 16 <= most)
    with torch.inference_mode():
        assert model([tensor]).isfinite().all()


def test_the_middle_of_an_image(model):
    """The shorter side fills the square, the longer one is cut evenly."""
    image = np.zeros((16, 48, 3), np.uint8)
    image[:, 16:32] = 255
    view = sightline.preprocessing(model).view(image)
    assert view.min() == 255
    assert sightline.preprocessing(model).view(image.transpose(1, 0, 2)).min() == 255


def test_a_model_of_timm():
    """All that is asked of a model is what timm's have."""
    cfg = {"input_size": (3, 32, 48), "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    other = SimpleNamespace(pretrained_cfg=cfg | {"crop_pct": 0.9}, patch_embed=SimpleNamespace(patch_size=(16, 16)))
    prepare = sightline.preprocessing(other)
    assert (prepare.patch_size, prepare.crop) == (16, 0.9)
    assert tuple(prepare(picture(50, 40)).shape) == (3, 32, 48)
    assert tuple(prepare(picture(50, 40), "native").shape) == (3, 48, 48)


@pytest.mark.parametrize("name", ["exif_6.jpg", "gray16_ramp.png", "palette_transparent.png", "rgba.png", "la.png"])
def test_an_opened_image_is_what_its_file_is(model, name):
    prepare = sightline.preprocessing(model)
    with Image.open(INPUTS / name) as opened:
        assert torch.equal(prepare(opened, "native"), prepare(INPUTS / name, "native"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_a_turned_image_is_turned_once(ending, orientation, model, tmp_path):
    """Whoever reads it: Pillow turns a TIFF by itself."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    smooth = np.add.outer(np.arange(45) * 3, np.arange(61) * 2).astype(np.uint8)
    stored, path = np.stack([smooth, smooth // 2, 255 - smooth], axis=-1), tmp_path / f"turned.{ending}"
    Image.fromarray(stored).save(path, exif=exif, **{"quality": 95} if ending != "tif" else {})
    turns = {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}[orientation]
    upright = np.rot90(stored[:, ::-1] if orientation in (2, 4, 5, 7) else stored, turns)
    assert read_image_size(path) == upright.shape[:2]
    read, picture = read_image(path), read_picture(path)
    assert np.abs(read.astype(int) - upright).max() < 12
    assert np.array_equal(np.asarray(picture), read)
    with Image.open(path) as opened:
        assert np.array_equal(rgb_pixels(opened), read)
    prepare = sightline.preprocessing(model)
    with Image.open(path) as opened:
        assert torch.equal(prepare(path, "native"), prepare(opened, "native"))


@pytest.mark.parametrize("parts", [0.35, "simple"])
def test_training_images_are_those_of_a_run(parts, model, tmp_path):
    for number in range(4):
        folder = tmp_path / "train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(150, 200, number)).save(folder / f"{number}.jpg")
    source = open_source(f"imagefolder:{tmp_path}").with_view(parts=parts, flip=0.5)
    augment = {"colour_jitter": {"brightness": 0.5}, "random_erasing": {"chance": 1.0}}
    prepare = sightline.preprocessing(model, training=True, parts=parts, augment=augment)
    made = make_augmentations(augment)
    for index, epoch in ((0, 0), (3, 0), (3, 2)):
        draw = {"seed": 7, "epoch": epoch, "index": index}
        shown = source.example("train", index, (16, 24), seed=7, epoch=epoch)
        pixels = apply_augmentations(shown.image, made, **draw)
        assert np.array_equal(prepare.view(shown.name, (16, 24), **draw), pixels)
        expected = sightline.preprocessing(model).normalise(pixels)
        assert torch.equal(prepare(shown.name, (16, 24), **draw), expected)


def test_training_images_differ_each_time_and_with_torchs_seed_do_not(model):
    prepare, image = sightline.preprocessing(model, training=True, parts=0.1), picture(64, 96)
    torch.manual_seed(3)
    first, second = prepare(image), prepare(image)
    assert first.shape == (3, 16, 16)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(prepare(image), first)
    # At its own aspect, of no more patches than asked for.
    assert prepare(image, "native").shape == (3, 64, 96)
    assert prepare(image, "tokens", 24).shape == (3, 16, 24)


@pytest.fixture
def prepare():
    model = sightline.create_model("vit_micro_patch4", encoding="none", num_classes=2, image_size=16, depth=1)
    return sightline.preprocessing(model)


def test_height_and_width(prepare):
    """They are not exchanged, and the middle is kept."""
    image = np.zeros((40, 40, 3), np.uint8)
    image[8:32] = 255
    assert tuple(prepare(image, (8, 16)).shape) == (3, 8, 16)
    assert prepare.view(image, (8, 16)).min() == 255
    assert prepare.view(image, (16, 8)).min() == 0


@pytest.mark.parametrize("augment", ["colour_jitter", ["colour_jitter"]])
def test_augmentations_are_options_by_name(augment, model):
    with pytest.raises(InputError) as raised:
        sightline.preprocessing(model, training=True, augment=augment)
    assert (raised.value.field, raised.value.value) == ("augment", augment)
