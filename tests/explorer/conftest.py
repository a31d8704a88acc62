"""One server for the tests that change nothing in it."""

import pytest

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def server():
    """Two models, of other encodings and sizes of patches alike."""
    from tests.contract.contract import build
    from tests.explorer.served import serving

    with serving(build("lookhere_90", num_registers=1), build("rope_axial", "mean")) as one:
        yield one
