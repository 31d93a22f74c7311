"""What a service on the device does with a message of its inbox."""

from __future__ import annotations

import pytest

from edge.inbox_handler import InboxHandler
from eventplane.envelope import Envelope
from eventplane.receipts import Receipt, digest
from tests.unit.client.worlds import event

NOON, NOON_S = "2030-01-01T12:00:00Z", 1_893_499_200.0


@pytest.mark.source("C4")
@pytest.mark.parametrize(("now", "refused"), [(NOON_S - 0.001, None), (NOON_S, "expired")])
def test_what_has_expired_is_not_handled_and_its_receipt_says_so(now: float, refused: str | None) -> None:
    handled: list[Envelope] = []
    it = InboxHandler("call", handled.append, lambda _: None, lambda _: True, clock=lambda: now)
    payload = event("late", expirytime=NOON).json.encode()
    assert it.handle(payload) == Receipt(digest(payload), refused)
    assert [each.id for each in handled] == ([] if refused else ["late"])
