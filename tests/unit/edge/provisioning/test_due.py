"""When a certificate is replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edge.certificate import Validity
from edge.provisioning.renewal import is_due

DAY_S = 86_400
START = datetime(1970, 1, 1, tzinfo=UTC)
NEVER_TOO_OLD = 10_000 * DAY_S


def valid_for(days: int) -> Validity:
    return Validity(START, START + timedelta(days=days))


@pytest.mark.parametrize(
    ("day", "due"), [(-400, False), (0, False), (239, False), (241, True), (359, True), (400, True)]
)
def test_it_is_due_in_the_last_third_of_its_life(day: int, due: bool) -> None:
    assert is_due(valid_for(360), day * DAY_S, NEVER_TOO_OLD) is due


@pytest.mark.parametrize(("day", "due"), [(99, False), (101, True)])
def test_it_is_due_at_its_greatest_age_however_long_it_lives(day: int, due: bool) -> None:
    assert is_due(valid_for(24 * 365), day * DAY_S, 100 * DAY_S) is due
