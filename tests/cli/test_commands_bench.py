"""`sightline bench`: what is needed, said before it is tried; and the benchmarks of a checkout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from sightline.analysis.memory import estimate_memory
from sightline.cli.app import main
from sightline.cli.commands import bench
from sightline.distributed import machine
from sightline.models import model_config
from sightline.runs.memory import memory_rows
from tests.processes import group, wait_for
from tests.tiny import tree

ASKED = ["bench", "memory", "--model", "vit_base_patch16", "--device", "cpu"]
PARTS = ("parameters", "gradients", "optimizer", "activations", "attention", "other")


@pytest.fixture
def room(monkeypatch):
    """`room(bytes)`: as much memory is available."""

    def make(available):
        monkeypatch.setattr(machine, "available_memory", lambda device: available)

    make(64 << 30)
    return make


def test_what_a_forward_and_a_training_step_take(cli, room):
    words = ["--resolution", "1024", "--encoding", "lookhere_90"]
    code, said, err = cli(*ASKED, *words)
    assert (code, err) == (0, "")
    for word in ("1024x1024 px", "4,097 tokens", "forward", "training step", *PARTS, "total", "64 GiB"):
        assert word in said, said
    assert all(len(line) <= 82 for line in said.splitlines()), said
    rows = [json.loads(line) for line in cli(*ASKED, *words, "--json")[1].splitlines()]
    assert rows == memory_rows("vit_base_patch16", 1024, encoding="lookhere_90")
    assert [row["pass"] for row in rows] == ["forward", "training step"]
    for row in rows:
        one = estimate_memory(
            model_config("vit_base_patch16", encoding="lookhere_90"), 1024, training=row["pass"] != "forward"
        )
        assert row["benchmark"] == "memory"
        assert (row["model"], row["encoding"], row["dtype"]) == ("vit_base_patch16", "lookhere_90", "float32")
        assert (row["resolution"], row["tokens"], row["batch"]) == ([1024, 1024], 4097, 1)
        assert row["total_bytes"] == one.total == sum(row[f"{part}_bytes"] for part in PARTS)
        assert (row["device"], row["hardware"]) == ("cpu", machine.hardware_name())
        assert row["commit"]
        assert row["torch"]
    words = ["--resolution", "224x448", "--batch", 3, "--dtype", "bfloat16", "--json"]
    rows = [json.loads(line) for line in cli(*ASKED, *words)[1].splitlines()]
    assert [(row["resolution"], row["batch"], row["dtype"]) for row in rows] == [([224, 448], 3, "bfloat16")] * 2


@pytest.mark.parametrize("resolution", ["100000", "16" + "0" * 88])
def test_what_does_not_fit_is_said_and_not_refused(resolution, cli, room):
    room(21 << 30)
    code, said, err = cli(*ASKED, "--resolution", resolution)
    assert (code, err) == (0, "")
    assert said.count("does not fit here.") == 2
    room(2 << 30)
    assert cli(*ASKED, "--resolution", "512x1024")[1].count("does not fit here.") == 1


def test_where_the_memory_is_not_known_nothing_is_refused(cli, room):
    room(None)
    code, said, err = cli(*ASKED, "--resolution", "160000")
    assert (code, err) == (0, "")
    assert "not known" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolution", "100"], ["100x100", "96x96", "112x112"]),
        (["--resolution", "224", "--encoding", "lookher_90"], ["did you mean 'lookhere_90'?"]),
        (["--resolution", "224", "--batch", "0"], ["batch 0"]),
        (["--resolution", "224", "--batch", "1.5"], ["--batch", "1.5"]),
        (["--resolution", "224", "--dtype", "float16"], ["float16", "bfloat16"]),
        (["--resolution", "0"], ["--resolution 0"]),
        (["--resolution", "224x"], ["--resolution 224x"]),
        (["--resolution", "9" * 5000], ["--resolution 9"]),
        (["--resolution", "224", "--device", "cuda:99"], ["cuda:99"]),
        (["--resolutoin", "224"], ["--resolutoin", "--resolution", "See: sightline bench memory --help"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("bench", "memory", "--model", "vit_base_patch16", *words, says=says)
    assert tree(tmp_path) == {}


def test_names(refused):
    refused("bench", "memory", "--model", "vit_bse_patch16", "--resolution", "224", says=["vit_base_patch16"])
    refused("bench", "memroy", says=["memroy", "memory"])
    refused("bench", "memory", "--resolution", "224", says=["--model"])


def test_help(cli):
    code, said, err = cli("bench", "--help")
    assert (code, err) == (0, "")
    assert all(word in said for word in ("memory", "attention", "model"))
    for verb in ("memory", "attention", "model"):
        code, said, err = cli("bench", verb, "--help")
        assert (code, err) == (0, "")
        assert f"sightline bench {verb}" in said


SCRIPT = """
import sys
from pathlib import Path

if __name__ == "__main__":
    print(sys.argv[1:], Path(__file__).name, Path(sys.path[0]).name)
    raise SystemExit(int(sys.argv[1]) if sys.argv[1].isdigit() else 0)
"""


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """A folder of benchmarks in place of the checkout's."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    monkeypatch.setattr(bench, "BENCHMARKS", folder)
    return folder


@pytest.mark.parametrize("name", ["attention", "model"])
def test_a_benchmark_gets_its_arguments_as_they_are(name, benchmarks, capfd):
    (benchmarks / f"{name}.py").write_text(SCRIPT)
    assert main(["bench", name, "--quick", "--out", "a b.jsonl", "3"]) == 0
    assert capfd.readouterr() == (f"['--quick', '--out', 'a b.jsonl', '3'] {name}.py benchmarks\n", "")
    assert main(["bench", name, "7"]) == 7


def test_a_benchmark_that_is_killed(benchmarks, cli):
    (benchmarks / "model.py").write_text("import os; os.kill(os.getpid(), 15)")
    assert cli("bench", "model")[0] == 128 + 15


@pytest.mark.parametrize("name", ["attention", "model"])
def test_outside_a_checkout(name, benchmarks, refused):
    refused("bench", name, "--quick", says=[f"bench {name}", "checkout", f"{name}.py is not there"])


def test_interrupted_quietly(benchmarks):
    """Ctrl-C reaches the command and the benchmark alike: one line, no traceback, no process left."""
    (benchmarks / "model.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    code = (
        "import sys; from pathlib import Path; from sightline.cli import app; from sightline.cli.commands import bench;"
        f"bench.BENCHMARKS = Path({str(benchmarks)!r}); sys.exit(app.main(['bench', 'model']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    assert int(child.stdout.readline()) in group(child.pid)
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=240)
    assert (child.returncode, err) == (130, "sightline: interrupted\n")
    # It and the command.
    wait_for(lambda: not group(child.pid))
