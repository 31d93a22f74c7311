"""What the router does with events, good and bad."""

import base64
import hashlib

import pytest

from edge.uplink import PROBE
from eventplane.batch import pack
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Sender, pack_texts, parse_event
from eventplane.ingest import OPERATOR
from eventplane.limits import MAX_HOPS
from eventplane.sending import without_stamp
from eventplane.values import timestamp_of_ms
from tests.golden_digests import DIGESTS, SHORT
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    event,
    frame,
    message,
    stamped,
    with_sends,
)

CARE, CENTRE, FAMILY = "care-analytics.inbox", "alarm-centre.inbox", "family-app.inbox"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.source("P2")
def test_a_batch_frame_reaches_every_inbox_that_the_routes_name(cloud: Cloud) -> None:
    assert cloud.route(message("m1", frame(pack([event("1", ALARM), event("2", READING)])))) == frozenset()

    alarm = [stamped(event("1", ALARM)).json]
    assert (cloud.bodies(CENTRE), cloud.bodies(FAMILY)) == (alarm, alarm)
    assert cloud.bodies(CARE) == [stamped(event("2")).json]
    assert cloud.outcomes() == [
        ("1", CENTRE, "delivered"),
        ("1", FAMILY, "delivered"),
        ("2", CARE, "delivered"),
    ]


@pytest.mark.parametrize("payload", [PROBE, pack([])])
def test_a_keepalive_leaves_nothing(cloud: Cloud, payload: bytes) -> None:
    assert cloud.route(message("m1", frame(payload))) == frozenset()
    assert (cloud.copies(), cloud.decisions()) == ({}, [])


def test_a_message_carries_hints_but_the_body_is_the_event(cloud: Cloud) -> None:
    sent = event("1", time="2026-01-01T00:00:00Z")
    cloud.route(message("m1", frame(sent)))

    (received,) = cloud.received(CARE)
    assert received["Body"] == stamped(sent).json
    assert {name: value["StringValue"] for name, value in received["MessageAttributes"].items()} == {
        "ce_id": "1",
        "ce_source": "/homes/1",
        "ce_type": READING,
        "ce_time": "2026-01-01T00:00:00Z",
        "route": "readings-to-care-analytics",
        "contract": cloud.contract.version,
        "retries": "normal/none/43200/5",
    }


def test_extensions_are_delivered_as_they_were_written(cloud: Cloud) -> None:
    text = (
        f' {{"specversion":"1.0", "type":"{READING}","id":"1","source":"/homes/1",\n "sequence" : "0\\u0037",'
        f'"traceparent":"{TRACE}",  "tracestate":"a=1 , b=\\u0032",'
        '"partitionkey":"k\\u00fcche","severitynumber" : 24,'
        '"data":{"quantity":"heart-rate","value":1.0,"unit":"/min"}}'
    )
    assert cloud.route(message("m1", frame(pack_texts([text])))) == frozenset()
    assert cloud.bodies(CARE) == ['{"senderdevice":"home-1",' + text.strip()[1:]]


def test_the_ledger_has_a_record_of_each_delivery(cloud: Cloud) -> None:
    cloud.route(message("m1", frame(event("1", ALARM)), attempt=3))

    # Inboxes are written in parallel: the records have no order.
    (found,) = [each for each in cloud.decisions() if each["destination"] == CENTRE]
    assert found == {
        "decided_at_ms": NOW_MS,
        "entered_at_ms": NOW_MS - 1_000,
        "entered_by": "device.outbox",
        "contract_version": cloud.contract.version,
        "source": "/homes/1",
        "id": "1",
        "type": ALARM,
        "priority": "urgent",
        "client_id": "home-1",
        "route": "alarms-to-alarm-centre",
        "destination": CENTRE,
        "outcome": "delivered",
        "reason": None,
        "attempt": 3,
        "message_id": "m1",
        "sender": "home-1/",
        "received_at_ms": None,
        "basis": "in_force",
        "put_back_by": None,
        "digest": hashlib.sha256(event("1", ALARM).json.encode()).hexdigest()[16:32],
        "dead_letter_reason": None,
    }
    assert all(key.startswith("ledger/date=2026-01-01/hour=00/") for key in cloud.keys("ledger/"))


