"""What several files compare their runs with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sightline.training import TrainConfig
from tests.tiny import log_lines, train, weights


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TrainConfig], tuple[str, list[str]]]:
    """(digest of the weights, log) of a configuration trained at one go, which is done once."""
    known = {}

    def get(config: TrainConfig) -> tuple[str, list[str]]:
        if repr(config) not in known:
            out = tmp_path_factory.mktemp("undisturbed")
            train(config, out)
            known[repr(config)] = weights(out), log_lines(out)
        return known[repr(config)]

    return get
