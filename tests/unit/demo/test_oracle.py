"""The record of what was sent, and what the oracle expects of it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from eventplane.contract import Contract, Place
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope, write_event
from local.input import open_input
from local.oracle import Arrived, Key, SentLog, dead_lettered, expected_by_service, judge
from local.poison import Poison, cloud_payloads

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


def test_a_payload_for_the_cloud_counts_with_its_good_events_and_its_bad_items(contract: Contract) -> None:
    log = SentLog(contract)
    for payload in cloud_payloads("/homes/h/health-service"):
        log.cloud_payload(payload)

    assert log.events_sent == 4
    assert {each.entered for each in log.events} == {Place.CLOUD}
    kinds = ["missing_id", "not_json", "truncated_batch", "wrong_payload"]
    assert sorted(each.kind for each in log.malformed) == kinds


def event(type_: str, *, id_: str = "1", subject: str = "/kitchen") -> Envelope:
    return write_event(
        {
            "id": id_,
            "source": "/homes/h/health-service",
            "type": f"org.eventplane.{type_}",
            "subject": subject,
        }
    )


def expected(contract: Contract, *events: Envelope, entered: Place = Place.DEVICE) -> dict[str, set[Key]]:
    log = SentLog(contract)
    for each in events:
        log.event(each, contract.channel("health-service.outbox"), entered)
    return expected_by_service(contract, log.events, log.malformed)


@pytest.mark.parametrize(
    ("sent", "services"),
    [
        (event("alarm.keyword.v1"), {"call-service", "alarm-centre", "family-app"}),
        (event("alarm.clinical.v1"), {"call-service", "alarm-centre", "family-app", "care-analytics"}),
        (event("call.placed.v1"), {"alarm-centre"}),
        (event("health.reading.v1"), {"care-analytics"}),
        (event("activity.motion.v1"), {"care-analytics", "family-app"}),
        (event("activity.motion.v1", subject="/bedroom"), {"care-analytics"}),
        (write_event({"id": "1", "source": "/s", "type": "com.example.alarm.reading.v1"}), set()),
    ],
    ids=lambda each: each.type if isinstance(each, Envelope) else "",
)
def test_an_event_is_expected_where_the_contract_leads_it(
    contract: Contract, sent: Envelope, services: set[str]
) -> None:
    keys = expected(contract, sent)

    assert {service for service, those in keys.items() if those} == services
    assert keys.keys() == {
        "call-service",
        "voice-service",
        "health-service",
        "alarm-centre",
        "care-analytics",
        "family-app",
        "operations",
        "carers",
    }


def test_what_comes_down_is_expected_in_the_homes_and_not_again_in_the_cloud(contract: Contract) -> None:
    keys = expected(contract, event("home.threshold.v1"), entered=Place.CLOUD)

    assert {service for service, those in keys.items() if those} == {"health-service"}


def test_what_goes_straight_to_the_cloud_takes_the_routes_of_the_cloud_only(contract: Contract) -> None:
    keys = expected(contract, event("alarm.keyword.v1"), entered=Place.CLOUD)

    assert not keys["call-service"]
    assert keys["alarm-centre"] == {("/homes/h/health-service", "1")}


def test_a_malformed_message_is_expected_as_a_dead_letter(contract: Contract) -> None:
    log = SentLog(contract)
    log.poison(Poison("not_json", "not_json", b"no"))

    keys = expected_by_service(contract, log.events, log.malformed)

    assert keys["operations"] == {("not_json", sha256(b"no").hexdigest())}


def test_of_every_device_it_is_expected_to_hear_that_it_started(contract: Contract) -> None:
    keys = expected_by_service(contract, [], devices=["h1", "h2"])

    assert {service for service, those in keys.items() if those} == {"operations"}
    assert keys["operations"] == {(STARTED, "/devices/h1/forwarder"), (STARTED, "/devices/h2/forwarder")}


def test_only_dead_letters_that_arrived_are_counted_as_such(contract: Contract) -> None:
    log = SentLog(contract)
    for payload in (b"no", b"nor this"):
        log.poison(Poison("not_json", "not_json", payload))
    letter = ("not_json", sha256(b"no").hexdigest())
    arrived = {"operations": Arrived({letter, (STARTED, "/devices/h/forwarder")}, 0)}

    assert dead_lettered(log.malformed, arrived) == 1


def test_a_run_in_which_everything_arrived_is_good(contract: Contract) -> None:
    keys = expected(contract, *(each.event for each in open_input(homes=2, events=200)))
    arrived = {service: Arrived(those, duplicates=3) for service, those in keys.items()}

    verdicts = judge(keys, arrived)

    assert all(verdict.good for verdict in verdicts)
    assert sum(verdict.delivered for verdict in verdicts) == sum(len(those) for those in keys.values()) > 200
    assert [verdict.duplicates for verdict in verdicts] == [3] * len(keys)


def test_a_removed_event_is_found_as_lost_and_named(contract: Contract) -> None:
    keys = expected(contract, *(each.event for each in open_input(homes=2, events=200)))
    arrived = {service: Arrived(set(those), duplicates=0) for service, those in keys.items()}
    removed = max(keys["care-analytics"])
    arrived["care-analytics"] = Arrived(keys["care-analytics"] - {removed}, duplicates=0)

    bad = [verdict for verdict in judge(keys, arrived) if not verdict.good]

    assert [(verdict.service, verdict.lost, verdict.unexpected) for verdict in bad] == [
        ("care-analytics", (removed,), ())
    ]
    assert bad[0].delivered == bad[0].expected - 1


def test_an_event_that_nobody_expects_is_found(contract: Contract) -> None:
    keys = expected(contract, event("activity.motion.v1", subject="/bedroom"))
    stray = ("/homes/h/health-service", "1")
    arrived = {"care-analytics": Arrived({stray}, 0), "family-app": Arrived({stray}, 0)}

    bad = [verdict for verdict in judge(keys, arrived) if not verdict.good]

    assert [(verdict.service, verdict.unexpected) for verdict in bad] == [("family-app", (stray,))]


def test_a_service_from_which_nothing_was_heard_has_lost_everything(contract: Contract) -> None:
    verdicts = judge(expected(contract, event("health.reading.v1")), {})

    assert [verdict.service for verdict in verdicts if verdict.lost] == ["care-analytics"]