def test_the_ledger_has_the_digest_of_what_entered_refused_or_not(cloud: Cloud) -> None:
    for number, text in enumerate(DIGESTS):
        cloud.route(message(f"single-{number}", frame(text.encode())))
    cloud.route(message("batch", frame(pack_texts([*DIGESTS, "{}"]))))
    found = {row for row in cloud.ledger_rows("type", "digest") if row[0] != DEAD_LETTER_TYPE}
    assert found == {("", None), *((parse_event(text).type, SHORT[text]) for text in SHORT)}
    # Of a dead letter it has the reason instead.
    letters = set(cloud.ledger_rows("type", "digest", "dead_letter_reason")) - {(*row, None) for row in found}
    reasons = "missing_attribute", "reserved_attribute", "sender_not_allowed"
    assert letters <= {(DEAD_LETTER_TYPE, None, each) for each in reasons}
    assert len(letters) > 1


def test_the_ledger_says_of_what_an_operator_puts_back_that_he_did(cloud: Cloud) -> None:
    by_operator = frame(event("1", "org.eventplane.home.message.v1")).replace(
        '"certificate"', f'"{OPERATOR}"'
    )
    cloud.route(message("m1", by_operator))
    assert set(cloud.ledger_rows("type", "outcome", "put_back_by")) == {
        ("org.eventplane.home.message.v1", "dead_lettered", OPERATOR),
        (DEAD_LETTER_TYPE, "delivered", None),
    }


@pytest.mark.source("P2")
def test_a_service_outbox_holds_one_event_a_message(cloud: Cloud) -> None:
    lifetime = {"time": "2056-01-01T00:00:00Z", "expirytime": "2056-01-01T00:01:00Z"}
    forged = {"senttime": "1970-01-01T00:00:00Z", "deliverby": "9999-12-31T23:59:59Z", "uptimelimit": "1 b"}
    sent = event("1", "org.eventplane.home.message.v1", **lifetime, **forged)
    assert cloud.route(message("m1", sent.json), source="carers.outbox") == frozenset()

    (received,) = map(parse_event, cloud.bodies("device.inbox"))
    assert received.attributes["senderservice"] == "carers"
    assert received.attributes["deliverby"] == timestamp_of_ms(NOW_MS + 59_500)
    assert not {"senttime", "uptimelimit"} & received.attributes.keys()
    entered = cloud.ledger_rows("entered_by", "entered_at_ms", "client_id", "sender")
    assert entered == [("carers.outbox", NOW_MS - 500, None, "carers")]


NAMES = '"specversion":"1.0","id":"1","source":"/s","type":"t"'


@pytest.mark.source("P15")
@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ('{"specversion":"1.0","id":"x"}', "missing_attribute"),
        (f'{{{NAMES},"{"A" * 90_000}":1}}', "attribute_name"),
        *(
            (f'{{{NAMES},"senderservice":"{"s" * size}","data":"{"x" * 70_000}"}}', "attribute_value")
            for size in (11_000, 129, 0)
        ),
    ],
    ids=["incomplete", "huge", "very long service", "long service", "no service"],
)
def test_a_malformed_item_affects_no_other(cloud: Cloud, item: str, reason: str) -> None:
    assert cloud.route(message("m1", frame(f"[{item},{event('2').json}]".encode()), attempt=2)) == frozenset()

    assert cloud.bodies(CARE) == [stamped(event("2")).json]
    (letter,) = (parse_event(each) for each in cloud.bodies("operations.inbox"))
    data = letter.data()
    assert (letter.id, letter.attributes["deadletterreason"]) == ("m1.0", reason)
    assert (data["channel"], data["attempt"], data["sender"]) == (
        "device.outbox",
        2,
        {"device": "home-1", "service": ""},
    )
    assert data["original_bytes"] == len(item)
    assert item.encode().startswith(base64.b64decode(data["original_base64"]))
    assert cloud.outcomes() == [
        ("", None, "dead_lettered"),
        ("2", CARE, "delivered"),
        ("m1.0", "operations.inbox", "delivered"),
    ]


@pytest.mark.parametrize(
    ("source", "body", "reason"),
    [
        ("device.outbox", "not a frame", "bad_frame"),
        ("device.outbox", frame(b"\x78\x9cbroken"), "not_zlib"),
        ("device.outbox", frame(b""), "not_json"),
        ("operations.outbox", "not json", "not_json"),
        ("operations.outbox", "[]", "not_an_object"),
    ],
)
def test_a_malformed_message_is_one_letter(cloud: Cloud, source: str, body: str, reason: str) -> None:
    for attempt in (1, 2):
        assert cloud.route(message("m1", body, attempt), source=source, id=f"i{attempt}") == frozenset()
    first, second = (parse_event(each) for each in cloud.bodies("operations.inbox"))
    assert (first.data()["reason"], first.id) == (reason, second.id)
    assert [line["reason"] for line in cloud.decisions()] == [reason, None] * 2


