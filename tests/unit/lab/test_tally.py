"""The control room's counters: what was sent against what arrived, by the contract."""

from collections.abc import Callable
from typing import Any

import pytest

from eventplane.dead_letter import Refusal, dead_letter, letter_id
from eventplane.device_reports import DISCARDED
from eventplane.envelope import THE_PLANE, Envelope, Sender, write_event
from lab.control_room.tally import PATIENCE_MS, Counters, Tally
from tests.fake_plane import CONTRACT, SENDER, alarm


def key(number: int) -> tuple[str, str]:
    event = alarm(number)
    return event.source, event.id


def test_copies_are_counted_in_any_order() -> None:
    found = Tally(CONTRACT)
    found.received("alarm-centre", key(1), 120)
    found.sent(alarm(1), SENDER, 100)
    found.sent(alarm(1), SENDER, 110)  # a repetition of the same event
    found.received("alarm-centre", key(1), 130)
    found.received("family-app", key(1), 150)
    assert found.counters(2, is_idle=False, now_ms=150) == Counters(1, 3, 2, 0, 1, 2, unknown=2)
    (followed,) = found.last()
    took = {each.inbox: (each.after_ms, each.copies) for each in followed.deliveries}
    assert took == {"alarm-centre": (20, 2), "family-app": (50, 1), "call-service": (None, 0)}


def test_both_ends_are_counted_by_records_of_their_readers() -> None:
    found, event = Tally(CONTRACT), alarm(1)
    found.sent(event, SENDER, 0)
    found.handled("call-service", event.claim, 1)
    for inbox in ("alarm-centre", "family-app"):
        found.received(inbox, event.claim, 1)
    for _ in range(2):  # after a crash its reader leaves a second one
        found.settled({**record(event, "delivered", None, None), "channel": "alarm-centre.inbox"})
    counted = found.counters(0, is_idle=True, now_ms=2)
    assert (counted.rang, counted.taken, counted.unknown, counted.received) == (1, 1, 1, 3)
    accounts = {each.inbox: each.account for each in found.last()[0].deliveries}
    assert accounts["alarm-centre"] == "handled by alarm-centre"
    assert accounts["family-app"] == "in the inbox"


def test_missing_is_lost_only_when_idle() -> None:
    found = Tally(CONTRACT)
    found.sent(alarm(1), SENDER, 0)
    found.received("family-app", key(1), 5)

    def lost(now_ms: float, waiting: int = 0, *, is_idle: bool = True) -> int:
        return found.counters(waiting, is_idle, now_ms).lost

    later = 10 * PATIENCE_MS
    assert lost(later, is_idle=False) == 0
    assert lost(later, waiting=1) == 0
    assert lost(later) == 0
    assert lost(later + PATIENCE_MS - 1) == 0
    assert lost(later + PATIENCE_MS) == 2
    found.sent(alarm(2), SENDER, later + PATIENCE_MS)
    assert lost(later + PATIENCE_MS, is_idle=False) == 2  # known once, known for good
    found.received("alarm-centre", key(1), later + PATIENCE_MS)
    assert lost(later + PATIENCE_MS + 1) == 1


VOICE = Sender("home-1", SENDER)
"""As the cloud stamps what the voice-service sends."""

CENTRE = Sender(service="alarm-centre")
LATER = 10 * PATIENCE_MS


def letter_of(event: Envelope, reason: str, writer: Sender, channel: str) -> Envelope:
    original = event.stamped(**VOICE.attributes)
    letter = dead_letter(
        id=letter_id(str(VOICE), *event.claim), source="/eventplane", time="2026-01-01T00:00:00Z",
        refusal=Refusal(reason, "why"), channel=channel, original=original.json.encode(),
        contract_version="v", sender=VOICE,
    )  # fmt: skip
    return letter.stamped(**writer.attributes)


def record(event: Envelope, outcome: str, reason: str | None, inbox: str | None) -> dict[str, Any]:
    return {
        "outcome": outcome, "reason": reason, "destination": inbox, "route": None, "decided_at_ms": 1,
        "source": event.source, "id": event.id, "entered_by": "device.outbox",
    }  # fmt: skip


Step = Callable[[Tally, Envelope], None]


def written_by(writer: Sender, reason: str, channel: str) -> Step:
    """A dead letter about the event arrives in the operators' inbox."""

    def arrives(found: Tally, event: Envelope) -> None:
        letter = letter_of(event, reason, writer, channel)
        found.sent(letter, writer.service, 1)
        found.received("operations", letter.claim, 1)

    return arrives


def decided(outcome: str, reason: str | None, inbox: str | None = None) -> Step:
    return lambda found, event: found.decided(record(event, outcome, reason, inbox))


