from __future__ import annotations

import pytest

from edge.numbering import lifetime_ms, why_expired
from edge.spool import Delivery, PendingDelivery
from eventplane.guarantee import BY_CHANNEL, BY_EVENT
from tests.unit.edge.fakes import event

T0, T5 = "2024-01-01T00:00:00Z", "2024-01-01T00:00:05.250Z"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"time": T0}, None),
        ({"expirytime": T5}, None),
        ({"time": T0, "expirytime": T5}, 5250),
        ({"time": "1970-01-01T00:00:00Z", "expirytime": "1970-01-01T01:00:05+01:00"}, 5000),
        ({"time": T5, "expirytime": T0}, 0),
    ],
)
def test_a_lifetime_is_a_difference_on_the_events_own_clock(
    attributes: dict[str, str], expected: int | None
) -> None:
    assert lifetime_ms(event("e", **attributes)) == expected


@pytest.mark.parametrize(
    ("json", "reason"),
    [
        (event("e", time=T0, expirytime=T5).json, BY_EVENT),
        (event("e").json, BY_CHANNEL),
        (event("e", expirytime=T0).json, BY_CHANNEL),
        (event("e", time=T0, expirytime="2024-01-01T00:01:00Z").json, BY_CHANNEL),
        ("not an event", BY_CHANNEL),
    ],
)
def test_who_said_that_it_expires(json: str, reason: str) -> None:
    waiting = PendingDelivery(Delivery("device.outbox", 1, 1), json, expires_ms=1000 + 5250, stored_ms=1000)
    assert why_expired(waiting) == reason
