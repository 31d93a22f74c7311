"""The forwarder as a process between a real Mosquitto and an IoT Core that keeps quotas and misbehaves."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import pytest

from edge.spool import read_backlog
from eventplane.names import SEQUENCE
from eventplane.topics import basic_ingest_topic, urgent_rule
from local.certificates import Authority
from tests.integration.edge.conftest import (
    READING,
    RULE,
    SECONDS,
    THING,
    Home,
    MakeHome,
    event,
    ids,
    send,
    wait_for,
)
from tests.integration.edge.iot_core import Answer, IotCore, Published

ALARM = "org.eventplane.alarm.keyword.v1"
FAILURES = [each for each in Answer if each is not Answer.TAKE]
QUICK = {
    # The pace keeps a distance from the quota: what is spread here may arrive closer together there.
    "publishes_per_s": 50, "bytes_per_s": 256 * 1024, "batch_events": 10, "probe_interval_s": 0.5,
    "puback_timeout_s": 1.0, "connect_timeout_s": 1.0, "reconnect_min_s": 0.5, "reconnect_max_s": 0.5,
}  # fmt: skip


@pytest.fixture
def iot_core(authority: Authority) -> Iterator[IotCore]:
    server = authority.issue("iot")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(server.certificate, server.key)
    with IotCore(tls) as it:
        yield it


@pytest.fixture
def start(make_home: MakeHome, iot_core: IotCore) -> Callable[..., Home]:
    """Starts the home, with settings of the cloud's side."""
    return lambda **cloud_settings: make_home(iot_core.port, **QUICK | cloud_settings)


def put(home: Home, first: int, last: int) -> None:
    service = home.connect("health-service")
    send(service, first, last)
    service.flush(SECONDS)


def arrived(home: Home, iot_core: IotCore, count: int) -> None:
    """All that was stored comes to the cloud, the connection ends in peace, and the quotas were kept."""
    wait_for(lambda: iot_core.has(ids(count)))
    wait_for(lambda: not read_backlog(home.spool)["device.outbox"])
    assert not iot_core.violations
    assert "Traceback" not in home.log()


def every_third(answers: list[Answer]) -> Callable[[Published], Answer]:
    """Answer every third publish badly, in all ways in turn, and then no more."""
    bad = iter(answers)
    return lambda published: Answer.TAKE if published.number % 3 else next(bad, Answer.TAKE)


@pytest.mark.parametrize(
    ("settings", "topic", "count", "bad"),
    [
        ({}, basic_ingest_topic(RULE, THING), 200, FAILURES),
        (
            {"mode": "single", "topic": "devices/{thing}/events"},
            "devices/home-1/events",
            20,
            [Answer.HANG_UP],
        ),
    ],
    ids=["batches", "single events"],
)
def test_a_cloud_that_fails_in_every_way_gets_everything_in_order(
    start: Callable[..., Home],
    iot_core: IotCore,
    settings: dict[str, object],
    topic: str,
    count: int,
    bad: list[Answer],
) -> None:
    iot_core.deaf = True
    iot_core.grants = 0x80  # no subscription, and so no downlink
    home = start(**settings)
    put(home, 0, count)
    wait_for(lambda: iot_core.connections > 1)
    iot_core.script = every_third(bad)
    iot_core.deaf = False
    arrived(home, iot_core, count)
    sent = [each for published in iot_core.received for each in published.events]
    numbers = [int(str(each.attributes[SEQUENCE])) for each in sent]
    assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    assert {each.type for each in iot_core.events} == {READING}
    assert {each.topic for each in iot_core.accepted} == {topic}
    assert "SUBSCRIBE refused for devices/home-1/inbox" in home.log()
    # An idle connection that answers nothing any more is noticed as well.
    before = iot_core.connections
    iot_core.script, iot_core.answers_pings = lambda _: Answer.GO_DEAF, False
    wait_for(lambda: iot_core.connections > before)


@pytest.mark.source("P15")
@pytest.mark.parametrize(("protocol", "answer"), [("5", 0x99), ("3.1.1", Answer.HANG_UP)])
def test_poison_becomes_a_dead_letter_and_all_others_arrive(
    start: Callable[..., Home], iot_core: IotCore, protocol: str, answer: Answer | int
) -> None:
    throttled = iter([0x97] if protocol == "5" else [])

    def refuse(published: Published) -> Answer | int:
        if any(each.id == "e7" for each in published.events):
            return answer
        return next(throttled, Answer.TAKE)

    iot_core.script = refuse
    home = start(protocol=protocol, batch_events=4, reconnect_min_s=0.05, reconnect_max_s=0.05)
    put(home, 0, 20)
    wait_for(home.drained)
    assert iot_core.has(ids(20) - {"e7"})
    letters = [each for each in iot_core.events if each.id not in ids(20)]
    assert {each.attributes["deadletterreason"] for each in letters} == {"refused_by_cloud"}
    assert len({each.id for each in letters}) == 1


def test_a_backlog_drains_within_the_quota_in_order_and_urgent_overtakes_it(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    iot_core.deaf = True
    home = start(batch_events=2)
    put(home, 0, 160)
    iot_core.deaf = False
    wait_for(lambda: len(iot_core.events) > 20)
    home.connect("voice-service").put(event(160, ALARM))
    arrived(home, iot_core, 161)
    order = [each.id for each in iot_core.events]
    assert order.index("e160") < order.index("e159")
    readings = [each for each in order if each != "e160"]
    assert list(dict.fromkeys(readings)) == [f"e{number}" for number in range(160)]
    assert basic_ingest_topic(urgent_rule(RULE), THING) in {each.topic for each in iot_core.accepted}
