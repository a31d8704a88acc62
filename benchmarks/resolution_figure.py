"""The figure at the top of README: accuracy by resolution of four encodings, from the rows of `sightline compare`.

    python benchmarks/resolution_figure.py [--out docs/figures/resolutions.svg]

Lines are means over three seeds of top-1 on 24 classes of drawn glyphs; bands are 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
from ranges import rows

ENCODINGS = {
    "lookhere_90": ("LookHere-90", "#1b6ca8", "o"),
    "alibi_2d": ("2-D ALiBi", "#3a8f5c", "^"),
    "learned_1d": ("learned, resized", "#8a6d3b", "s"),
    "rope_axial": ("axial RoPE", "#c2452d", "D"),
}
TRAINED = 32


def draw(out: Path) -> None:
    """Write the figure as an SVG that is the same each time."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    found = [
        row
        for row in rows("compare")
        if (row["kind"], row["metric"], row["split"], row["fine_tuned"]) == ("mean", "top1", "test", False)
        and not row["slices"]
    ]
    settings = {"svg.hashsalt": "sightline", "font.size": 10, "svg.fonttype": "path"}
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
        for encoding, (label, colour, marker) in ENCODINGS.items():
            mine = sorted((row["resolution"], row) for row in found if row["encoding"] == encoding)
            sides = [side for side, _ in mine]
            axes.plot(sides, [100 * row["value"] for _, row in mine], color=colour, marker=marker, label=label)
            low, high = zip(*(row["interval"] for _, row in mine), strict=True)
            axes.fill_between(sides, [100 * one for one in low], [100 * one for one in high], color=colour, alpha=0.12)
        axes.axvline(TRAINED, color="#777777", linestyle=":")
        axes.annotate(f"trained at {TRAINED} px", (TRAINED + 1, 2), color="#555555")
        axes.set(xlabel="side of the test images in pixels", ylabel="top-1 in %", ylim=(0, 68))
        axes.set_xscale("log", base=2)
        ticks = sorted({row["resolution"] for row in found} - {20, 28})
        axes.set_xticks(ticks, [str(side) for side in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, ncols=2, loc="upper right")
        figure.savefig(out, metadata={"Date": None})
        pyplot.close(figure)
    # matplotlib ends lines with blanks, which no other file here has.
    text = "\n".join(line.rstrip() for line in out.read_text(encoding="utf-8").splitlines())
    out.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = Path(__file__).parents[1] / "docs" / "figures"
    parser.add_argument("--out", type=Path, default=figures / "resolutions.svg")
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
