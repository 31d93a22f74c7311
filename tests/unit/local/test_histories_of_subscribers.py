"""What the histories' oracles say of subscriptions, their endpoints and redrives, when the plane is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.reasons import Outcome
from lambdas.http_sink.delivery import CircuitBreaker
from lambdas.http_sink.service import WebhookService
from lambdas.router.active_contract import ActiveContract
from local.histories.search import told
from local.histories.story import ALARMS, ENDPOINTS, Decision, Story
from tests.plane import shipped_contract

pytestmark = pytest.mark.long

TO_ENDPOINT = f"first {ENDPOINTS[0]} {ALARMS}"


def say(at_s: float) -> Decision:
    return Decision(at_s, "say", "home-1", text=f"{ALARMS}keyword.v1")


STORY = Story(
    1,
    0,
    (
        Decision(1.0, "put", "carers", text=TO_ENDPOINT),
        Decision(2.0, "put", "care-analytics", text=f"first inbox {ALARMS}"),
        Decision(3.0, "lose-answer", "family-app-administrator", 1),
        Decision(3.0, "post", "family-app", text=TO_ENDPOINT),
        Decision(50.0, "endpoint", ENDPOINTS[0], 60, "429 30"),
        say(55.0),
        say(59.0),
        Decision(120.0, "endpoint", ENDPOINTS[0], 20, "400"),
        say(125.0),
        Decision(150.0, "redrive"),
        Decision(160.0, "replay", "alarm-centre", 300),
        Decision(170.0, "endpoint", ENDPOINTS[0], 20, "410"),
        say(175.0),
        Decision(200.0, "publish", text=ALARMS),
        say(260.0),
    ),
)


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "kinds"),
    [
        (CircuitBreaker, "pause", CircuitBreaker.pause, set()),
        (CircuitBreaker, "pause", lambda _: None, {"posted in the pause of a 429"}),
        (SubscriptionTable, "all", lambda _: frozenset(), {"not routed as subscribed or published"}),
        (ActiveContract, "_refresh", lambda _: None, {"not routed as subscribed or published"}),
        (
            WebhookService,
            "_failed",
            lambda self, message, event, _: self._record(message, event, Outcome.DELIVERED, None, 200),
            {"never at its endpoint"},
        ),
        (SubscriptionTable, "write", lambda _, each: each, {"not subscribed as last asked for"}),
    ],
)
def test_a_wrong_plane_is_found_and_a_right_one_is_not(
    owner: type, name: str, wrong: Any, kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    found = {each.kind for each in told(STORY, shipped_contract()).findings}
    assert found >= kinds
    assert bool(found) == bool(kinds)
