"""Payloads are checked by the contract's schemas: what the cloud's router refuses, and its message."""

import base64
import gc
import json
import signal
import subprocess
import sys
from threading import Thread
from typing import Any

import jsonschema
import pytest

from contract import load_contract
from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Priority, SchemaCheck
from eventplane.dead_letter import Refusal, letter_id
from eventplane.envelope import Envelope, parse_event, write_event
from lambdas.common import system
from lambdas.router import payload
from lambdas.router.payload import CpuLimitError, PayloadCheck, SlowPayloadsError, cpu_limit
from lambdas.router.planner import Planner, Step
from tests.small_contract import small_contract
from tests.unit.lambdas.support import ALARM, NOW_MS, READING, frame, message

pytestmark = pytest.mark.source("P11")

V1, V2, OTHER = (
    "https://schemas.example.org/v1",
    "https://schemas.example.org/v2",
    "https://elsewhere.example/v3",
)
NUMBER = {"$id": V1, "type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}
UNIT = {"$id": V2, "allOf": [{"$ref": "v1"}], "required": ["unit"]}


def plane(*schemas: dict[str, Any], check: str = "strict") -> Contract:
    """Type `t` is checked, type `free` is not."""
    listed = list(schemas) or [NUMBER, UNIT]
    return small_contract(
        {"device": "device", "desk": "cloud_service", "letters": "cloud_service"},
        {
            "to-desk": ({"exact": {"type": "t"}}, "desk.inbox"),
            "dead": ({"prefix": {"type": "org.eventplane.deadletter."}}, "letters.inbox"),
        },
        {
            "t": {"priority": "urgent", "schemas": listed, "schema_check": check},
            "free": {"schemas": listed},
        },
    )


def event(data: Any = None, **attributes: AttributeValue) -> Envelope:
    return write_event({"id": "1", "source": "/s"} | {"type": "t"} | attributes, data)


def refusal(event: Envelope, *schemas: dict[str, Any], check: str = "strict") -> Refusal | None:
    return PayloadCheck(plane(*schemas, check=check), cpu_time=system.cpu_time).of_message()(event)


@pytest.mark.source("P11")
@pytest.mark.parametrize(
    ("check", "dataschema", "data", "reason"),
    [
        ("none", None, {}, None),
        ("none", OTHER, {}, None),
        ("known", None, {"value": 1}, None),
        ("known", None, {}, "payload_invalid"),
        ("known", V1, {}, "payload_invalid"),
        ("known", V2, {"value": 1}, "payload_invalid"),
        ("known", V2, {"value": 1, "unit": "m"}, None),
        ("known", OTHER, {}, None),
        ("strict", None, {"value": 1}, None),
        ("strict", None, {}, "payload_invalid"),
        ("strict", V2, {"unit": "m"}, "payload_invalid"),
        ("strict", OTHER, {"value": 1, "unit": "m"}, "unknown_dataschema"),
        ("strict", V1 + "?", {"value": 1}, "unknown_dataschema"),
    ],
)
def test_check_and_schema_decide(check: str, dataschema: str | None, data: Any, reason: str | None) -> None:
    attributes = {"dataschema": dataschema} if dataschema else {}
    found = refusal(event(data, **attributes), check=check)
    assert (found.reason if found else None) == reason


def test_a_refusal_names_place_value_and_schema_within_bounds() -> None:
    found = refusal(event({"value": "much"}))
    assert found == Refusal("payload_invalid", f"$.value: 'much' is not of type 'number' (schema {V1})")
    unknown = refusal(event({}, dataschema=OTHER))
    assert unknown == Refusal("unknown_dataschema", f"{OTHER} is none of the contract's: {V1}, {V2}")
    long = refusal(event({"value": "x" * 90_000}))
    deep = refusal(event({"x" * 90_000: 1}), {"$id": V1, "additionalProperties": False})
    assert "is not of type 'number'" in long.detail
    assert max(len(long.detail), len(deep.detail)) < 500


def base64_of(text: bytes) -> str:
    return f'"data_base64":"{base64.b64encode(text).decode()}"'


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ('"datacontenttype":"text/plain","data":"1"', "data of text/plain is not JSON"),
        ('"datacontenttype":"text/plain","data":{"value":1}', "the data is not JSON"),
        ('"datacontenttype":"application/octet-stream","data_base64":"MQ=="', "is not JSON"),
        ('"datacontenttype":"application/json"', "there is no data"),
        ('"subject":"no data"', "there is no data"),
        ('"data":null', "None is not of type 'object'"),
        ('"data_base64":"/w=="', "the data is not JSON: byte 0 is not UTF-8"),
        (base64_of(b'{"value":1,"value":2}'), "more than once"),
        (base64_of(b'{"value":"x"}'), "$.value: 'x' is not"),
        ('"datacontenttype":"application/vnd.example+json","data":{"value":1}', None),
        ('"datacontenttype":"application/json;charset=utf-8","data":{"value":1}', None),
        (base64_of(b'{"value":1}'), None),
    ],
)
def test_json_is_valid_in_every_form_and_nothing_else(members: str, detail: str | None) -> None:
    found = refusal(parse_event('{"specversion":"1.0","id":"1","source":"/s","type":"t",' + members + "}"))
    assert (found is None) is (detail is None)
    if found is not None:
        assert (found.reason, str(detail) in found.detail) == ("payload_invalid", True)


