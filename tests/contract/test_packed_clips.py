"""A clip that is packed with images and other clips gives the logits that it gives alone, from files to logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.data.loader import Collator, SampleSpec
from sightline.data.sizes import FrameSampling
from sightline.data.sources.clips import Clips
from sightline.models import Model, ViTConfig, make_model
from sightline.tasks.base import task_of
from tests.clips import make

ENCODINGS = ("lookhere_90", "factorized", "rope_axial", "rope_mixed", "learned_1d", "none")
# Not square, and others for each.
SIZES = [(8, 12), (12, 8), (8, 8), (4, 12)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    """Of each class a clip of 5 frames, of 4, of 3, and an image."""
    return Clips(make(tmp_path_factory.mktemp("clips"))).with_view(frames=FrameSampling(4, exact=False))


def model_of(encoding: str, tubelet: int, randomise) -> Model:
    config = ViTConfig(
        patch_size=4, dim=48, depth=2, heads=4, num_classes=2, image_size=(8, 12), clip_frames=4, encoding=encoding,
        embedder="tubelets", embedder_options={"frames": tubelet},
    )  # fmt: skip
    return randomise(make_model(config)).eval()


def planned(model: Model, source: Clips, indices: list[int], kept: bool = False) -> list[SampleSpec]:
    found = []
    for index in indices:
        size = SIZES[index % 4]
        cells = model.config.grid_of(size, source.frames_shown("test", index)).cells
        stay = torch.randperm(cells)[: cells // 2 + 1].sort().values.numpy() if kept else None
        found.append(SampleSpec(index, 0, size, cells if stay is None else len(stay), stay))
    return found


@pytest.mark.parametrize("kept", [False, True], ids=["whole", "dropped"])
@pytest.mark.parametrize("tubelet", [1, 2])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_packed_is_alone(source: Clips, encoding: str, tubelet: int, kept: bool, randomise) -> None:
    model = model_of(encoding, tubelet, randomise)
    task = task_of(model)
    make_batch = Collator(source, "test", model.image_rows, task.targets, num_prefix_tokens=model.num_prefix_tokens)
    every = planned(model, source, list(range(8)), kept)
    with torch.no_grad():
        pack = make_batch(every)
        assert {segment.grid[0] for segment in pack.layout.segments} == ({1, 2} if tubelet == 2 else {1, 3, 4})
        logits = task.outputs(model, pack, "float32")
        alone = torch.cat([task.outputs(model, make_batch([one]), "float32") for one in every])
        turned = task.outputs(model, make_batch(every[::-1]), "float32")
    assert logits.shape == (8, 2)
    assert alone.std(dim=0).min() > 1e-3, "all clips give the same"
    assert (logits - alone).abs().max() < 5e-5
    assert (turned.flip(0) - logits).abs().max() < 5e-5


def test_a_batch_of_clips_of_one_size_is_the_tensor_that_a_model_takes(source: Clips, randomise) -> None:
    model = model_of("lookhere_90", 2, randomise)
    uniform = source.with_view(frames=FrameSampling(4))
    from sightline.data.batch import collate_uniform

    task = task_of(model)
    make_batch = Collator(uniform, "test", model.image_rows, task.targets, collate_uniform, model.num_prefix_tokens)
    batch = make_batch([SampleSpec(index, 0, (8, 12), 12) for index in range(8)])
    clips = torch.stack([torch.from_numpy(uniform.example("test", i, (8, 12)).image.copy()) for i in range(8)])
    with torch.no_grad():
        found = task.outputs(model, batch, "float32")
        # [batch, frames, height, width, channels] to [batch, channels, frames, height, width], normalised.
        direct = model((clips.permute(0, 4, 1, 2, 3).float() / 255 - 0.5) / 0.5)
    assert (found - direct).abs().max() < 1e-5


def test_gradients_of_a_pack_are_those_of_each_alone(source: Clips, randomise) -> None:
    model = model_of("lookhere_90", 2, randomise)
    task = task_of(model)
    make_batch = Collator(source, "test", model.image_rows, task.targets, num_prefix_tokens=model.num_prefix_tokens)
    every = planned(model, source, list(range(8)))

    def gradients(batches: list[list[SampleSpec]]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        for one in batches:
            task.outputs(model, make_batch(one), "float32").square().sum().backward()
        return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}

    packed, alone = gradients([every]), gradients([[one] for one in every])
    assert packed.keys() == alone.keys()
    for name, value in packed.items():
        assert (value - alone[name]).norm() <= 1e-4 * alone[name].norm() + 1e-6, name


def test_folders_and_files_of_one_clip_give_the_same(tmp_path: Path, randomise) -> None:
    from sightline.evaluation.predict_images import Predicted, predict_images
    from tests.clips import frames_of, save_folder, save_gif, save_webp

    model, frames = model_of("lookhere_90", 2, randomise), frames_of(4, 6)
    paths = [
        save_folder(tmp_path / "a", frames),
        save_gif(tmp_path / "b.gif", frames),
        save_webp(tmp_path / "c.webp", frames),
    ]
    found = [one for some in predict_images(model, task_of(model), [str(path) for path in paths]) for one in some]
    assert [one.image for one in found] == [str(path) for path in paths]
    for one in found:
        assert isinstance(one, Predicted)
        assert (one.frames, tuple(one.grid), one.size) == (4, (2, 3, 4), (12, 16))
        # MKL rounds a row by where it stands in a product: three clips of one pack.
        torch.testing.assert_close(one.output, found[0].output)
