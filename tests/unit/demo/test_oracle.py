"""What the oracle expects of what was sent, and its verdict on what arrived."""

from hashlib import sha256

import pytest

from eventplane.contract import Contract, Place
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope, write_event
from lab.input import open_input
from lab.oracle import Arrived, Key, SentLog, dead_lettered, expected_by_service, judge
from lab.poison import Poison, cloud_payloads


def event(type_: str, *, id_: str = "1", subject: str = "/kitchen") -> Envelope:
    names = {"id": id_, "source": "/homes/h/health-service", "type": f"org.eventplane.{type_}"}
    return write_event({**names, "subject": subject})


def test_a_repeated_event_counts_once(contract: Contract) -> None:
    log, alarm = SentLog(contract), event("alarm.clinical.v1")
    for each in (alarm, event("health.reading.v1", id_="2"), alarm):
        log.event(each, contract.channel("health-service.outbox"))
    assert (log.events_sent, log.urgent_sent, [each.id for each in log.events]) == (2, 1, ["1", "2"])
    for payload in cloud_payloads("/homes/h/health-service"):
        log.cloud_payload(payload)
    assert [each.entered for each in log.events[2:]] == [Place.CLOUD] * 4
    kinds = ["missing_id", "not_json", "truncated_batch", "wrong_payload"]
    assert sorted(each.kind for each in log.malformed) == kinds


def expected(contract: Contract, *events: Envelope, entered: Place = Place.DEVICE) -> dict[str, set[Key]]:
    log = SentLog(contract)
    for each in events:
        log.event(each, contract.channel("health-service.outbox"), entered)
    return expected_by_service(contract, log.events, log.malformed)


@pytest.mark.parametrize(
    ("sent", "entered", "services"),
    [
        (event("alarm.keyword.v1"), Place.DEVICE, {"call-service", "alarm-centre", "family-app"}),
        (event("alarm.keyword.v1"), Place.CLOUD, {"alarm-centre", "family-app"}),
        (event("activity.motion.v1"), Place.DEVICE, {"care-analytics", "family-app"}),
        (event("activity.motion.v1", subject="/bedroom"), Place.DEVICE, {"care-analytics"}),
        (event("home.threshold.v1"), Place.CLOUD, {"health-service"}),
        (event("unknown.v1"), Place.DEVICE, set()),
    ],
)
def test_expected_by_contract(contract: Contract, sent: Envelope, entered: Place, services: set[str]) -> None:
    keys = expected(contract, sent, entered=entered)
    assert {service for service, those in keys.items() if those} == services
    assert keys.keys() >= services | {"voice-service", "operations", "carers"}


def test_letters_and_starts_are_expected(contract: Contract) -> None:
    log = SentLog(contract)
    for payload in (b"no", b"nor this"):
        log.poison(Poison("not_json", "not_json", payload))
    letter, started = ("not_json", sha256(b"no").hexdigest()), (STARTED, "/devices/h1/forwarder")
    keys = expected_by_service(contract, log.events, log.malformed, ["h1"])
    assert {service for service, those in keys.items() if those} == {"operations"}
    assert keys["operations"] == {letter, ("not_json", sha256(b"nor this").hexdigest()), started}
    assert dead_lettered(log.malformed, {"operations": Arrived({letter, started}, 0)}) == 1


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


def test_a_silent_service_has_lost_everything(contract: Contract) -> None:
    verdicts = judge(expected(contract, event("health.reading.v1")), {})

    assert [verdict.service for verdict in verdicts if verdict.lost] == ["care-analytics"]
