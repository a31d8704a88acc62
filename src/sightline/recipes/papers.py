"""The papers' own runs. They are as their papers say, not as this machine can: `--accumulate 8`, more processes or
fewer images make them possible elsewhere.

ImageNet-1k has 1,281,167 training images. Where a paper is silent the docstring says what was chosen.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sightline.data.config import MixingConfig, PackingConfig
from sightline.training.config import OptimizerConfig, TrainConfig, ValidationConfig

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_MIXING = MixingConfig(mixup=0.8, cutmix=1.0)
_AUGMENTED: dict[str, Any] = {"parts": 0.08, "augment": {"three_augment": {}, "colour_jitter": {}}, "mixing": _MIXING}


def _imagenet(data: str, optimizer: OptimizerConfig, model: str = "vit_base_patch16", **fields: Any) -> TrainConfig:
    validation = ValidationConfig(times=150, images=12_812)
    return TrainConfig(data=data, model=model, resolution=224, optimizer=optimizer, validation=validation, **fields)


def lookhere_150ep(data: str = "imagefolder:.") -> TrainConfig:
    """LookHere's training (appendix A.4.1): ViT-B/16, 150 epochs at 224 px, batch 2048, AdamW, the binary cross entropy
    summed over classes, 3-Augment, mixup .8 and CutMix 1, layers dropped at .1.

    `sightline train --recipe lookhere_150ep --encoding lookhere_90 --data imagefolder:DIR,minival=0.01`: about 3 days
    on an RTX 4090 (A.4.2). The paper's best of eight runs (table 1, tables 10 and 11): top-1 on ImageNet of 81.02 for
    LH-90, 81.31 for LH-180, 80.38 for 2D-RoPE, 79.45 for 1D-learn. Its sweep: `optimizer.lr` 1.5e-3 or 3e-3,
    `optimizer.weight_decay` .02 or .05, 3-Augment or `augment={rand_augment: {operations: 2, magnitude: 15}}`.

    Chosen: the random crop's smallest part (.08, DeiT III's), colour jitter .3 beside 3-Augment (DeiT III's), no
    clipping (none is named), images mixed each by itself. `minival=0.01` holds out the last of a permutation of train
    (12,811 images), which is not the paper's split: that is not published, and the last of a folder is ten classes.
    """
    head = {"head": "mlp", "head_std": 0.0, "head_bias": -6.9}
    return _imagenet(
        data,
        OptimizerConfig(lr=3e-3, betas=(0.9, 0.999), weight_decay=0.05, warmup=0.1, clip=None),
        model_options={**_IMAGENET, "layer_scale": 1e-4, "norm_eps": 1e-5, "drop_path": 0.1, **head},
        epochs=150.0,
        batch_size=2048,
        loss="bce",
        **_AUGMENTED,
    )


def lookhere_highres(data: str = "imagefolder:.") -> TrainConfig:
    """LookHere's fine-tuning at 384 px (appendix A.4.3, after DeiT III): 5 epochs, batch 512, layers dropped at .2,
    decay .1, a rate of 1e-5; all else as `lookhere_150ep`.

    `sightline train --recipe lookhere_highres --init-from RUN --data imagefolder:DIR`: the paper states no time; figure
    6 shows the gain in top-1 over 224 px.

    Chosen: the rate is the same all through ("fix the learning rate"), after a tenth of the steps in which it rises.
    """
    before = lookhere_150ep(data)
    return dataclasses.replace(
        before,
        model=None,
        model_options={"drop_path": 0.2},
        resolution=384,
        epochs=5.0,
        batch_size=512,
        optimizer=dataclasses.replace(before.optimizer, lr=1e-5, weight_decay=0.1, schedule="constant"),
        validation=ValidationConfig(times=5, images=12_812),
    )


def deit3_400ep(data: str = "imagefolder:.") -> TrainConfig:
    """DeiT III's training as RoPE-ViT uses it (section 4.1): 400 epochs at 224 px, batch 2048, LAMB, the binary cross
    entropy, 3-Augment with colour jitter .3, mixup .8 and CutMix 1, each image three times in a row.

    `sightline train --recipe deit3_400ep --encoding rope_mixed --data imagefolder:DIR`: top-1 on ImageNet at 224 px of
    80.4 for ViT-S with learned positions and 80.9 with RoPE-Mixed (RoPE-ViT, table of figure 4). The papers state no
    time for it.

    Values are those of RoPE-ViT's public command for ViT-S (naver-ai/rope-vit): rate 4e-3 that rises for 5 epochs and
    falls to 1e-5, decay .03, no layer dropped, LayerScale 1e-4; DeiT III's own command (facebookresearch/deit) is for
    800 epochs, with .05 and .05. As theirs the loss is the mean over classes, and gradients are clipped at a norm of
    1; otherwise, theirs takes every mixed class as a whole one, and here classes have their share.
    """
    return _imagenet(
        data,
        OptimizerConfig(
            name="lamb", lr=4e-3, betas=(0.9, 0.999), weight_decay=0.03, warmup=5 / 400, final_lr=1e-5, clip=1.0
        ),
        "vit_small_patch16",
        model_options={**_IMAGENET, "layer_scale": 1e-4},
        encoding="rope_mixed",
        epochs=400.0,
        batch_size=2048,
        loss="bce_mean",
        repeats=3,
        **_AUGMENTED,
    )


def vit_imagenet(data: str = "imagefolder:.") -> TrainConfig:
    """ViT's training on ImageNet alone (table 3): ViT-B/16, 300 epochs at 224 px, batch 4096, Adam with a rate of 3e-3
    that rises for 10,000 steps and falls as a cosine, decay .3, dropout .1, gradients clipped at 1.

    `sightline train --recipe vit_imagenet --data imagefolder:DIR`: after fine-tuning at 384 px (`vit_finetune`) top-1
    of 77.91 for ViT-B/16 (table 5). The paper states no time for it.

    Decay is decoupled, so the optimizer is AdamW: a decay of .3 inside the gradient would outweigh it; the rate
    multiplies it. Chosen: Inception's crop (parts of .05), no smoothing, the softmax cross entropy.
    """
    return _imagenet(
        data,
        OptimizerConfig(lr=3e-3, betas=(0.9, 0.999), weight_decay=0.3, warmup=10_000, clip=1.0),
        model_options={"head": "mlp", "head_std": 0.0, "dropout": 0.1},
        encoding="learned_1d",
        epochs=300.0,
        batch_size=4096,
        loss="ce",
        parts=0.05,
    )


def vit_finetune(data: str = "imagefolder:.") -> TrainConfig:
    """ViT's fine-tuning (appendix B.1.1, table 4): 20,000 steps at 384 px, batch 512, SGD with momentum .9, a cosine,
    no decay, gradients clipped at 1, a new linear head that begins with 0.

    `sightline train --recipe vit_finetune --init-from RUN --data imagefolder:DIR`: at 384 px ViT-L/16 pre-trained on
    JFT-300M reaches a top-1 of 87.12 on ImageNet, ViT-B/16 pre-trained on ImageNet 77.91 (table 5). The 87.76 of table
    2 are of 512 px and averaged weights: `--resolution 512 --optimizer.ema 0.9999`. The paper states no time. Table
    4 sweeps `optimizer.lr` over .003, .01, .03 and .06.

    Chosen: .03 of these, 500 steps in which the rate rises, Inception's crop.
    """
    return TrainConfig(
        data=data,
        model_options={"head": "linear", "head_std": 0.0},
        resolution=384,
        images=20_000 * 512,
        batch_size=512,
        loss="ce",
        parts=0.05,
        # The paper's mean has one decay from the first step on.
        optimizer=OptimizerConfig(
            name="sgd", lr=0.03, momentum=0.9, weight_decay=0.0, warmup=500, clip=1.0, ema_warmup=False
        ),
    )


def vit_masked_patches(data: str = "imagefolder:.") -> TrainConfig:
    """ViT's masked patch prediction (appendix B.1.2): ViT-B/16, 1,000,000 steps of 4,096 images at 224 px, Adam with a
    rate of 2e-4 that rises for 10,000 steps and falls as a cosine; of half of the patches, of which 80 % become a
    [mask], 10 % another patch and 10 % stay, the mean 3-bit colour.

    `sightline train --recipe vit_masked_patches --data imagefolder:DIR`: the paper's steps are about 14 passes over JFT
    (about 3,200 over ImageNet, with gains that diminish after 100,000 steps, so `--images 409600000`); fine-tuned on
    ImageNet it reaches a top-1 of 79.9, 2 % above training from nothing (section 4.6). The paper states no time for it.

    Decay is .1, as for all of its pre-training (section 4.1), and decoupled, so the optimizer is AdamW. Chosen:
    Inception's crop (parts of .05), no clipping (none is named). `--task-options.target cells`, or `pixels`, are
    the paper's other two targets.
    """
    return _imagenet(
        data,
        OptimizerConfig(lr=2e-4, betas=(0.9, 0.999), weight_decay=0.1, warmup=10_000, clip=None),
        encoding="learned_1d",
        images=1_000_000 * 4096,
        batch_size=4096,
        task="masked_patches",
        parts=0.05,
    )


def navit_pretrain(data: str = "imagefolder:.") -> TrainConfig:
    """NaViT-B/16's pre-training (appendix B.1, table 2): images at their own aspect, sides of 64 to 256 px drawn for
    each, packed, about 4,096 sequences of 256 tokens a step; a rate of 8e-4 by the reciprocal square root, decay .03,
    on the head 3.0.

    `sightline train --recipe navit_pretrain --data imagefolder:DIR`: 1.8e9 images, 9.3e4 steps and 260 hours of a TPU
    core in the paper, on JFT-4B, whose accuracy is not ImageNet's. `--images` says how many are shown here.

    Chosen: factorised fractional positions, q and k normalised, no biases in blocks, a learned probe pools (all four
    section 2), half the tokens dropped by Beta draws (appendix B.6; table 2 has 4.9 images a sequence), 10,000 steps in
    which the rate rises and as many in which it falls to 0 (table 2), the binary cross entropy.
    """
    return TrainConfig(
        data=data,
        model="vit_base_patch16",
        model_options={"pool": "attention", "qk_norm": True, "qkv_bias": False, "block_bias": "mlp"},
        encoding="factorized_fractional",
        resolution=224,
        images=1_800_000_000,
        packing=PackingConfig(tokens=4096 * 256, resolutions=(64, 256), most_tokens=256, drop="beta"),
        loss="bce",
        optimizer=OptimizerConfig(
            lr=8e-4, betas=(0.9, 0.999), weight_decay=0.03, head_decay=3.0, schedule="rsqrt", warmup=10_000,
            cooldown=10_000, clip=1.0,
        ),
    )  # fmt: skip


def navit_contrastive(data: str = "csv:captions.csv") -> TrainConfig:
    """NaViT's contrastive training (section 3, appendix B.2): images at their own aspect, sides of 64 to R px drawn for
    each, packed, no other augmentation; a text encoder with the same changes, of at most 24 tokens, none of which is
    dropped; a rate of 3e-3, a decay of 1e-6 on all kernels, projections too; the rest as `navit_pretrain`.

    `sightline train --recipe navit_contrastive --data csv:FILE`: zero-shot top-1 on ImageNet of 72.9 for NaViT-L/14 and
    68.3 for ViT-L/14 after the same time (table 1), on WebLI, which is not public. The paper states no time for it.

    Chosen, as the paper does not say: R of 256, packs, images, model, dropped tokens and steps of warm-up and cooldown
    are those of `navit_pretrain`; the text tower has the depth and the width of ViT-B (12 layers, 768), a learned table
    of positions and a learned probe that pools; blocks of both towers have no biases, MLPs neither; the shared space
    has 768 numbers; the loss is the softmax one. A vocabulary of 32,000 tokens is learned from the captions, in small
    letters; the paper's is T5's: `--task-options.tokenizer hf-hub:google-t5/t5-base`.
    """
    before = navit_pretrain(data)
    text = {"depth": 12, "dim": 768, "heads": 12, "length": 24, "encoding": "learned_1d", "pool": "attention"}
    text |= {"qk_norm": True, "qkv_bias": False, "block_bias": False}
    return dataclasses.replace(
        before,
        model_options={**before.model_options, "block_bias": False},
        task="contrastive",
        task_options={"embed_dim": 768, "vocab_size": 32_000, "text": text},
        loss=None,
        parts=1.0,
        flip=0.0,
        optimizer=dataclasses.replace(before.optimizer, lr=3e-3, weight_decay=1e-6, head_decay=None),
    )
