"""Where tests of this folder compute; they are skipped where there is no GPU."""

import pytest
import torch


@pytest.fixture
def device():
    if not torch.cuda.is_available():
        pytest.skip("no GPU is here")
    return "cuda"
