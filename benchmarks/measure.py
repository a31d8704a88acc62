"""What the benchmark scripts share: interleaved timing, the peak memory of a call, rows and the table of them."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from sightline.distributed import machine
from sightline.errors import InputError

RESULTS = Path(__file__).parent / "results"

T = TypeVar("T")
_PAGE = 4096
Work = Callable[[], object]


def interleave(
    works: dict[str, Work],
    rounds: int,
    device: str = "cpu",
    *,
    warm: bool = True,
    by: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each work in each round, after one round of warming up; in every round all are run, in turn, and in
    every other one the other way round: what comes after its like finds caches and pages as it wants them.

    Args:
        warm: False for works that were run before, or of which one run is long.
        by: as `clock` gives one.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_number in range(1 - warm, rounds + 1):
        for name, work in list(works.items())[:: 1 if round_number % 2 else -1]:
            _synchronise(device)
            started = by()
            work()
            _synchronise(device)
            if round_number:
                times[name].append(by() - started)
    return times


def clock() -> Callable[[], float]:
    """The processor's seconds where one thread computes, beside which other work on the machine counts less; else
    those of the clock on the wall."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def peak_bytes(work: Work, device: str = "cpu") -> int | None:
    """The most memory that `work` takes beyond what is there before it, or None where it cannot be known.

    On a CPU the kernel counts resident pages; its mark is set back first, and the allocator gives back what it holds.
    """
    if device != "cpu":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    try:
        before = mark_memory()
        work()
        return max(0, _status("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def mark_memory() -> int:
    """Set the peak back to what is resident now, and say what that is: to be taken from `runtime.peak_memory`."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes()


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def row(
    benchmark: str,
    subject: str,
    baseline: str,
    times: dict[str, list[float]],
    peaks: dict[str, int | None],
    device: str = "cpu",
    **case: Any,
) -> dict[str, Any]:
    """One comparison: `ratio` is the baseline's time over the subject's, the median of the rounds' own ratios; `spread`
    is the range of the middle half of these, `interval` as the function of that name; `memory_ratio` is the baseline's
    peak over the subject's, None where not measured."""
    if len(times[baseline]) == 1:
        # Timed once, apart from the rounds.
        ratios = [times[baseline][0] / statistics.median(times[subject])]
    else:
        ratios = [slow / fast for slow, fast in zip(times[baseline], times[subject], strict=True)]
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
    # What takes no new page at all is counted as one.
    mine, theirs = (None if (peak := peaks.get(way)) is None else max(peak, _PAGE) for way in (subject, baseline))
    return {
        "benchmark": benchmark,
        "subject": subject,
        "baseline": baseline,
        **case,
        "ratio": round(statistics.median(ratios), 3),
        "spread": round(quartiles[2] - quartiles[0], 3),
        "interval": interval(ratios),
        "memory_ratio": None if mine is None or theirs is None else round(theirs / mine, 3),
        "subject_ms": round(statistics.median(times[subject]) * 1e3, 3),
        "baseline_ms": round(statistics.median(times[baseline]) * 1e3, 3),
        "subject_mib": None if mine is None else round(mine / 2**20, 1),
        "baseline_mib": None if theirs is None else round(theirs / 2**20, 1),
        "rounds": len(ratios),
        "threads": torch.get_num_threads(),
        "device": device,
        "hardware": machine.hardware_name(device),
        "torch": torch.__version__,
        "commit": machine.git_commit(),
    }


class Parser(argparse.ArgumentParser):
    """Options of a benchmark, whose faults are one line and exit code 2."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def usual(self, benchmark: str, quick: str) -> None:
        """The options of most: `--quick`, `--out`, `--threads` and `--device`."""
        self.path = RESULTS / f"{benchmark}.jsonl"
        where = f"benchmarks/results/{self.path.name}"
        self.add_argument("--quick", action="store_true", help=quick)
        self.add_argument("--out", type=Path, help=f"replace this file with the rows; else they are added to {where}")
        self.add_argument("--threads", type=threads, default=1, help="threads of torch; published rows have 1")
        self.add_argument("--device", type=device, default="cpu")

    def begin(self) -> argparse.Namespace:
        """What was chosen, with the threads set; refused where rows cannot be written."""
        self.chosen = self.parse_args()
        self.path = destination(self.chosen.out, self.path)
        torch.set_num_threads(self.chosen.threads)
        return self.chosen

    def save(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows to those of the benchmark, or replace the file that was given."""
        (write if self.chosen.out else append)(rows, self.path)

    def error(self, message: str) -> NoReturn:
        print(f"sightline: error: {message}", file=sys.stderr)
        raise SystemExit(2)


def threads(text: str) -> int:
    """A number of threads, at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return int(text)


def device(text: str) -> str:
    """A device that is there."""
    try:
        return str(machine.resolve_device(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def in_fresh_process(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON object that is the last line of `script`'s output, run in a process of its own."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def destination(option: Path | None, default: Path) -> Path:
    """Where rows will go, refused in one line before hours of work if they cannot."""
    path = default if option is None else option
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        print(
            f"sightline: error: {path}: expected a file in a folder that exists and can be written",
            file=sys.stderr,
        )
        raise SystemExit(2)
    return path


def write(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Replace `path` by rows, one JSON object a line; all of it or nothing."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(one) + "\n" for one in rows))
    part.replace(path)


def append(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Add rows to those of earlier runs, all of them or none."""
    before = path.read_text() if path.exists() else ""
    part = path.with_name(path.name + ".part")
    part.write_text(before + "".join(json.dumps(one) + "\n" for one in rows))
    part.replace(path)


def counted(cases: Sequence[T]) -> Iterator[tuple[T, str]]:
    """Each case with its number, the minutes gone and those that are left if the others take as long."""
    started = time.perf_counter()
    for done, case in enumerate(cases):
        gone = (time.perf_counter() - started) / 60
        left = f", about {gone / done * (len(cases) - done):.0f} to go" if done else ""
        yield case, f"[{done + 1}/{len(cases)}, {gone:.1f} min{left}]"


def print_table(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Rows as a table on the terminal, numbers to the right."""
    cells = [[_text(one.get(column)) for column in columns] for one in rows]
    widths = [max(len(line[index]) for line in [list(columns), *cells]) for index in range(len(columns))]
    for line in [list(columns), *cells]:
        print("  ".join(_aligned(text, width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "not measured"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.1e}"


def _aligned(text: str, width: int) -> str:
    return text.rjust(width) if text[:1].isdigit() else text.ljust(width)


def interval(ratios: list[float]) -> list[float]:
    """Between which two of the ratios their median lies with 95 %, by the binomial distribution of signs; of fewer than
    six all of them."""
    count, below, outside = len(ratios), 0, 0.0
    while below < count // 2 and outside + math.comb(count, below) / 2**count <= 0.025:
        outside += math.comb(count, below) / 2**count
        below += 1
    last = max(below - 1, 0)
    ordered = sorted(ratios)
    return [round(ordered[last], 3), round(ordered[count - 1 - last], 3)]


class Side:
    """A source tree in a process of its own, which runs `script --side` and answers a line with a line."""

    def __init__(self, script: str, tree: Path, number: int) -> None:
        command = [sys.executable, script, "--against", str(tree), "--side", "--threads", str(number)]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(number)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        found = self.say("where")
        if Path(found).resolve() != (tree / "src" / "sightline").resolve():
            raise RuntimeError(f"{tree}: its process imports {found}")

    def say(self, words: str) -> str:
        """The answer to a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


def questions() -> Iterator[str]:
    """What a side is asked, after where it stands."""
    import sightline

    for line in sys.stdin:
        if line.strip() == "where":
            print(Path(str(sightline.__file__)).parent, flush=True)
        else:
            yield line.strip()


class Against(Parser):
    """Options of a script that sets this source beside that of another commit."""

    def __init__(self, description: str | None, name: str) -> None:
        super().__init__(description)
        self.add_argument("--against", type=Path, required=True, help="the root of the other source tree")
        self.add_argument("--rounds", type=threads, default=15, help="timed ones; at least 6 give an interval")
        self.add_argument("--out", type=Path, help=f"replace this file; else added to benchmarks/results/{name}.jsonl")
        self.add_argument("--threads", type=threads, default=1, help="threads of torch; published rows have 1")
        self.add_argument("--side", action="store_true", help=argparse.SUPPRESS)


def beside(
    name: str,
    script: str,
    chosen: argparse.Namespace,
    cases: Sequence[tuple[str, dict[str, Any]]],
    columns: Sequence[str],
) -> None:
    """Ask both sides each case in every round, the one that begins in turn, and keep the rows.

    Args:
        cases: the line that a side is asked, which it answers with seconds, and what the row says of it.
    """
    path = destination(chosen.out, RESULTS / f"{name}.jsonl")
    trees = {"here": Path(__file__).parent.parent, "there": chosen.against.resolve()}
    sides = {which: Side(script, tree, chosen.threads) for which, tree in trees.items()}
    command = ["git", "-C", str(trees["there"]), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    rows = []
    for (line, about), said in counted(cases):
        print(f"{said} {line}", flush=True)
        times: dict[str, list[float]] = {"here": [], "there": []}
        for number in range(chosen.rounds + 1):
            for which in sorted(sides, reverse=bool(number % 2)):
                seconds = float(sides[which].say(line))
                if number:
                    times[which].append(seconds)
        rows.append(row(name, "here", "there", times, {}, **about, against=commit))
        print_table(columns, rows[-1:])
    (append if chosen.out is None else write)(rows, path)
    print(f"rows: {path}")
