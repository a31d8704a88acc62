"""Projected gradient descent: several steps from anywhere in the ball."""

from __future__ import annotations

from typing import ClassVar

from sightline.evaluation.attacks import Attack, AttackMeasure


class PGD(AttackMeasure):
    """`pgd_top1` and `pgd_top5` (Madry et al. 2018, section 2.1): one random start of each image, and 10 steps of a
    quarter of epsilon, so that any point of the ball is within reach; the last point counts, whatever came before."""

    name: ClassVar[str] = "pgd"
    attack: ClassVar[Attack] = Attack("pgd", steps=10, share=0.25, random=True)
    cost: ClassVar[int] = 62