SLOW = {"$id": V1, "pattern": "^(a+)+$"}
HARMLESS = "a" * 40


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # swallowed in a collection
@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (SLOW, HARMLESS + "b"),
        ({"$id": V1, "uniqueItems": True}, [{"a": number} for number in range(9_000)]),
    ],
)
def test_slow_checks_are_stopped(schema: dict[str, Any], data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "EVENT_SECONDS", 0.05)
    check = PayloadCheck(plane(schema), cpu_time=system.cpu_time).of_message()
    found = check(event(data))
    assert (found.reason, "takes longer than 0.05 s" in found.detail) == ("payload_invalid", True)
    assert check(event(HARMLESS)) is None


def test_a_message_full_of_slow_payloads_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "EVENT_SECONDS", 0.02)
    checks = PayloadCheck(plane(SLOW), message_s=0.01, cpu_time=system.cpu_time)
    check = checks.of_message()
    assert check(event(HARMLESS + "b")) is not None
    assert check(event(HARMLESS, type="free")) is None
    with pytest.raises(SlowPayloadsError, match="redrive"):
        check(event(HARMLESS))
    assert checks.of_message()(event(HARMLESS)) is None


def test_outside_the_main_thread_there_is_no_limit() -> None:
    found: list[Refusal | None] = []
    thread = Thread(target=lambda: found.append(refusal(event({"value": 1}))))
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.parametrize("collects", [True, False])
def test_the_limit_ends_with_its_block(collects: bool) -> None:
    handler = signal.getsignal(signal.SIGVTALRM)

    def work() -> None:
        with cpu_limit(0.01):
            while True:
                pass

    with pytest.raises(CpuLimitError):
        work()
    (gc.enable if collects else gc.disable)()
    try:
        with cpu_limit(60):
            assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
            assert not gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) is handler


@pytest.mark.parametrize(
    ("schema", "text", "detail"),
    [
        ({"multipleOf": 0.01}, "1" + "0" * 400, "too large"),
        ({"$ref": "#"}, "1", "nested too deeply"),
    ],
)
def test_a_library_failure_is_invalid(schema: dict[str, Any], text: str, detail: str) -> None:
    sent = parse_event('{"specversion":"1.0","id":"1","source":"/s","type":"t","data":' + text + "}")
    found = refusal(sent, {"$id": V1, **schema})
    assert detail in found.detail


def plan(contract: Contract, *events: Envelope, attempt: int = 1) -> list[Step]:
    body = frame(("[" + ",".join(each.json for each in events) + "]").encode())
    return list(
        Planner(contract, "device.outbox", system.cpu_time).plan(message("m1", body, attempt), NOW_MS)
    )


