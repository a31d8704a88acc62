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
        encodings: As lookhere_90,rope_axial; the ten of LookHere unless given.
        seeds: How many trainings of each encoding.
        seed: The first of the seeds.
        sizes: Sides in pixels of the test, as 32,64,148; ten up to 4.6 times the 32 px of training unless given.
        images: Of each training; 9,600 unless given, 320 with --quick.
        fine_tune: Side in pixels of the second training.
        no_fine_tune: Leave the second training out.
        quick: Too few scenes to learn from: to see that everything works.
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
        lrs: Learning rates of the grid, as 0.001,0.003; one alone is taken as it is.
        steps: Of each training.
        held_out: Share of train on which the rate is chosen, where the data has no split minival.
        seeds: How many trainings on all of train, with the rate that was chosen.
        seed: The first of the seeds, also that of the grid.
        batch_size: Images a step.
        training: Other settings of train, as --training.accumulate 8 or --training.optimizer.layer_decay 0.9.
    """

    resolution: Int = 384
    lrs: Words = ()
    steps: Whole = None
    held_out: float | None = None
    seeds: Int = 1
    seed: Int = 0
    batch_size: Int = 512
    training: KeyOptions = None
