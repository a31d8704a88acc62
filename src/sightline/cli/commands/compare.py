"""`sightline compare`."""

from __future__ import annotations

from pathlib import Path

from sightline.runs.options import Words


def compare(
    *,
    encodings: Words = (),
    seeds: int = 3,
    seed: int = 0,
    sizes: Words = (),
    images: int | None = None,
    fine_tune: int = 56,
    no_fine_tune: bool = False,
    out: Path = Path("runs/compare"),
    quick: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
) -> None:
    """Train position encodings alike, with several seeds each, test them at many sizes, and say what differs.

    LookHere's controlled experiment on embedded scenes: one recipe, knobs tuned at each size, a short second training
    at a larger size, its tables and figures with intervals over seeds, tests of each two encodings. Writes
    report.html, comparison.jsonl, tables.csv and tables.tex; each run is a folder in --out like any other. Killed or
    stopped, the same command goes on with --resume.

    Args:
        encodings: As lookhere_90,rope_axial; the ten of LookHere unless given.
        seeds: How many trainings of each encoding.
        seed: The first of the seeds.
        sizes: Sides in pixels of the test, as 32,64,148; ten up to 4.6 times the 32 px of training unless given.
        images: Of each training; 9,600 unless given, 64 with --quick.
        fine_tune: Side in pixels of the second training.
        no_fine_tune: Leave the second training out.
        out: Folder of the comparison.
        quick: Too few scenes to learn from: to see that everything works.
        resume: Continue a comparison that was stopped; what is done is not done again.
        overwrite: Delete what is in --out first.
        device: cpu, auto, cuda, mps.
    """
    from sightline.cli.compare_run import carry_out
    from sightline.distributed import machine
    from sightline.io.config import check_value, whole
    from sightline.recipes.compare import ENCODINGS, RESOLUTIONS, TRAINED, Compare
    from sightline.runs import console
    from sightline.runs.sizes import parse_numbers, split_words

    for option, value, least in (("--seeds", seeds, 1), ("--seed", seed, 0), ("--fine-tune", fine_tune, 1)):
        check_value(option, value, whole(least))
    sides = parse_numbers("--sizes", sizes, int, "sides in pixels, as 32,64,148") or RESOLUTIONS
    larger = None if no_fine_tune else fine_tune
    asked = Compare(
        tuple(split_words(encodings)) or ENCODINGS,
        tuple(range(seed, seed + seeds)),
        # What differs at the sizes of both trainings is a part of every comparison.
        tuple(sorted({*sides, TRAINED, larger or TRAINED})),
        images,
        larger,
        quick,
    )
    given = {
        "--encodings": ",".join(asked.encodings) if encodings else None,
        "--seeds": seeds if seeds != 3 else None,
        "--seed": seed or None,
        "--sizes": ",".join(map(str, sides)) if sizes else None,
        "--images": images,
        "--fine-tune": fine_tune if fine_tune != 56 and not no_fine_tune else None,
    }
    words = [word for option, value in given.items() if value is not None for word in (option, value)]
    switches = [word for word, on in (("--no-fine-tune", no_fine_tune), ("--quick", quick)) if on]
    command = ("compare", *words, *switches, "--out", out)
    way_on = (*command, *(("--device", device) if device != "cpu" else ()), "--resume")
    carry_out(
        asked, out, where=machine.resolve_device(device), resume=resume, overwrite=overwrite,
        command=console.command_line(*command), way_on=console.command_line(*way_on),
    )  # fmt: skip
