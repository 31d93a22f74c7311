"""The readers of bytes from outside against random, and against nearly right input: a refusal has a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import ACCEPTED, TARGETS

Cut = tuple[int, int, bytes]
"""Where bytes are left out, how many, and what is there instead."""

CUTS = st.lists(
    st.tuples(st.integers(0, 30_000), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4
)


def changed(raw: bytes, cuts: list[Cut]) -> bytes:
    for at, length, new in cuts:
        place = at % (len(raw) + 1)
        raw = raw[:place] + new + raw[place + length :]
    return raw


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str) -> None:
    assert {TARGETS[name](seed) for seed in seeds(name)} & {ACCEPTED, "recovered"}


@pytest.mark.source("P-W4")
@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_bytes_are_read_or_refused_by_name(name: str, data: st.DataObject) -> None:
    nearly_good = st.builds(changed, st.sampled_from([*seeds(name)]), CUTS)
    assert TARGETS[name](data.draw(st.binary(max_size=200) | nearly_good))