@pytest.mark.source("C4")
def test_an_expired_event_is_recorded_and_not_delivered(cloud: Cloud) -> None:
    late = event("1", expirytime="2025-12-31T23:59:59Z")
    in_time = event("2", expirytime="2026-01-01T00:00:01Z")
    # An event older than one inbox allows expires there and nowhere else, and a dead letter is not old.
    old = [event("3", ALARM), event("4", "com.example.unknown")]
    limits = {f"participants/{name}/inbox/expiry_s": 1 for name in ("alarm-centre", "operations")}
    plane = with_changes(cloud.contract, limits)
    assert cloud.route(message("m1", frame(pack([late, in_time, *old]))), plane=plane) == frozenset()
    assert cloud.bodies(CARE) == [stamped(in_time).json]
    assert [each["reason"] for each in cloud.letters()] == ["sender_not_allowed"]
    rows = cloud.ledger_rows("id", "destination", "outcome", "reason")
    assert [row for row in rows if row[0] in ("1", "2", "3")] == [
        ("1", CARE, "expired", "expirytime"),
        ("2", CARE, "delivered", None),
        ("3", CENTRE, "expired", "channel_expiry"),
        ("3", FAMILY, "delivered", None),
    ]


@pytest.mark.source("P15")
def test_an_event_from_a_device_to_devices_is_a_dead_letter(cloud: Cloud) -> None:
    type = "org.eventplane.home.light.v1"
    plane = with_sends(cloud.contract, "activity-service", type)
    sent = event("1", type, todevice="home-2", statekey="light/home", stateversion="1")
    assert cloud.route(message("m1", frame(sent)), plane=plane) == frozenset()
    (letter,) = cloud.letters()
    assert (letter["reason"], letter["route"]) == ("sender_not_allowed", "down-to-devices")
    assert cloud.copies() == {}


@pytest.mark.source("P-W3")
def test_an_unrouted_event_is_recorded(cloud: Cloud) -> None:
    plane = with_sends(cloud.contract, "activity-service", "com.example.unknown")
    sent = message("m1", frame(event("1", "com.example.unknown")))
    assert cloud.route(sent, plane=plane) == frozenset()
    assert cloud.outcomes() == [("1", None, "unrouted")]


def test_forwarding_stops_at_the_hop_limit(cloud: Cloud) -> None:
    plane = with_sends(cloud.contract, "family-app", ALARM)
    sent = event("1", ALARM, traceparent=TRACE)
    body = sent.json
    for hop in range(1, MAX_HOPS + 1):
        assert cloud.route(message(f"m{hop}", body), plane=plane, source="family-app.outbox") == frozenset()
        again = parse_event(*cloud.bodies(FAMILY))
        assert again.sender == Sender(service="family-app")
        # The service that sends it on is its sender, so it leaves the stamp out.
        body = without_stamp(again).json
        assert body == f'{{"routerhops":{hop},' + sent.json[1:]
    assert cloud.route(message("m9", body), plane=plane, source="family-app.outbox") == frozenset()

    assert cloud.bodies(FAMILY) == []
    (letter,) = cloud.letters()
    assert letter["reason"] == "hop_limit"
    assert base64.b64decode(letter["original_base64"]).decode() == body


def test_hops_count_only_when_forwarded(cloud: Cloud) -> None:
    cloud.route(message("m1", frame(pack([event("1"), event("2", routerhops=2)]))))
    found = [parse_event(body) for body in cloud.bodies(CARE)]
    assert {each.id: each.attributes.get("routerhops") for each in found} == {"1": None, "2": 3}


@pytest.mark.source("P15")
def test_a_dead_letter_at_the_hop_limit_is_dropped_without_another(cloud: Cloud) -> None:
    letter = event("1", "org.eventplane.deadletter.v1", routerhops=MAX_HOPS)
    assert cloud.route(message("m1", letter.json), source="operations.outbox") == frozenset()
    assert cloud.letters() == []
    assert cloud.ledger_rows("outcome", "reason") == [("dropped", "hop_limit")]
