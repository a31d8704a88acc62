"""Objects found by words, one shape of which no box was shown: a detector on the text tower of a contrastive run.

    sightline train --recipe contrastive_scenes --encoding lookhere_90 --out runs/words
    python benchmarks/words_detection.py runs/words [--hidden ring] [--images 16000] [--rows OUT]

The head `owlvit` begins with the trunk of the run, its queries are what the frozen text tower makes of the names of the
shapes, and training boxes of the hidden shape are left out as LVIS leaves out what it does not know: they count neither
as right nor as wrong (Minderer et al. 2022, section 4.3). Average precision of each shape on 600 test scenes at 32 and
64 px, and pictures of some of them in the folder of the run.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from measure import RESULTS, Parser, destination, print_table, write

from sightline.data.source import Example
from sightline.data.sources.scenes import Scenes
from sightline.evaluation import EvaluateConfig
from sightline.recipes import recipe
from sightline.training import train


class WithoutBoxes(Scenes):
    """`scenes:pairs` whose training images have no boxes of one shape."""

    def __init__(self, hidden: str) -> None:
        super().__init__("pairs")
        self.hidden = self.object_classes.index(hidden)

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        found = super().example(split, index, image_size, seed=seed, epoch=epoch)
        target: Any = found.target
        if split != "train":
            return found
        objects = target.objects
        shown = objects.labels != self.hidden
        fields = {name: getattr(objects, name)[shown] for name in ("boxes", "labels", "crowd", "areas", "masks")}
        hidden = dataclasses.replace(objects, **fields, non_exhaustive_classes=(self.hidden,))
        return dataclasses.replace(found, target=hidden)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("run", type=Path, help="a contrastive run")
    parser.add_argument("--hidden", default="ring", help="the shape of which no box is shown; ring")
    parser.add_argument("--images", type=int, default=16_000, help="training scenes; 16000")
    parser.add_argument("--out", type=Path, default=Path("runs/words_detection"), help="folder of the run")
    parser.add_argument("--rows", type=Path, help="the rows; benchmarks/results/words_detection.jsonl unless given")
    chosen = parser.parse_args()
    path = destination(chosen.rows, RESULTS / "words_detection.jsonl")
    config = dataclasses.replace(
        recipe("detect_scenes"), init_from=str(chosen.run), images=chosen.images,
        task_options={"head": "owlvit", "class_weight": 4.0},
    )  # fmt: skip
    test = EvaluateConfig((32, 64), ("test",), images=600)
    done = train(config, chosen.out, source=WithoutBoxes(chosen.hidden), test=test, warn=print)
    rows = [
        {"benchmark": "words_detection", "hidden": chosen.hidden, **row.record()}
        for row in done.rows
        if row.metric in ("box_ap", "box_ap50") and set(row.slices) <= {"class"}
    ]
    write(rows, path)
    table = [{"shape": one["slices"].get("class", "all"), **one} for one in rows]
    print_table(("metric", "shape", "resolution", "value"), table)
    print(f"pictures: {chosen.out / 'pictures'}; rows: {path}")


if __name__ == "__main__":
    main()
