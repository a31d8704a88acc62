"""What two ways of holding one model in several processes take: each the whole of it (DDP), or each a part (FSDP2).

    python benchmarks/sharding.py [--model vit_large_patch16] [--ranks 2] [--steps 2] [--out OUT]

The steps are those of `train`: two images a process at 64 px, AdamW, float32, processes joined by gloo on the
processors of this machine, one thread each. `begun_mib` is what one of them had before the model was built, `steps_mib`
the most during the steps, `peak_mib` the most of all (FSDP2 builds the whole model before it gives it up). `gradient`
is the norm of the gradient of the first step, which both must agree on. ViT-L takes about two minutes and 12 GiB.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import torch
from measure import Parser, in_fresh_process, mark_memory, print_table, resident_bytes

from sightline.distributed import machine
from sightline.distributed.ranks import init_ranks
from sightline.io.tensors import full_tensor
from sightline.tasks.base import task_class
from sightline.training.config import OptimizerConfig, TrainConfig
from sightline.training.loop import train_step
from sightline.training.optim import make_optimizer
from sightline.training.parallel import parallelize
from sightline.training.plan import training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from sightline.training.state import TrainState

_SIDE, _IMAGES = 64, 2


def measure(sharing: str, model_name: str, steps: int) -> dict[str, Any] | None:
    """What one of the processes finds of all; None on the others."""
    torch.set_num_threads(1)
    with init_ranks("cpu") as ranks:
        config = TrainConfig(
            data="scenes", model=model_name, resolution=_SIDE, images=ranks.size * _IMAGES * steps,
            batch_size=ranks.size * _IMAGES, sharing=sharing, validation=None, precision="float32",
            optimizer=OptimizerConfig(warmup=0.0, clip=None),
        )  # fmt: skip
        source = open_training_data(config)
        config = resolve(config, source, torch.device("cpu"))
        begun = resident_bytes()
        model = build_model(config, source).train()
        parameters = sum(one.numel() for one in model.parameters())
        task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
        holder = parallelize(model, ranks, config.sharing)
        state = TrainState(model, make_optimizer(model, config.optimizer), None, config, source, ranks)
        built, norm = machine.peak_memory(), None
        mark_memory()
        seconds = []
        for step, batches in training_plan(config, model.config, source).batches(model.image_rows, task, ranks=ranks):
            started = time.perf_counter()
            loss = float(train_step(state, task, holder, batches, config.optimizer.lr, step)[0])
            seconds.append(time.perf_counter() - started)
            if norm is None:
                squares = [full_tensor(one.grad.square().sum()) for one in model.parameters() if one.grad is not None]
                norm = math.sqrt(sum(float(one) for one in squares))
            state.step += 1
        during = machine.peak_memory()
        told = ranks.all_gather_json([built, during, begun])
        if not ranks.is_main:
            return None
        most = [max(one[part] for one in told) for part in range(3)]
        return {
            "sharing": sharing,
            "parameters": parameters,
            "ranks": ranks.size,
            "steps": steps,
            "begun_mib": round(most[2] / 2**20),
            "steps_mib": round(most[1] / 2**20),
            "peak_mib": round(max(most) / 2**20),
            "seconds": [round(one, 2) for one in seconds],
            "loss": loss,
            "gradient": norm,
        }


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("sharding", quick="a tiny model: for tests, not for publishing")
    parser.add_argument("--model", default="vit_large_patch16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--one", choices=("ddp", "fsdp"), help=argparse.SUPPRESS)
    chosen = parser.begin()
    model = "vit_micro_patch4" if chosen.quick else chosen.model
    if chosen.one:
        found = measure(chosen.one, model, chosen.steps)
        if found is not None:
            print(json.dumps(found))
        return
    rows = []
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(chosen.ranks), sys.argv[0]]
    for sharing in ("ddp", "fsdp"):
        found = in_fresh_process("-m", [*launch, "--one", sharing, "--model", model, "--steps", str(chosen.steps)])
        rows.append(
            {
                "benchmark": "sharding", "model": model, "side": _SIDE, "images": chosen.ranks * _IMAGES,
                "dtype": "float32", **found, "threads": 1, "hardware": machine.hardware_name("cpu"),
                "torch": torch.__version__, "commit": machine.git_commit(),
            }
        )  # fmt: skip
    print_table(("sharing", "ranks", "steps_mib", "peak_mib", "seconds", "loss", "gradient"), rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
