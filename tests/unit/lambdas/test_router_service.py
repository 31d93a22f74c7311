"""What the router does with events, good and bad."""

from __future__ import annotations

import base64
import json

import pytest

from edge.packing import PROBE
from eventplane.batch import pack, pack_texts
from eventplane.contract import Contract, compile_contract
from eventplane.envelope import parse_event
from eventplane.limits import MAX_HOPS
from eventplane.sender import Sender
from eventplane.sending import without_stamp
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    Run,
    event,
    frame,
    message,
    stamped,
    with_sends,
)


@pytest.mark.source("P2")
def test_a_batch_frame_reaches_every_inbox_that_the_routes_name(cloud: Cloud, run: Run) -> None:
    assert run(message("m1", frame(pack([event("1", ALARM), event("2", READING)])))) == frozenset()

    assert [each["Body"] for each in cloud.received("alarm-centre.inbox")] == [
        stamped(event("1", ALARM)).json
    ]
    assert [each["Body"] for each in cloud.received("family-app.inbox")] == [stamped(event("1", ALARM)).json]
    assert [each["Body"] for each in cloud.received("care-analytics.inbox")] == [stamped(event("2")).json]
    assert cloud.outcomes() == [
        ("1", "alarm-centre.inbox", "delivered"),
        ("1", "family-app.inbox", "delivered"),
        ("2", "care-analytics.inbox", "delivered"),
    ]


@pytest.mark.parametrize("payload", [PROBE, pack([])])
def test_a_sign_of_life_without_events_is_done_with_and_leaves_nothing(
    cloud: Cloud, run: Run, payload: bytes
) -> None:
    assert run(message("m1", frame(payload))) == frozenset()
    assert [address for address in cloud.queues if cloud.received(address)] == []
    assert cloud.keys("ledger/") == []


