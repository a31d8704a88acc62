"""`sightline compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sightline.runs.training_options import CompareOptions

if TYPE_CHECKING:
    from sightline.runs.compare import ComparisonResult


def compare(
    *,
    options: CompareOptions | None = None,
    out: Path = Path("runs/compare"),
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
) -> None:
    """Train encodings with one recipe and several seeds on drawn scenes, and compare them at many sizes.

    LookHere's controlled experiment: one recipe, parameters tuned at each size, fine-tuning at a larger size, the
    paper's tables and figures with intervals over seeds, and tests of each pair of encodings. It takes no data set; to
    compare encodings on your own images, sweep over `encoding` (docs/how-to/compare.md). Writes report.html,
    comparison.jsonl, tables.csv and tables.tex; each run is an ordinary run in --out. Each core trains one run. After
    an interruption, continue with --resume.

    Args:
        out: Folder of the comparison.
        resume: Continue a comparison; finished runs are kept.
        overwrite: Delete what is in --out first.
        device: cpu, auto, cuda, mps.
    """
    from sightline.cli import next_step, progress
    from sightline.io.run_files import COMPARISON, PAGE, TABLES
    from sightline.reports.comparison_page import print_comparison
    from sightline.runs.compare import compare as compare_encodings

    with progress.Bars() as bars:
        done = compare_encodings(
            options, out, device=device, resume=resume, overwrite=overwrite, begin=_say,
            observe=progress.of_jobs(bars),
        )  # fmt: skip
    print_comparison(done.rows)
    print(f"Took {done.seconds / 60:.1f} minutes.")
    for name in (COMPARISON, *TABLES):
        print(f"{'rows' if name == COMPARISON else 'tables'}: {out / name}")
    print(f"open in a browser: {out / PAGE}")
    next_step.say_next("evaluate", done.jobs[0].out, "--resolutions", done.asked.resolutions[-1])


def _say(about: ComparisonResult) -> None:
    """What will be done, before it is."""
    from sightline.distributed import machine
    from sightline.recipes.compare import TRAINED
    from sightline.runs.compare import DEMONSTRATION

    asked, images = about.asked, about.jobs[0].train.images or 0
    seeds = "seed" if len(asked.seeds) == 1 else "seeds"
    print(f"{len(asked.encodings)} encodings ({', '.join(asked.encodings)}), {len(asked.seeds)} {seeds} each,")
    fewer = f", fewer than the demonstration's {DEMONSTRATION:,}" if images < DEMONSTRATION else ""
    print(f"each trained on {images:,} scenes at {TRAINED} px{fewer}.")
    print(f"Then tested at {', '.join(map(str, asked.resolutions))} px, parameters tuned at each.")
    if asked.fine_tune is not None:
        print(f"Then trained on for {about.jobs[-1].train.images:,} scenes at {asked.fine_tune} px, and tested there.")
    if asked.quick:
        print("Quick: too few scenes to learn from, to see that everything works.")
    done = f", of which {len(about.jobs) - about.left} are done" if about.left < len(about.jobs) else ""
    print(f"On {machine.hardware_name(about.device)}.")
    print(f"{len(about.jobs)} trainings in all{done}, {about.at_once} at a time.", flush=True)
