"""One model for many patch sizes (FlexiViT, Beyer et al. 2023): one image size, a patch size drawn for each step."""

from __future__ import annotations

import dataclasses

from sightline.data.config import MixingConfig, PatchSizes
from sightline.recipes.embedded import scenes
from sightline.training.config import OptimizerConfig, TrainConfig, ValidationConfig

# Section 3.1 of the paper: they divide 240.
SIZES = (48, 40, 30, 24, 20, 16, 15, 12, 10, 8)


def flexi_scenes(data: str = "scenes") -> TrainConfig:
    """`scenes` at 32 px with one kernel of 8 px, resized at each step to patches of 16, 8 or 4 px.

    `sightline train --recipe flexi_scenes --out runs/flexi`, then `sightline evaluate runs/flexi --patch-size 8 --out
    flexi8.jsonl`: a step takes 28 patches an image on average, and one of `scenes` 64; top-1 on glyphs at 32 px of .41,
    .70 and .85 with patches of 16, 8 and 4 px (one seed; docs/reference/models.md).
    """
    before = scenes(data)
    flexible = {"embedder": "flexible", "embedder_options": {"base": 8}}
    return dataclasses.replace(
        before, model_options={**before.model_options, **flexible}, patch_sizes=PatchSizes((16, 8, 4))
    )


def flexivit(data: str = "imagefolder:.") -> TrainConfig:
    """FlexiViT-B: a kernel of 32 px and a table of 7 x 7, each step with patches of a size drawn evenly from 48, 40,
    30, 24, 20, 16, 15, 12, 10 and 8 px at 240 px (section 3.1), on labels.

    `sightline train --recipe flexivit --data imagefolder:DIR`: no time and no accuracy is stated here, since the
    published weights learn from a teacher's answers (section 4) or from ImageNet-21k.

    Chosen, after AugReg (Steiner et al. 2022): 300 epochs, batch 1024, AdamW with a rate of 1e-3, decay .1, RandAugment
    of two operations at magnitude 15, mixup .2, gradients clipped at 1, the softmax cross entropy. Ours begins with a
    table of 15 x 15, that of patches of 16 px; kernels are resized as timm does (bicubic, antialiased), so that tokens
    of all patch sizes begin alike.
    """
    return TrainConfig(
        data=data,
        model="vit_base_patch16",
        model_options={"pool": "mean", "embedder": "flexible", "embedder_options": {"base": 32, "sizes": list(SIZES)}},
        encoding="learned_1d",
        encoding_options={"interpolation": "bilinear_antialias"},
        resolution=240,
        patch_sizes=PatchSizes(SIZES),
        epochs=300.0,
        batch_size=1024,
        loss="ce",
        parts=0.05,
        augment={"rand_augment": {"operations": 2, "magnitude": 15}},
        mixing=MixingConfig(mixup=0.2, cutmix=0.0),
        optimizer=OptimizerConfig(lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1, warmup=10_000, clip=1.0),
        validation=ValidationConfig(times=150, images=12_812),
    )
