"""`sightline compare`: a miniature from end to end, one that is killed and goes on, and what it refuses at once."""

from __future__ import annotations

import shutil

import pytest

from sightline.recipes.compare import ENCODINGS, RESOLUTIONS, Compare, compare_jobs
from sightline.results.comparison import COMPARISON_ROWS, DifferenceRow, MeanRow, of_kind
from sightline.results.rows import read_rows
from sightline.runs import outputs
from sightline.training import jobs
from tests.tiny import fork_server, tree, weights

MINI = ("--quick", "--encodings", "lookhere_90,learned_1d", "--seeds", 1, "--sizes", "16,32", "--fine-tune", 40)
NAMES = ("lookhere_90_0", "learned_1d_0", "lookhere_90_0_at_40", "learned_1d_0_at_40")


@pytest.fixture
def quick_start(monkeypatch):
    """Processes that begin quickly."""
    context = fork_server()
    monkeypatch.setattr(jobs.multiprocessing, "get_context", lambda kind: context)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--encodings", "lookhere_90,rope_axail"], ["encoding 'rope_axail'", "did you mean 'rope_axial'?"]),
        (["--encodings", "none,none"], ["--encodings: none is there twice"]),
        (["--sizes", "16,33"], ["--sizes 33", "multiple of patch_size 4", "32 or 36"]),
        (["--sizes", "16,big"], ["--sizes big", "sides in pixels"]),
        (["--sizes", "0"], ["resolutions[0] = 0"]),
        (["--fine-tune", "57"], ["--fine-tune 57", "56 or 60"]),
        (["--seeds", "0"], ["--seeds 0"]),
        (["--seed", "-1"], ["--seed -1"]),
        (["--images", "0"], ["--images 0"]),
        (["--resume", "--overwrite"], ["--resume and --overwrite"]),
        (["--device", "tpu"], ["device 'tpu'"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path):
    refused("compare", "--out", tmp_path / "c", *words, says=says)
    assert tree(tmp_path) == {}


def test_only_encoding_and_seed_differ(tmp_path):
    """The rule of a controlled experiment, of each job's whole configuration; second trainings wait for the first."""
    made = compare_jobs(Compare(), tmp_path)
    first, second = made[: 3 * len(ENCODINGS)], made[3 * len(ENCODINGS) :]
    assert [(job.train.seed, job.train.encoding) for job in first] == [
        (seed, name) for seed in range(3) for name in ENCODINGS
    ]
    for some in (first, second):
        kept = {repr(_without(job.train, ("encoding", "seed", "init_from"))) for job in some}
        assert len(kept) == 1
        assert len({repr(job.evaluate) for job in some}) == 1
    assert [job.after for job in second] == [job.name for job in first]
    assert [job.train.init_from for job in second] == [str(job.out) for job in first]
    assert (second[0].train.resolution, second[0].train.images) == (56, 640)
    assert first[0].evaluate.resolutions == RESOLUTIONS
    assert {job.logits for job in made} == {True}
    # Where this version has the attack.
    assert {(one.measures, one.resolutions, one.splits) for one in first[0].more} <= {(("fgsm",), (32,), ("test",))}


def _without(config, names):
    return {key: value for key, value in vars(config).items() if key not in names}


def test_another_comparison_cannot_go_on(cli, refused, tmp_path, monkeypatch):
    class Begun(Exception):
        pass

    def begin(*_, **__):
        raise Begun

    monkeypatch.setattr("sightline.runs.compare.run_jobs", begin)
    out = tmp_path / "c"
    with pytest.raises(Begun):
        cli("compare", *MINI, "--out", out)
    before = tree(out)
    refused("compare", *MINI, "--out", out, says=["exists already", "--resume"])
    refused("compare", "--encodings", "lookhere_90", "--out", out, "--resume", says=["with images 320, not 9600"])
    refused("compare", *MINI[:-1], 48, "--out", out, "--resume", "--seed", 0, "--overwrite", says=["not both"])
    assert tree(out) == before
    with pytest.raises(Begun):
        cli("compare", *MINI, "--out", out, "--overwrite")
    assert list(outputs._foreign(out, NAMES)) == []


@pytest.mark.slow
def test_a_miniature(cli, tmp_path, quick_start):
    """Two encodings, one seed: rows, page, CSV and LaTeX; again it does nothing, and a lost run is made anew."""
    out = tmp_path / "c"
    code, said, errors = cli("compare", *MINI, "--out", out)
    assert code == 0, errors
    for name in ("comparison.jsonl", "tables.csv", "tables.tex", "report.html"):
        assert f": {out / name}" in said
        assert (out / name).stat().st_size > 500
    rows = read_rows(out / "comparison.jsonl", *COMPARISON_ROWS)
    top1 = [row for row in of_kind(rows, MeanRow) if row.metric == "top1" and not row.slices]
    assert {(row.encoding, row.split, row.resolution, row.fine_tuned) for row in top1} == {
        (name, *place)
        for name in ("lookhere_90", "learned_1d")
        for place in (
            ("test", 16, False), ("test", 32, False), ("test", 40, False), ("heldout_fonts", 32, False),
            ("test", 40, True), ("heldout_fonts", 40, True),
        )
    }  # fmt: skip
    assert {row.tuned for row in top1 if row.split == "test" and not row.fine_tuned} == {True, False}
    assert len(of_kind(rows, DifferenceRow)) == 4
    assert list(outputs._foreign(out, NAMES)) == []
    before, trained = tree(out), weights(out / "learned_1d_0")
    shutil.rmtree(out / "learned_1d_0")
    code, said, _ = cli("compare", *MINI, "--out", out, "--resume")
    assert code == 0
    assert "4 trainings in all, of which 3 are done" in said
    after = tree(out)
    assert weights(out / "learned_1d_0") == trained
    assert {name for name in before if name.startswith("lookhere_90") and before[name] != after[name]} == set()


@pytest.mark.parametrize(("quick", "images", "expected"), [
    (False, None, (9600, 640)), (True, None, (320, 21)), (True, 128, (128, 8)), (False, 3000, (3000, 200)),
])  # fmt: skip
def test_images_of_each_training(quick, images, expected, tmp_path):
    """Also with `--quick`, which passed over what was given."""
    jobs = compare_jobs(Compare(("none",), (0,), images=images, quick=quick), tmp_path)
    assert tuple(job.train.images for job in jobs) == expected
