"""`trace SOURCE ID`: what the archive and the queues know of one event."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Contract
from eventplane.envelope import parse_event, write_event
from eventplane.reasons import Outcome
from eventplane.sender import Sender
from eventplane.tracing.context import context_of
from operations.search import in_tap
from tests.unit.operations.support import (
    HOME,
    INBOX,
    ROUTER,
    Plane,
    device_letter,
    event,
    ledger_line,
    letter,
    letter_of_event,
    tap_line,
    tap_refusal_line,
)

Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., Any]
SOURCE = "/homes/1/health"
ROUTE = ("readings-to-care-analytics", "care-analytics.inbox")
TO_OPERATIONS = ("dead-letters-to-operations", "operations.inbox")


def one(run_json: RunJson) -> RunJson:
    """The trace of the only sender."""

    def traced(*arguments: str) -> Any:
        (event,) = run_json(*arguments)["events"]
        return event

    return traced


def whats(traced: Any) -> list[str]:
    return [each["what"] for each in traced["stations"]]


def test_a_delivered_event_has_all_its_stations_in_order(plane: Plane, run: Run) -> None:
    sent = event("17", recordedtime="2025-12-31T23:59:59Z")
    plane.archive("tap", [tap_line(event("16").json), tap_line(sent.json, 1)])
    plane.archive("ledger", [ledger_line(sent, Outcome.DELIVERED, route=ROUTE)])

    status, out, _ = run("trace", SOURCE, "17")

    assert status == 0
    recorded, accepted, delivered = out.splitlines()[2:]
    assert recorded.startswith("2025-12-31 23:59:59.000  device")
    assert accepted.startswith("2026-01-01 00:00:00.000  IoT Core")
    assert "accepted" in accepted
    assert "device home-1" in accepted
    assert "readings-to-care-analytics -> care-analytics.inbox" in delivered
    assert "delivered" in delivered


@pytest.mark.parametrize(
    ("outcome", "reason"), [(Outcome.EXPIRED, "expirytime"), (Outcome.NO_INTEREST, "no_interest")]
)
def test_an_event_that_was_not_forwarded_says_so(
    plane: Plane, run_json: RunJson, outcome: Outcome, reason: str
) -> None:
    sent = event("17")
    plane.archive("tap", [tap_line(sent.json)])
    plane.archive("ledger", [ledger_line(sent, outcome, route=ROUTE, reason=reason)])

    traced = one(run_json)("trace", SOURCE, "17")

    assert whats(traced) == ["accepted", outcome]
    assert traced["stations"][1]["reason"] == reason
    assert traced["missing"] == []


def test_a_refused_event_has_its_dead_letter(plane: Plane, run_json: RunJson) -> None:
    sent = event("17")
    dead = letter_of_event(sent)
    plane.archive("tap", [tap_line(sent.json)])
    refused = ledger_line(sent, Outcome.DEAD_LETTERED, reason="payload_invalid")
    plane.archive(
        "ledger", [refused, ledger_line(dead, Outcome.DELIVERED, route=TO_OPERATIONS, sender=ROUTER)]
    )

    traced = one(run_json)("trace", SOURCE, "17")

    assert whats(traced) == ["accepted", "dead_lettered", "its dead letter delivered"]
    assert traced["stations"][1]["reason"] == "payload_invalid"
    assert traced["missing"] == []


def test_a_refused_event_whose_letter_went_nowhere_is_incomplete(plane: Plane, run: Run) -> None:
    sent = event("17")
    plane.archive("tap", [tap_line(sent.json)])
    plane.archive("ledger", [ledger_line(sent, Outcome.DEAD_LETTERED, reason="payload_invalid")])

    status, out, _ = run("trace", SOURCE, "17")

    assert status == 1
    assert "missing: no record that its dead letter was delivered" in out


def test_what_was_no_event_is_found_by_the_names_in_its_bytes(plane: Plane, run_json: RunJson) -> None:
    original = b'{"source": "/homes/1/health", "id": "17"}'
    plane.archive(
        "tap", [tap_refusal_line(original, "missing_attribute"), tap_refusal_line(b"\xff", "not_utf8", 1)]
    )
    reasons = ("missing_attribute", "not_utf8")
    refused = [ledger_line(None, Outcome.DEAD_LETTERED, reason=each) for each in reasons]
    dead = [letter(b"", each, id=f"m-1.{index}") for index, each in enumerate(reasons)]
    sent = [ledger_line(each, Outcome.DELIVERED, route=TO_OPERATIONS, sender=ROUTER) for each in dead]
    plane.archive("ledger", refused + sent)

    traced = one(run_json)("trace", SOURCE, "17")

    assert whats(traced) == ["accepted, no event", "dead_lettered", "its dead letter delivered"]
    assert traced["stations"][1]["reason"] == "missing_attribute"
    assert traced["missing"] == []


def test_a_dead_letter_that_the_device_made_is_found(plane: Plane, run_json: RunJson) -> None:
    dead = device_letter(
        b'{"source": "/homes/1/health", "id": "17"}', "missing_attribute", "health-service.outbox", "d"
    )
    plane.archive("tap", [tap_line(dead.json)])
    device = Sender("home-1", "device")
    plane.archive("ledger", [ledger_line(dead, Outcome.DELIVERED, route=TO_OPERATIONS, sender=device)])

    traced = one(run_json)("trace", SOURCE, "17")

    assert whats(traced) == ["dead letter of the device", "its dead letter delivered"]
    assert traced["stations"][0]["channel"] == "health-service.outbox"


def test_two_senders_of_the_same_names_have_a_trace_each(plane: Plane, run: Run, run_json: RunJson) -> None:
    true, forged = event("17"), event("17", subject="forged")
    thief = Sender("home-2")
    plane.archive("tap", [tap_line(forged.json, device="home-2"), tap_line(true.json)])
    refused = ledger_line(forged, Outcome.DEAD_LETTERED, reason="sender_not_allowed", sender=thief)
    dead = letter_of_event(forged, thief)
    told = ledger_line(dead, Outcome.DELIVERED, route=TO_OPERATIONS, sender=ROUTER)
    plane.archive("ledger", [refused, told, ledger_line(true, Outcome.DELIVERED, route=ROUTE)])
    plane.send(f"{INBOX}-dlq", true.stamped(**HOME.attributes))

    status, out, _ = run("trace", SOURCE, "17")
    assert status == 0
    assert out.startswith("2 senders have sent events of these names")
    assert "id 17 of /homes/1/health, sent by home-1/, trace" in out
    assert "id 17 of /homes/1/health, sent by home-2/, trace" in out
    traced = run_json("trace", SOURCE, "17")["events"]
    assert {each["sender"]: whats(each) for each in traced} == {
        "home-1/": ["accepted", "delivered", "waits since"],
        "home-2/": ["accepted", "dead_lettered", "its dead letter delivered"],
    }


def test_a_cloud_services_event_is_found_with_its_dead_letter(plane: Plane, run_json: RunJson) -> None:
    sender = Sender(service="somebody-of-an-older-contract")
    sent = event("17")
    lines = [
        ledger_line(sent, Outcome.DEAD_LETTERED, reason="payload_invalid", sender=sender),
        ledger_line(letter_of_event(sent, sender), Outcome.DELIVERED, route=TO_OPERATIONS, sender=ROUTER),
    ]
    plane.archive("ledger", lines)
    traced = one(run_json)("trace", SOURCE, "17")
    assert traced["sender"] == "somebody-of-an-older-contract"
    assert whats(traced) == ["dead_lettered", "its dead letter delivered"]


def test_what_never_reached_the_tap_is_the_devices_side(plane: Plane, run: Run) -> None:
    plane.archive("tap", [tap_line(event("16").json)])

    status, out, _ = run("trace", SOURCE, "17")

    assert status == 1
    assert "missing: never reached the tap" in out


def test_accepted_and_not_decided_is_missing_a_router(plane: Plane, run: Run) -> None:
    plane.archive("tap", [tap_line(event("17").json)])

    status, out, _ = run("trace", SOURCE, "17")

    assert status == 1
    assert "missing: no router has decided" in out


def test_decided_and_not_in_the_tap_is_said(plane: Plane, run: Run) -> None:
    plane.archive("ledger", [ledger_line(event("17"), Outcome.DELIVERED, route=ROUTE)])

    assert "missing: a router has decided, and the tap has nothing" in run("trace", SOURCE, "17")[1]


def test_a_route_without_an_outcome_is_missing_by_the_contract_that_decided(
    plane: Plane, run: Run, contract: Contract
) -> None:
    alarm = event("17", "org.eventplane.alarm.clinical.v1")
    plane.archive("tap", [tap_line(alarm.json)])
    line = ledger_line(
        alarm,
        Outcome.DELIVERED,
        route=("alarms-to-alarm-centre", "alarm-centre.inbox"),
        contract_version=contract.version,
    )
    plane.archive("ledger", [line])

    out = run("trace", SOURCE, "17")[1]

    assert "route daily-life-to-family matches it, and no router says what became of it" in out
    assert "route readings-to-care-analytics matches it" in out
    assert "route alarms-to-alarm-centre" not in out


def test_a_dead_letter_of_one_route_hides_no_other_that_is_missing(
    plane: Plane, run_json: RunJson, contract: Contract
) -> None:
    alarm = event("17", "org.eventplane.alarm.clinical.v1")
    dead = letter_of_event(alarm)
    plane.archive("tap", [tap_line(alarm.json)])
    route = ("alarms-to-alarm-centre", "alarm-centre.inbox")
    lines = [
        ledger_line(
            alarm,
            Outcome.DEAD_LETTERED,
            route=route,
            reason="not_taken",
            contract_version=contract.version,
        ),
        ledger_line(dead, Outcome.DELIVERED, route=TO_OPERATIONS, sender=ROUTER),
    ]
    plane.archive("ledger", lines)

    missing = one(run_json)("trace", SOURCE, "17")["missing"]

    assert "route readings-to-care-analytics matches it, and no router says what became of it" in missing
    assert not [each for each in missing if "alarms-to-alarm-centre" in each or "dead letter" in each]


def test_a_message_in_a_dead_letter_queue_is_a_station_and_stays_there(
    plane: Plane, run_json: RunJson
) -> None:
    plane.send(f"{INBOX}-dlq", event("17").stamped(**HOME.attributes))
    plane.send(f"{INBOX}-dlq", event("18"))
    plane.send("operations-inbox", letter_of_event(event("17")))

    traced = one(run_json)("trace", SOURCE, "17")

    assert [each["where"] for each in traced["stations"]] == [f"eventplane-test-{INBOX}-dlq"]
    assert len(plane.received(f"{INBOX}-dlq")) == 2


def test_a_letter_of_what_was_no_event_is_found_by_the_names_in_its_bytes(
    plane: Plane, run: Run, run_json: RunJson
) -> None:
    plane.send("operations-inbox", letter(b'{"source": "/homes/1/health", "id": "17"}', "missing_attribute"))

    assert whats(one(run_json)("trace", SOURCE, "17", "--live")) == ["waits since"]
    assert run("dead-letters", "show", "17", "--letters")[0] == 0


def test_live_queues_are_looked_into_on_demand_only(plane: Plane, run_json: RunJson) -> None:
    plane.send("operations-inbox", letter_of_event(event("17")))

    assert whats(one(run_json)("trace", SOURCE, "17")) == []
    (station,) = one(run_json)("trace", SOURCE, "17", "--live")["stations"]
    assert station["where"] == "eventplane-test-operations-inbox"
    assert station["reason"] == "payload_invalid"


def test_only_the_folders_of_the_days_are_read(plane: Plane, run_json: RunJson) -> None:
    for day in ("2026-03-01", "2026-03-02", "2026-03-03"):
        plane.archive("tap", [tap_line(event(day).json)], date=day)

    def found(day: str) -> bool:
        days = ("--from", "2026-03-02", "--to", "2026-03-02")
        return bool(one(run_json)("trace", SOURCE, day, *days)["stations"])

    assert [found(f"2026-03-0{number}") for number in (1, 2, 3)] == [False, True, False]


def test_no_day_at_all_is_no_answer(plane: Plane, run: Run) -> None:
    status, _, err = run("trace", SOURCE, "17", "--from", "2026-03-02", "--to", "2026-03-01")
    assert (status, "no day is from 2026-03-02 to 2026-03-01" in err) == (2, True)


def test_a_copy_of_the_archive_needs_no_cloud(run_json: RunJson, tmp_path: Path, plane: Plane) -> None:
    plane.client.faults = {"get_paginator": pytest.fail}
    folder = tmp_path / "tap" / "date=2026-03-02" / "hour=23"
    folder.mkdir(parents=True)
    (folder / "one.json.gz").write_bytes(gzip.compress(tap_line(event("17").json).encode()))

    days = ("--from", "2026-03-01", "--to", "2026-03-02", "--archive", str(tmp_path))
    assert whats(one(run_json)("trace", SOURCE, "17", *days)) == ["accepted"]


def test_a_damaged_object_hides_no_other(plane: Plane, run: Run) -> None:
    whole = gzip.compress(tap_line(event("18").json).encode() * 50)
    key = plane.archive("tap", [], name="cut")
    plane.s3.put_object(Bucket=plane.bucket, Key=key, Body=whole[: len(whole) // 2])
    plane.archive("tap", ["no json, but about 17", tap_line(event("17").json)], name="whole")
    plane.archive("ledger", [ledger_line(event("17"), Outcome.DELIVERED, route=ROUTE)])

    status, out, err = run("trace", SOURCE, "17")

    assert status == 0
    assert "accepted" in out
    assert "cut.json.gz could not be read to its end" in err
    assert "whole.json.gz could not be read" in err


def test_a_batch_that_was_archived_twice_is_one_station(plane: Plane, run_json: RunJson) -> None:
    for name in ("one", "two"):
        plane.archive("tap", [tap_line(event("17").json)], name=name)
        plane.archive("ledger", [ledger_line(event("17"), Outcome.DELIVERED, route=ROUTE)], name=name)

    assert whats(one(run_json)("trace", SOURCE, "17")) == ["accepted", "delivered"]


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=8)


@given(source=NAMES, id=NAMES, escaped=st.booleans())
def test_an_event_is_found_however_it_spells_its_names(source: str, id: str, escaped: bool) -> None:
    text = json.dumps({"source": source, "id": id, "type": "t", "specversion": "1.0"}, ensure_ascii=escaped)
    if escaped:
        text = text.replace("/", "\\/")

    line = tap_line(text).encode()

    assert in_tap((source, id))(line) is not None
    assert in_tap((source, id + "x"))(line) is None


def test_an_escape_for_a_plain_letter_hides_nothing() -> None:
    written = parse_event('{"specversion": "1.0", "source": "/s", "id": "\\u0061b", "type": "t"}')

    assert written.id == "ab"
    assert in_tap(("/s", "ab"))(tap_line(written.json).encode()) is not None


@pytest.mark.parametrize("carried", [{}, {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}])
def test_an_event_s_trace_is_named(
    plane: Plane, run: Run, run_json: RunJson, carried: dict[str, str]
) -> None:
    sent = event("17", **carried)
    plane.archive("tap", [tap_line(sent.json)])
    plane.archive("ledger", [ledger_line(sent, Outcome.DELIVERED, route=ROUTE)])

    trace_id = "a" * 32 if carried else context_of(sent).trace_id
    assert run("trace", SOURCE, "17")[1].splitlines()[0].endswith(f", trace {trace_id}")
    assert one(run_json)("trace", SOURCE, "17")["trace_id"] == trace_id


def test_an_id_alone_is_enough(plane: Plane, run_json: RunJson, run: Run) -> None:
    one_source, other = event("17"), write_event({**event("17").attributes, "source": "/homes/2"}, {})
    plane.archive("tap", [tap_line(one_source.json), tap_line(other.json, 1), tap_line(event("18").json, 2)])
    plane.archive("ledger", [ledger_line(one_source, Outcome.DELIVERED, route=ROUTE)])

    found = run_json("trace", "17")["events"]

    assert [each["source"] for each in found] == ["/homes/1/health", "/homes/2"]
    assert [whats(each) for each in found] == [["accepted", "delivered"], ["accepted"]]
    assert "never reached the tap" in run("trace", "19")[1]


def test_an_id_alone_finds_the_original_of_a_dead_letter(plane: Plane, run_json: RunJson) -> None:
    plane.archive("tap", [tap_refusal_line(b'{"source": "/homes/1/health", "id": "17"}', "bad")])
    assert whats(one(run_json)("trace", "17")) == ["accepted, no event"]


def test_following_prints_each_step_once_until_all_is_known(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = event("17")
    later = [
        lambda: plane.archive("tap", [tap_line(sent.json)]),
        lambda: plane.archive("ledger", [ledger_line(sent, Outcome.DELIVERED, route=ROUTE)]),
    ]
    monkeypatch.setattr("operations.trace_command.time.sleep", lambda _: later.pop(0)())

    status, out, err = run("trace", "17", "--follow", "--json")

    assert (status, err) == (0, "")
    assert [json.loads(line)["what"] for line in out.splitlines()] == ["accepted", "delivered"]


def test_following_ends_in_time_with_what_is_missing(plane: Plane, run: Run) -> None:
    plane.archive("tap", [tap_line(event("17").json)])
    status, out, err = run("trace", "17", "--follow", "--timeout", "0.1")
    assert (status, out.count("\n")) == (1, 1)
    assert "missing: no router has decided" in err


@pytest.mark.parametrize("words", [["a", "b", "c"], ["17", "--timeout", "1"]])
def test_wrong_words_are_refused(plane: Plane, run: Run, words: list[str]) -> None:
    status, out, err = run("trace", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
