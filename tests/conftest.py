"""Settings for every test, made before torch is imported; subprocesses of tests inherit them."""

import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Workers share the cores; one thread each is faster than many, and gives the same sums every time.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
# No test talks to a hub.
os.environ["HF_HUB_OFFLINE"] = "1"
# Nor remembers anything in the folder of a user.
os.environ["SIGHTLINE_CACHE"] = ""

# The same examples every time, and no time limit for one: other work may share the machine.
settings.register_profile("sightline", deadline=None, derandomize=True)
settings.load_profile("sightline")


def pytest_addoption(parser: pytest.Parser) -> None:
    names = ("amd", "intel", "unknown")
    parser.addoption("--processor", choices=names, help="report another processor to the code under test")


def pytest_configure(config: pytest.Config) -> None:
    if (name := config.getoption("--processor")) is None:
        return
    # Processes that tests start find it there.
    folder = Path(__file__).parent / "processor"
    os.environ["SIGHTLINE_TEST_PROCESSOR"] = name
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    runpy.run_path(str(folder / "sitecustomize.py"))


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """The same random numbers and one thread in each test, whatever ran before; and one thread for what a module makes
    once before its tests: a run of two threads has other last bits than one that went on with one."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        sys.modules["torch"].set_num_threads(1)
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def randomise():
    """`randomise(module, seed=0)` overwrites every parameter with random values and returns the module."""
    from tests.contract.randomise import randomise_parameters

    return randomise_parameters


@pytest.fixture(scope="session")
def chromium():
    """Where the system's browser is; a test without it or Playwright is skipped, with the reason."""
    from tests.explorer.page import browsing

    pytest.importorskip("playwright.sync_api")
    found = browsing.chromium()
    if found is None:
        pytest.skip("no Chromium here (.ci/run installs Debian's package where it may)")
    return found


# Of a module and no longer: while Playwright is at work this thread has a running event loop, and what another test
# starts by `asyncio.run` (`sightline explore`) would be refused.
@pytest.fixture(scope="module")
def browser(chromium):
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    from tests.explorer.page import browsing

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=browsing.flags())
        yield found
        found.close()


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The folder of a run of two steps on digits, measured; to be copied before it is changed."""
    from sightline.cli.app import main

    out = tmp_path_factory.mktemp("runs") / "tiny"
    options = [f"--model_options.{key}={value}" for key, value in _TINY.items()]
    arguments = ["--images", "64", "--threads", "1", "--precision=float32", *options]
    assert main(["train", "--data", "digits", "--out", str(out), *arguments]) == 0
    return out


_TINY = {"depth": 1, "dim": 48, "heads": 4}


@pytest.fixture
def run_copy(tiny_run, tmp_path):
    """A copy of `tiny_run` to change."""
    import shutil

    return shutil.copytree(tiny_run, tmp_path / "tiny", symlinks=True)


@pytest.fixture
def cli(capsys, monkeypatch):
    """`cli(*words)` runs a command in this process, on one core, and gives (exit code, stdout, stderr)."""
    from sightline.cli.app import main
    from sightline.distributed import machine

    monkeypatch.setattr(machine, "cpu_count", lambda: 1)

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(cli):
    """`refused(*words, says=[...], code=2)`: the command ends with one line that says all of that, and nothing else."""

    def check(*words: object, says: list[str], code: int = 2) -> str:
        got, out, err = cli(*words)
        assert got == code, (got, out, err)
        assert out == ""
        assert err.startswith("sightline: error: "), err
        assert err.count("\n") == 1, err
        for word in says:
            assert word in err, err
        return err

    return check