def discard(found: Tally, event: Envelope) -> None:
    """The forwarder reports that it discarded deliveries, and another that it expired some."""
    ends = [
        {"outcome": each, "reason": "no_room", "destination": "device.outbox", "count": 2}
        for each in ("dropped", "expired", "no_interest")
    ]
    unstored = {"channel": "voice-service.outbox", "type": "t", "reason": "no_room", "count": 1}
    report = {"deliveries": ends, "not_stored": [unstored]}
    names = {"id": "report", "source": "/devices/home-1/forwarder", "type": DISCARDED}
    for sender in ("voice-service", "device"):
        found.sent(write_event({**names, "id": sender}, report), sender, 1)


def put_into_inboxes(found: Tally, event: Envelope) -> None:
    for inbox in ("alarm-centre", "family-app", "call-service"):
        found.received(inbox, event.claim, 1)


EXPIRING = {"expirytime": "1970-01-01T00:00:01Z"}
REFUSED = "refused by the router of device.outbox: payload_invalid"


@pytest.mark.parametrize(
    ("attributes", "steps", "account", "ended"),
    [
        ({}, [written_by(THE_PLANE, "payload_invalid", "device.outbox")], REFUSED, 3),
        ({}, [written_by(Sender("home-1", "device"), "retained", "voice-service.outbox")],
         "refused by home-1: retained", 3),
        (EXPIRING, [], "expired: expirytime", 3),
        ({}, [decided("expired", "channel_expiry", "alarm-centre.inbox")], "expired: channel_expiry", 1),
        ({"deliveryguarantee": "best_effort"}, [], "dropped: best_effort", 3),
        ({}, [put_into_inboxes, written_by(CENTRE, "TimeoutError", "alarm-centre.inbox")],
         "given up by alarm-centre: TimeoutError", 0),
        ({}, [put_into_inboxes, written_by(Sender(service="carers"), "no", "alarm-centre.inbox")],
         "in the inbox", 0),
        (EXPIRING, [put_into_inboxes], "in the inbox", 0),
        ({}, [lambda found, event: found.handled("alarm-centre", event.claim, 1)],
         "handled by alarm-centre", 0),
        ({}, [discard], "unknown: devices report that they discarded 3, it may be one of them", 0),
        ({}, [], "lost: nothing is broken and no queue has a message", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_late", [False, True])
def test_only_what_is_nowhere_and_has_no_other_end_is_lost(
    attributes: dict[str, str], steps: list[Step], account: str, ended: int, is_late: bool
) -> None:
    found, event = Tally(CONTRACT), alarm(1, **attributes)
    found.sent(event, SENDER, 0)
    if not is_late:
        for step in steps:
            step(found, event)
    for now_ms in (LATER, LATER + PATIENCE_MS):
        counted = found.counters(0, is_idle=True, now_ms=now_ms)
    if is_late:
        # Another end may come to be known when it counts as lost already.
        for step in steps:
            step(found, event)
        counted = found.counters(0, is_idle=False, now_ms=LATER + PATIENCE_MS)
    (followed,) = (each for each in found.last() if each.id == event.id)
    at = {each.inbox: each.account for each in followed.deliveries}
    assert at["alarm-centre"] == account
    lost = [inbox for inbox, each in at.items() if each.startswith("lost")]
    assert (counted.ended, counted.lost) == (ended, len(lost))


def test_what_has_no_end_waits_and_says_for_what() -> None:
    found = Tally(CONTRACT)
    found.sent(alarm(1), SENDER, 0)
    for waits in ("3 deliveries in the spool", "1 messages in dead-letter queues"):
        counted = found.counters(3, is_idle=False, now_ms=LATER, waits=waits)
        assert {each.account for each in found.last()[0].deliveries} == {f"waiting: {waits}"}
        assert (counted.lost, counted.ended) == (0, 0)


@pytest.mark.parametrize(
    "data", [None, 1, [], {}, {"deliveries": 1}, {"deliveries": [{"outcome": "dropped"}]}]
)
def test_a_malformed_report_is_an_event_as_any(data: Any) -> None:
    """Whoever reaches the home's broker can publish it; the observer goes on."""
    found = Tally(CONTRACT)
    found.sent(write_event({"id": "1", "source": "/x", "type": DISCARDED}, data), "device", 1)
    assert [each.id for each in found.last()] == ["1"]


def test_what_goes_down_is_not_lost_whatever_the_downlink_does() -> None:
    names = {"id": "1", "source": "/carers", "type": "org.eventplane.home.message.v1", "todevice": "home-1"}
    event, found = write_event(names, {"text": "Hello"}), Tally(CONTRACT)
    found.sent(event, "carers", 0)
    for now_ms in (LATER, LATER + PATIENCE_MS):
        assert found.counters(0, is_idle=True, now_ms=now_ms).lost == 0
    (followed,) = found.last()
    unknown = "unknown: `eventplane desired list` has what waits for the device"
    assert {each.account for each in followed.deliveries} == {unknown}
