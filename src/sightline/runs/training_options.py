"""Options of commands that train several runs: what is asked for becomes options of a command line."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from sightline.runs.options import Int, KeyOptions, Switch, Whole, Words


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Which trainings are compared.

    Attributes:
        encodings: For example lookhere_90,rope_axial. Default: the ten of LookHere's paper.
        seeds: Trainings of each encoding.
        seed: The first seed.
        sizes: Sides in pixels of the test images, for example 32,64,148. Default: ten, up to 4.6 times the 32 px of
            training.
        images: Images of each training. Default: 9,600, with --quick 320.
        fine_tune: Side in pixels of the fine-tuning.
        no_fine_tune: Do not fine-tune.
        quick: Train on very few scenes, only to see that everything works.
    """

    encodings: Words = ()
    seeds: Int = 3
    seed: Int = 0
    sizes: Words = ()
    images: Whole = None
    fine_tune: Int = 56
    no_fine_tune: Switch = False
    quick: Switch = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TransferOptions:
    """How a model is fine-tuned to data sets; what is not given is the paper's, by the data set (ViT, table 4).

    Attributes:
        resolution: Side of the images in pixels.
        lrs: Learning rates of the grid, for example 0.001,0.003; a single rate is used without a search. Default: by
            the data set.
        steps: Steps of each training. Default: by the data set.
        held_out: Share of train on which the rate is chosen, if the data has no split minival. Default: by the data
            set.
        seeds: Trainings on all of train, with the chosen rate.
        seed: The first seed, also that of the grid.
        batch_size: Images per step.
        training: Other settings of train, for example --training.accumulate 8 or --training.optimizer.layer_decay 0.9.
    """

    resolution: Int = 384
    lrs: Words = ()
    steps: Whole = None
    held_out: float | None = None
    seeds: Int = 1
    seed: Int = 0
    batch_size: Int = 512
    training: KeyOptions = None
