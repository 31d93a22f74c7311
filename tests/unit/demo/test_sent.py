"""The players' record of what they sent."""

from __future__ import annotations

from eventplane.contract import Contract, Place
from eventplane.envelope import write_event
from local.oracle import SentLog
from local.poison import cloud_payloads

ALARM = write_event({"id": "1", "source": "/s", "type": "org.eventplane.alarm.clinical.v1"})
READING = write_event(
    {"id": "2", "source": "/s", "type": "org.eventplane.health.reading.v1", "subject": "/a"}
)


def test_a_repeated_event_counts_once(contract: Contract) -> None:
    log = SentLog(contract)
    for event in (ALARM, READING, ALARM):
        log.event(event, contract.channel("health-service.outbox"))

    assert log.events_sent == len(log.events) == 2
    assert log.urgent_sent == 1
    assert [each.key for each in log.events] == [ALARM.claim, READING.claim]


def test_how_urgent_an_event_is_follows_from_type_and_channel(contract: Contract) -> None:
    log = SentLog(contract)
    log.event(READING, contract.channel("voice-service.outbox"))

    # A reading has no priority of its own; whatever comes from the voice service is urgent.
    assert log.urgent_sent == 1


def test_a_payload_for_the_cloud_counts_with_its_good_events_and_its_bad_items(contract: Contract) -> None:
    log = SentLog(contract)
    for payload in cloud_payloads("/homes/h/health-service"):
        log.cloud_payload(payload)

    assert log.events_sent == 4
    assert {each.entered for each in log.events} == {Place.CLOUD}
    kinds = ["missing_id", "not_json", "truncated_batch", "wrong_payload"]
    assert sorted(each.kind for each in log.malformed) == kinds
