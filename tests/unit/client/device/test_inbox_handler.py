"""What a service on the device does with a message of its inbox."""

from __future__ import annotations

import pytest

from eventplane.envelope import Envelope
from eventplane.receipts import Receipt, digest
from eventplane_client.device.inbox_handler import InboxHandler
from eventplane_client.device.service_client import has_expired
from tests.unit.client.worlds import lasting

pytestmark = pytest.mark.source("C4")


@pytest.mark.parametrize(("lifetime_s", "refused"), [(3_600, None), (0, "expired")])
def test_what_has_expired_is_not_handled_and_its_receipt_says_so(
    lifetime_s: float, refused: str | None
) -> None:
    handled: list[Envelope] = []
    it = InboxHandler("call", handled.append, lambda _: None, lambda _: True, has_expired)
    payload = lasting("late", lifetime_s).json.encode()
    assert it.handle(payload) == Receipt(digest(payload), refused)
    assert [each.id for each in handled] == ([] if refused else ["late"])
