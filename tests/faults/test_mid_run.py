"""What happens to a run in its middle: storage that fails, memory that is gone, numbers that are not finite, a clock
that jumps; one line each, the exit code that is promised, and a checkpoint from which the same run goes on."""

from __future__ import annotations

import os
import resource
import shutil
import signal

import pytest
import torch

from sightline.cli.app import main
from sightline.errors import RanksError
from sightline.hub.load import load_model, read_config_record
from sightline.io.run_files import LOCK, checkpoints, step_folder
from sightline.training import loop
from tests.ranks import together
from tests.tiny import INPUTS, MODEL, TRAINING, log_lines, tiny_config, train, tree, wait_for_saves, weights

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
# Six steps, a checkpoint after each.
WORDS = ["train", "--data", "digits", "--images", 192, "--resolution", 16, "--threads", 1, "--precision=float32",
         "--checkpoint_every=32", "--validation=null", *OPTIONS]  # fmt: skip
BEFORE = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Weights and log of the run, undisturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([str(word) for word in (*WORDS, "--out", out)]) == 0
    return weights(out), log_lines(out)


@pytest.fixture
def before_step(monkeypatch):
    """`before_step(work)`: have `run_worker(state)` done before the fourth step of a run, with the third saved."""
    wait_for_saves(monkeypatch)

    def patch(work):
        real = loop.train_step

        def step(state, *arguments):
            if state.step == BEFORE - 1:
                work(state)
            return real(state, *arguments)

        monkeypatch.setattr(loop, "train_step", step)

    return patch


def ended_in_a_line(code, got, out, err, *says):
    assert (got, out) == (code, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("sightline: error: "), err
    assert "Traceback" not in err
    for word in says:
        assert word in last, last


def goes_on(cli, monkeypatch, out, whole, words=("--resume",)):
    """What was saved is whole, nothing half written stands beside it, and the run ends as the undisturbed one."""
    assert read_config_record(out / "checkpoint")["training"]["step"] == BEFORE - 1
    assert all(bool(value.isfinite().all()) for value in load_model(out).state_dict().values())
    # A lock that nobody holds stays where the folder could not be written.
    assert {name for name in os.listdir(out) if name.startswith(".")} <= {LOCK}
    monkeypatch.undo()
    code, _, err = cli(*WORDS, "--out", out, *words)
    assert code == 0, err
    assert (weights(out), log_lines(out)) == whole


def test_a_disk_that_is_full(cli, before_step, whole, monkeypatch, tmp_path):
    """A limit on the size of a file stands for it: the system refuses the write in the same way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    before_step(lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1])))
    try:
        found = cli(*WORDS, "--out", tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ended_in_a_line(5, *found, str(tmp_path / "run"), "cannot be written (File too large")
    goes_on(cli, monkeypatch, tmp_path / "run", whole)


def test_memory_that_the_system_does_not_give(cli, before_step, whole, monkeypatch, tmp_path):
    """More than any machine has, asked for as a step does: one line, and the checkpoint is as it was."""
    before_step(lambda _: torch.empty(2**52))
    ended_in_a_line(1, *cli(*WORDS, "--out", tmp_path / "run"), "allocate", "(try smaller sizes)")
    goes_on(cli, monkeypatch, tmp_path / "run", whole)


def test_a_weight_that_is_poisoned(cli, before_step, whole, monkeypatch, tmp_path):
    before_step(lambda state: state.model.head.weight.data[0].fill_(float("nan")))
    words = ["step 4 of epoch 0: ", "loss nan", "gradient norm nan", "images "]
    ended_in_a_line(4, *cli(*WORDS, "--out", tmp_path / "run"), *words)
    goes_on(cli, monkeypatch, tmp_path / "run", whole)


def exhausted(ranks, out):
    """On one of two ranks memory is gone in the fourth step."""
    torch.set_num_threads(1)
    real = loop.train_step

    def step(state, *arguments):
        if state.step == BEFORE - 1 and ranks.rank == 1:
            torch.empty(2**52)
        return real(state, *arguments)

    loop.train_step = step
    train(tiny_config(images=192, checkpoint_every=32), out, ranks=ranks, device="cpu")


def test_a_rank_whose_memory_is_gone_ends_the_others(tmp_path):
    said = together(2, exhausted, tmp_path / "run")
    assert [type(one) for one in said] == [RanksError, RuntimeError]
    assert read_config_record(tmp_path / "run" / "checkpoint")["training"]["step"] == BEFORE - 1


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(name):
    return lambda path: shutil.copy(INPUTS / name, path)


DAMAGES = {
    "truncated": cut,
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "a header of 2**62 bytes": overwrite("huge_header.safetensors"),
    "shapes that do not fit": overwrite("shape_mismatch.safetensors"),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that stopped after four of six steps, to be copied."""
    out, real = tmp_path_factory.mktemp("stopped") / "run", loop.train_step

    def step(state, *arguments):
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(state, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "train_step", step)
        assert main([str(word) for word in (*WORDS, "--out", out)]) == 143
    return out


@pytest.mark.parametrize("name", ["model.safetensors", pytest.param(TRAINING, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_half_written_checkpoint_is_passed_over_and_what_is_left_beside_it_goes(
    damage, name, stopped, cli, whole, tmp_path
):
    """With a line that names it, and what another kill left: the beginnings of a checkpoint, of a log, of a swap."""
    out = shutil.copytree(stopped, tmp_path / "run", symlinks=True)
    DAMAGES[damage](out / "checkpoint" / name)
    gone = 2**22 - 3
    half = out / "checkpoints" / ".step-00000005.tmp-0a1b2c3d"
    half.mkdir()
    shutil.copy(INPUTS / "truncated.safetensors", half / "model.safetensors")
    (out / f".log.jsonl.writing-{gone}").write_text('{"step": 1, ')
    code, _, err = cli(*WORDS, "--out", out, "--resume")
    assert code == 0, err
    [said] = [line for line in err.splitlines() if "going on from" in line]
    assert str(step_folder(out, 4) / name) in said
    assert str(step_folder(out, 3)) in said
    assert (weights(out), log_lines(out)) == whole
    assert not [name for name in (*os.listdir(out), *os.listdir(half.parent)) if name.startswith(".")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_where_no_checkpoint_is_whole_nothing_is_begun(damage, stopped, refused, tmp_path):
    """Never random weights instead: neither a run that goes on, nor one that begins with them."""
    out = shutil.copytree(stopped, tmp_path / "run", symlinks=True)
    assert len(checkpoints(out)) == 2
    for place in checkpoints(out):
        DAMAGES[damage](place / "model.safetensors")
    before = tree(tmp_path)
    refused(*WORDS, "--out", out, "--resume", says=[str(place) for place in checkpoints(out)])
    refused(*WORDS, "--init-from", out, "--out", tmp_path / "new", says=["model.safetensors"])
    assert tree(tmp_path) == before
