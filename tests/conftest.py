"""Settings for every test, made before torch is imported; subprocesses of tests inherit them."""

import os
import sys

import pytest
from hypothesis import settings

# Workers share the cores; one thread each is faster than many, and gives the same sums every time.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
# No test talks to a hub.
os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples every time, and no time limit for one: other work may share the machine.
settings.register_profile("sightline", deadline=None, derandomize=True)
settings.load_profile("sightline")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same random numbers in each test, whatever ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def randomise():
    """`randomise(module, seed=0)` overwrites every parameter with random values and returns the module."""
    from tests.contract.randomise import randomise_parameters

    return randomise_parameters
