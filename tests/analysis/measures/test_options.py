"""An option that is a list is refused in one line where it is none, or is empty."""

from __future__ import annotations

import pytest

from sightline.analysis.measures.attention_maps import AttentionRollout
from sightline.analysis.measures.knock_out import KnockOut
from sightline.analysis.measures.logit_lens import LogitLens
from sightline.errors import InputError
from tests.analysis.measures.explicit import tiny


@pytest.mark.parametrize("given", [3, True, float("inf"), "heads", [], {"a": 1}])
@pytest.mark.parametrize(
    ("measure", "option"), [(AttentionRollout, "queries"), (KnockOut, "of"), (LogitLens, "layers")]
)
def test_a_list_is_expected(measure, option, given):
    with pytest.raises(InputError, match=f"^{measure.name}: {option}") as caught:
        measure(tiny("none"), **{option: given})
    assert "\n" not in str(caught.value)