def test_a_message_carries_hints_but_the_body_is_the_event(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    sent = event("1", time="2026-01-01T00:00:00Z")
    run(message("m1", frame(sent.json.encode())))

    (received,) = cloud.received("care-analytics.inbox")
    assert received["Body"] == stamped(sent).json
    assert {name: value["StringValue"] for name, value in received["MessageAttributes"].items()} == {
        "ce_id": "1",
        "ce_source": "/homes/1",
        "ce_type": READING,
        "ce_time": "2026-01-01T00:00:00Z",
        "route": "readings-to-care-analytics",
        "contract": contract.version,
    }


def test_extensions_come_through_batch_router_and_queue_as_they_were_written(cloud: Cloud, run: Run) -> None:
    text = (
        f' {{"specversion":"1.0", "type":"{READING}","id":"1","source":"/homes/1",\n "sequence" : "0\\u0037",'
        '"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",'
        '  "tracestate":"a=1 , b=\\u0032",'
        '"partitionkey":"k\\u00fcche","severitynumber" : 24,'
        '"data":{"quantity":"heart-rate","value":1.0,"unit":"/min"}}'
    )
    assert run(message("m1", frame(pack_texts([text])))) == frozenset()

    (received,) = cloud.received("care-analytics.inbox")
    assert received["Body"] == '{"senderdevice":"home-1",' + text.strip()[1:]


def test_the_ledger_names_the_severity_s_priority_where_the_contract_leaves_it_open(
    cloud: Cloud, run: Run
) -> None:
    events = [
        event("1", READING, severitynumber=24),
        event("2", READING, severitynumber=1),
        event("3", ALARM, severitynumber=1),
    ]
    run(message("m1", frame(pack(events))))

    priorities = {line["id"]: line["priority"] for line in cloud.decisions()}
    assert priorities == {"1": "urgent", "2": "low", "3": "urgent"}


def test_the_ledger_says_who_sent_what_when_and_how_urgent_it_was(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    run(message("m1", frame(event("1", ALARM).json.encode()), attempt=3))

    # Inboxes are written side by side: the order of the records says nothing.
    (found,) = [each for each in cloud.decisions() if each["destination"] == "alarm-centre.inbox"]
    assert found == {
        "decided_at_ms": NOW_MS,
        "entered_at_ms": NOW_MS - 1_000,
        "entered_by": "device.outbox",
        "contract_version": contract.version,
        "source": "/homes/1",
        "id": "1",
        "type": ALARM,
        "priority": "urgent",
        "client_id": "home-1",
        "route": "alarms-to-alarm-centre",
        "destination": "alarm-centre.inbox",
        "outcome": "delivered",
        "reason": None,
        "attempt": 3,
        "message_id": "m1",
        "sender": "home-1/",
        "received_at_ms": None,
        "basis": "in_force",
    }
    assert all(key.startswith("ledger/date=2026-01-01/hour=00/") for key in cloud.keys("ledger/"))


@pytest.mark.source("P2")
def test_a_service_outbox_holds_one_event_a_message(cloud: Cloud, run: Run) -> None:
    sent = event("1", "org.eventplane.home.message.v1")
    assert run(message("m1", sent.json), source="carers.outbox") == frozenset()

    (received,) = cloud.received("device.inbox")
    assert json.loads(received["Body"])["senderservice"] == "carers"
    line = cloud.decisions()[0]
    assert (line["entered_by"], line["entered_at_ms"], line["client_id"], line["sender"]) == (
        "carers.outbox",
        NOW_MS - 500,
        None,
        "carers",
    )


@pytest.mark.parametrize("name", ["s" * 11_000, "s" * 129, ""])
def test_a_service_of_any_length_is_one_dead_letter_and_takes_no_other_with_it(
    cloud: Cloud, run: Run, name: str
) -> None:
    forged = {"id": "f", "source": "/s", "type": READING, "specversion": "1.0", "senderservice": name}
    alarm = event("1", ALARM)
    items = f"[{alarm.json},{json.dumps({**forged, 'data': 'x' * 70_000})}]"
    assert run(message("m1", frame(items.encode()))) == frozenset()

    assert [each["Body"] for each in cloud.received("alarm-centre.inbox")] == [stamped(alarm).json]
    (letter,) = (json.loads(each["Body"])["data"] for each in cloud.received("operations.inbox"))
    assert (letter["reason"], letter["sender"]) == ("attribute_value", {"device": "home-1", "service": ""})


@pytest.mark.source("P15")
def test_a_malformed_item_becomes_a_dead_letter_and_takes_no_other_with_it(cloud: Cloud, run: Run) -> None:
    bad = '{"specversion":"1.0","id":"x"}'
    run(message("m1", frame(f"[{bad},{event('2').json}]".encode()), attempt=2))

    assert len(cloud.received("care-analytics.inbox")) == 1
    (letter,) = (json.loads(each["Body"]) for each in cloud.received("operations.inbox"))
    assert letter["id"] == "m1.0"
    assert letter["deadletterreason"] == "missing_attribute"
    assert letter["data"]["channel"] == "device.outbox"
    assert letter["data"]["attempt"] == 2
    assert base64.b64decode(letter["data"]["original_base64"]).decode() == bad
    assert cloud.outcomes() == [
        ("", None, "dead_lettered"),
        ("2", "care-analytics.inbox", "delivered"),
        ("m1.0", "operations.inbox", "delivered"),
    ]


def test_a_refusal_that_quotes_a_huge_item_takes_no_other_with_it(cloud: Cloud, run: Run) -> None:
    huge = '{"specversion":"1.0","id":"1","source":"/a","type":"t","' + "A" * 90_000 + '":1}'
    assert run(message("m1", frame(f"[{huge},{event('2').json}]".encode()))) == frozenset()

    assert len(cloud.received("operations.inbox")) == 1
    assert len(cloud.received("care-analytics.inbox")) == 1


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


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
def test_what_cannot_be_read_at_all_is_one_dead_letter(
    cloud: Cloud, run: Run, source: str, body: str, reason: str
) -> None:
    assert run(message("m1", body), source=source) == frozenset()

    (letter,) = (json.loads(each["Body"]) for each in cloud.received("operations.inbox"))
    assert letter["data"]["reason"] == reason
    assert [line["reason"] for line in cloud.decisions()] == [reason, None]


def test_a_repeated_refusal_is_the_same_dead_letter(cloud: Cloud, run: Run) -> None:
    run(message("m1", "bad"))
    run(message("m1", "bad", attempt=2), invocation_id="invocation-2")

    first, second = (json.loads(each["Body"])["id"] for each in cloud.received("operations.inbox"))
    assert first == second


@pytest.mark.source("C4")
def test_an_expired_event_is_recorded_and_not_delivered(cloud: Cloud, run: Run) -> None:
    late = event("1", expirytime="2025-12-31T23:59:59Z")
    in_time = event("2", expirytime="2026-01-01T00:00:01Z")
    assert run(message("m1", frame(pack([late, in_time])))) == frozenset()

    assert [each["Body"] for each in cloud.received("care-analytics.inbox")] == [stamped(in_time).json]
    assert cloud.outcomes() == [
        ("1", "care-analytics.inbox", "expired"),
        ("2", "care-analytics.inbox", "delivered"),
    ]


@pytest.mark.source("P-W3")
def test_an_unrouted_event_is_recorded(cloud: Cloud, run: Run, contract: Contract) -> None:
    plane = with_sends(contract, "activity-service", "com.example.unknown")
    sent = message("m1", frame(event("1", "com.example.unknown").json.encode()))
    assert run(sent, plane=plane) == frozenset()
    assert cloud.outcomes() == [("1", None, "unrouted")]


def test_an_event_that_a_service_sends_on_is_counted_and_stopped_in_the_end(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    plane = with_sends(contract, "family-app", ALARM)
    sent, relayed = event("1", ALARM, traceparent=TRACE), {"source": "family-app.outbox", "plane": plane}
    body = sent.json
    for hop in range(1, MAX_HOPS + 1):
        assert run(message(f"m{hop}", body), invocation_id=f"i{hop}", **relayed) == set()
        (received,) = cloud.received("family-app.inbox")
        again = parse_event(received["Body"])
        assert again.sender == Sender(service="family-app")
        # The service that sends it on is its sender, so it leaves the stamp out.
        body = without_stamp(again).json
        assert body == f'{{"routerhops":{hop},' + sent.json[1:]
    assert run(message("m9", body), invocation_id="i9", **relayed) == frozenset()

    assert cloud.received("family-app.inbox") == []
    (letter,) = (json.loads(each["Body"]) for each in cloud.received("operations.inbox"))
    assert letter["data"]["reason"] == "hop_limit"
    assert base64.b64decode(letter["data"]["original_base64"]).decode() == body


@pytest.mark.source("P15")
def test_a_dead_letter_that_goes_round_is_dropped_and_makes_no_other(cloud: Cloud, run: Run) -> None:
    letter = event("1", "org.eventplane.deadletter.v1", routerhops=MAX_HOPS)
    assert run(message("m1", letter.json), source="operations.outbox") == frozenset()
    assert cloud.received("operations.inbox") == []
    assert [(line["outcome"], line["reason"]) for line in cloud.decisions()] == [("dropped", "hop_limit")]


def test_a_device_s_event_is_counted_only_if_it_came_round(cloud: Cloud, run: Run) -> None:
    run(message("m1", frame(pack([event("1"), event("2", routerhops=2)]))))
    bodies = [json.loads(each["Body"]) for each in cloud.received("care-analytics.inbox")]
    assert {each["id"]: each.get("routerhops") for each in bodies} == {"1": None, "2": 3}


def test_an_event_older_than_its_inbox_allows_is_expired_there_and_nowhere_else(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["alarm-centre"]["inbox"]["expiry_s"] = 1
    plane = compile_contract(document, "test")
    run(message("m1", frame(event("1", ALARM).json.encode())), plane=plane)

    assert cloud.outcomes() == [
        ("1", "alarm-centre.inbox", "expired"),
        ("1", "family-app.inbox", "delivered"),
    ]
    reasons = {line["destination"]: line["reason"] for line in cloud.decisions()}
    assert reasons == {"alarm-centre.inbox": "channel_expiry", "family-app.inbox": None}


def test_the_letter_of_an_old_event_is_not_old_itself(cloud: Cloud, run: Run, contract: Contract) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["operations"]["inbox"]["expiry_s"] = 1
    run(message("m1", "bad"), source="operations.outbox", plane=compile_contract(document, "test"))
    assert len(cloud.received("operations.inbox")) == 1
