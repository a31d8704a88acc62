"""Random numbers as a function of what they are for, never of what was drawn before."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from sightline.errors import InputError

_LIMIT = 2**64


@lru_cache(maxsize=256)
def _stream_code(stream: str) -> int:
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "little")


def generator(stream: str, seed: int, index: int = 0, *, epoch: int = 0) -> np.random.Generator:
    """The generator of one thing: Philox with key (seed, index), counting from (0, 0, epoch, stream).

    Two streams never share a number under any seed, since they count through different parts of the counter. A stream
    is called by what its numbers are for, with the version of their order: "scenes/glyphs/test/1". Raises InputError
    where a number is not from 0 to 2**64 - 1.
    """
    for key, value in (("seed", seed), ("index", index), ("epoch", epoch)):
        if not 0 <= value < _LIMIT:
            raise InputError(f"{key} {value} is out of range (expected: a whole number from 0 to 2**64 - 1)")
    # As arrays of 64 bits: numpy would turn a mixed tuple of large numbers into floats.
    key = np.array([seed, index], dtype=np.uint64)
    counter = np.array([0, 0, epoch, _stream_code(stream)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