@pytest.mark.source("P11")
def test_a_refused_event_is_a_letter() -> None:
    bad, good = event({"value": "x"}), event({"value": 1}, id="2")
    refused, letter, delivered = plan(plane(), bad, good)
    assert refused.event is None
    record = refused.record
    assert (record.source, record.id, record.type) == ("/s", "1", "t")
    assert (record.outcome, record.reason, record.route) == ("dead_lettered", "payload_invalid", None)
    assert (record.priority, record.client_id) == ("urgent", "home-1")
    assert (letter.record.destination, letter.event.id) == ("letters.inbox", letter_id("home-1/", "/s", "1"))
    data = letter.event.data()
    assert base64.b64decode(data["original_base64"]).decode() == bad.json
    assert data["detail"].startswith("$.value: 'x' is not of type 'number'")
    assert letter.event.attributes["deadletterreason"] == "payload_invalid"
    assert (delivered.record.id, delivered.record.outcome) == ("2", "delivered")


def test_the_payload_is_checked_first() -> None:
    late = event({}, expirytime="2020-01-01T00:00:00Z")
    first = plan(plane(), late)
    assert [each.record.outcome for each in first] == ["dead_lettered", "delivered"]
    # A copy of a refused event is the same dead letter.
    assert plan(plane(), event({"value": []}), attempt=2)[1].record.id == first[1].record.id
    steps = Planner(plane(), "desk.outbox", system.cpu_time).plan(message("m1", event({}).json), NOW_MS)
    assert [each.record.reason for each in steps] == ["payload_invalid", None]


def test_an_alarm_does_not_load_the_library() -> None:
    code = (
        "import sys; from eventplane.contract import load_compiled; "
        "from eventplane.envelope import write_event; from lambdas.router.payload import PayloadCheck; "
        "check = PayloadCheck(load_compiled(sys.stdin.read()), float).of_message(); "
        "event = {'id': '1', 'source': '/s', 'type': sys.argv[1]}; check(write_event(event, {})); "
        "print([name for name in sys.modules if name in ('jsonschema', 'referencing', 'rpds')])"
    )
    for type, loaded in ((ALARM, []), (READING, ["jsonschema", "referencing", "rpds"])):
        done = subprocess.run(
            [sys.executable, "-c", code, type],
            input=load_contract().canonical,
            capture_output=True,
            check=True,
        )
        assert sorted(json.loads(done.stdout.decode().replace("'", '"'))) == loaded


def test_the_shipped_contract_checks_payloads_but_not_of_alarms(contract: Contract) -> None:
    checked = {
        name for name, each in contract.event_types.items() if each.schema_check is not SchemaCheck.NONE
    }
    assert {READING, "org.eventplane.home.threshold.v1"} <= checked
    urgent = {name for name, each in contract.event_types.items() if each.priority is Priority.URGENT}
    assert urgent
    assert not urgent & checked
    # Nor the plane's reports about devices: carers must get them, even malformed ones.
    assert not {each for each in checked if ".device." in each or ".notice." in each}


def test_the_shipped_contract_accepts_two_versions_of_a_reading(contract: Contract) -> None:
    old, new = contract.event_types[READING].schemas
    value = {"quantity": "heart-rate", "value": 72, "unit": "/min"}
    ways = [
        ({}, value, None),
        ({"dataschema": old}, value, None),
        ({"dataschema": new}, value | {"origin": "measured"}, None),
        ({"dataschema": new}, value, f"$: 'origin' is a required property (schema {new})"),
        (
            {"dataschema": old},
            value | {"value": "7"},
            f"$.value: '7' is not of type 'number' (schema {old})",
        ),
        ({"dataschema": "https://schemas.eventplane.org/reading.v9.json"}, {"of": "a later contract"}, None),
    ]
    for attributes, data, detail in ways:
        refusal = PayloadCheck(contract, cpu_time=system.cpu_time).of_message()(
            event(data, type=READING, **attributes)
        )
        assert (refusal and refusal.detail) == detail
    for schema in contract.event_types[READING].schemas.values():
        for each in schema["examples"]:
            jsonschema.validate(value | each, contract.event_types[READING].schemas[old])


def test_the_deletion_of_a_state_has_no_payload_to_check(contract: Contract) -> None:
    check = PayloadCheck(contract, cpu_time=system.cpu_time).of_message()
    threshold = "org.eventplane.home.threshold.v1"
    for value in (True, "true"):
        assert check(event(type=threshold, statedelete=value)) is None
    assert check(event({"high": 1}, type=threshold, statedelete=True)) is not None
    assert check(event(type=threshold)) is not None
    assert check(event(type=READING, statedelete=True)) is not None
