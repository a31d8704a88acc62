"""How long a run will take here, from a few steps measured here."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from sightline import runtime
from sightline.data.discovery import open_source
from sightline.models import VisionTransformer
from sightline.tasks.classification import classification_loss
from sightline.training.loop import build_model, resolve
from sightline.training.optim import make_optimizer
from sightline.training.side_by_side import Job

_TEST_TOKENS = 2048


def estimate_seconds(job: Job) -> float:
    """The expected time of one job alone on its threads, in seconds; what it costs to draw its images is left out.

    Measures training steps, and a forward pass of a few images at each test size.
    """
    device = runtime.resolve_device(job.device)
    source = open_source(job.train.data)
    config = resolve(job.train, source, device)
    assert config.resolution is not None
    assert config.images is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        model = build_model(config, source).to(device)
        optimizer = make_optimizer(model, config.optimizer)
        low = config.precision == "bfloat16"
        images = torch.randn(config.batch_size, 3, config.resolution, config.resolution, device=device)
        labels = torch.zeros(config.batch_size, dtype=torch.int64, device=device)

        def step() -> None:
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                logits = model(images)
            classification_loss(logits, labels, config.loss).backward()
            optimizer.step()
            optimizer.zero_grad()

        seconds = _time(step, warm_up=2, rounds=4) * config.images / config.batch_size
        for side in job.evaluate.sides:
            splits = 1 + (side == config.resolution and "heldout_fonts" in job.evaluate.splits)
            count = job.evaluate.count(source.length("test"), side) * splits
            seconds += count * _seconds_an_image(model, side, low, device)
    finally:
        torch.set_num_threads(threads)
    return seconds


def _seconds_an_image(model: VisionTransformer, side: int, low: bool, device: torch.device) -> float:
    count = max(1, _TEST_TOKENS // model.config.grid_of(side).cells)
    images = torch.randn(count, 3, side, side, device=device)

    def forward() -> None:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=low):
            model(images)

    return _time(forward, warm_up=1, rounds=1) / count


def _time(work: Callable[[], None], *, warm_up: int, rounds: int) -> float:
    for _ in range(warm_up):
        work()
    started = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - started) / rounds
