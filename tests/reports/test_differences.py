"""Tables of differences, computed from synthetic rows."""

from __future__ import annotations

from sightline.reports.differences import between_runs, of_downsampling, over_seeds
from sightline.reports.series import Study
from tests.reports.synthetic import accuracy_rows, row, run_summary


def cells(table):
    """Each line's name -> by column the number, and whether its interval leaves out 0."""
    titles = [head.title.replace("\xa0", " ") for head in table.columns]
    return {
        head.name: {title: (cell.value, cell.best) for title, cell in zip(titles, some, strict=True)}
        for head, some in table.lines
    }


def between(rows):
    return cells(between_runs(Study.of(rows)))


def test_each_run_less_the_best_beyond_training():
    # Means over 64 and 148 px: 92.7, 51.1 and 18.1.
    assert between(accuracy_rows()) == {
        "adder minus looker": {"64 px": ("-32.6", True), "148 px": ("-50.5", True), "mean": ("-41.5", True)},
        "turner minus looker": {"64 px": ("-65.1", True), "148 px": ("-84.0", True), "mean": ("-74.6", True)},
    }


def test_what_the_errors_cannot_tell_apart_is_not_marked():
    found = between(accuracy_rows({"a": [0.9, 0.50], "b": [0.5, 0.51], "c": [0.5, 0.1]}, [32, 64]))
    assert {name: line["64 px"][1] for name, line in found.items()} == {"a minus b": False, "c minus b": True}


def test_only_resolutions_that_all_runs_share_are_compared():
    rows = [*accuracy_rows({"a": [0.9, 0.6], "b": [0.9, 0.3]}, [32, 64]), row("b", 1.0, 148)]
    assert between(rows) == {"b minus a": {"64 px": ("-30.0", True)}}


def test_defaults_are_compared_where_only_some_runs_were_tuned():
    rows = [row("a", 0.4, 64, knob=1.0), row("a", 0.9, 64, knob=0.5, tuned=True), row("b", 0.6, 64)]
    assert list(between(rows)) == ["a minus b"]


def downsampled(run: str = "a", value: float = 0.5, **changes):
    """What a run reaches at 64 px with images that are downsampled to 32 px."""
    return row(run, value, 64, shrunk=32, **{"knob": 1.0, **changes})


def own_less_downsampled(*rows) -> dict[str, tuple[str, bool, str]]:
    table = of_downsampling(Study.of(list(rows)))
    assert table is not None
    return {head.name: (some[0].value, some[0].best, head.below) for head, some in table.lines}


BESIDE_DEFAULT = "downsampled with its default parameter"


def test_the_tuned_line_stands_beside_the_default_one():
    rows = [row("a", 0.2, 64, knob=1.0), row("a", 0.9, 64, knob=0.5, tuned=True), downsampled()]
    assert own_less_downsampled(*rows) == {
        "a": ("-30.0", True, ""),
        "a (tuned parameter)": ("+40.0", True, BESIDE_DEFAULT),
    }
    # What was tuned was the rule for tables.
    rule = {"what": "rule", "chosen": "bicubic", "split": "minival", "images": 9, "metric": "top1", "tried": {}}
    found = own_less_downsampled(rows[0], row("a", 0.5, 64, knob=0.5, tuned=True, tuning=(rule,)), downsampled())
    assert found["a (tuned rule)"] == ("+0.0", False, "downsampled with its default rule")


def test_intervals_of_downsampling_are_of_all_cells_in_common():
    """Of two runs at one size: two comparisons, as of one run at two sizes."""
    alone = of_downsampling(Study.of([row("a", 0.4, 64, knob=1.0), downsampled()]))
    both = of_downsampling(Study.of([row(run, 0.4, 64, knob=1.0) for run in "ab"] + [downsampled(run) for run in "ab"]))
    (_, (one,)), (_, (of_two,)) = alone.lines[0], both.lines[0]
    (low, high), (lower, higher) = ([float(limit) for limit in cell.limits] for cell in (one, of_two))
    assert one.value == of_two.value
    assert (lower < low, higher > high) == (True, True)


def seeds_of(encoding: str, **changes):
    """Two runs of a sweep that differ in their seed."""
    config = {"encoding": encoding, "epochs": 3, **changes}
    return [run_summary(f"{encoding}-{seed}", encoding=encoding, config={**config, "seed": seed}) for seed in (0, 1)]


def test_runs_that_differ_in_their_seed_alone_have_a_mean():
    values = {"a": (0.50, 0.54), "b": (0.90, 1.00), "c": (0.1,)}
    rows = [
        row(f"{name}-{seed}", value, 64, encoding=name, seed=seed)
        for name, some in values.items() for seed, value in enumerate(some)
    ]  # fmt: skip
    runs = [*seeds_of("a"), *seeds_of("b"), run_summary("c-0", encoding="c", config={"seed": 0})]
    table = over_seeds(Study.of(rows), runs)
    # Student's t with one degree of freedom: 12.706 times 2 and 5 points.
    found = {head.title: [(one.value, one.limits, one.below) for one in cells] for head, cells in table.lines}
    assert found == {
        "a": [("52.0", ["26.6", "77.4"], "50.0 to 54.0")], "b": [("95.0", ["31.5", "100.0"], "90.0 to 100.0")]
    }  # fmt: skip


def test_other_differences_than_the_seed_make_no_mean():
    rows = [row(f"a-{seed}", 0.5, 64, encoding="a", seed=seed) for seed in (0, 1)]
    runs = [run_summary(f"a-{seed}", encoding="a", config={"seed": seed, "epochs": 3 + seed}) for seed in (0, 1)]
    assert over_seeds(Study.of(rows), runs) is None
    # Of one run with several seeds no configuration is needed.
    assert over_seeds(Study.of([row("a", 0.5, 64, seed=0), row("a", 0.6, 64, seed=1)]), []) is not None
