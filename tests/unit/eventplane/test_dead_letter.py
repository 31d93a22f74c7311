"""Dead letters and their reasons, ingest frames, tap and ledger records, receipts, topics."""

import ast
import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE, ORIGINAL, Refusal, dead_letter, original_of
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.errors import EnvelopeError
from eventplane.ingest import parse_frame
from eventplane.ledger import tap_records, to_line
from eventplane.limits import MAX_EVENT_BYTES, MAX_ORIGINAL_BYTES, MAX_SENT_EVENT_BYTES
from eventplane.reasons import Reason
from eventplane.receipts import Receipt, ReceiptError, digest, read_receipts, write_receipts
from eventplane.topics import basic_ingest_topic, device_topic, local_topic, receipt_topic
from eventplane.values import MAX_TIME_MS
from operations.reason_texts import TEXTS, explained
from tests.plane import shipped_contract

EVENT = write_event({"id": "1", "source": "/a", "type": "t"}, {"value": 1})


def letter_of(original: bytes, detail: str = "it is not JSON", **more: Any) -> Envelope:
    return dead_letter(
        id="dl-1",
        source="/devices/home-1/router",
        time="2026-01-01T00:00:00Z",
        refusal=Refusal("not_json", detail),
        channel="voice-service.outbox",
        original=original,
        contract_version="0123456789abcdef",
        **more,
    )


def test_a_dead_letter_keeps_the_original_and_the_reason() -> None:
    letter = letter_of(b"\xff\x00garbage")
    data = letter.data()
    assert letter.type == DEAD_LETTER_TYPE
    assert letter.attributes["deadletterreason"] == "not_json"
    assert base64.b64decode(data["original_base64"]) == b"\xff\x00garbage"
    (schema,) = shipped_contract().event_types[DEAD_LETTER_TYPE].schemas.values()
    jsonschema.validate(data, dict(schema))


def test_a_dead_letter_names_the_sender_and_the_route() -> None:
    stamped = EVENT.stamped(senderdevice="home-1", senderservice="voice")
    for more, sender in (
        ({}, None),
        ({"event": stamped}, {"device": "home-1", "service": "voice"}),
        ({"event": stamped, "sender": Sender(service="carers")}, {"device": "", "service": "carers"}),
    ):
        assert letter_of(b"", **more).data()["sender"] == sender
    for more, route, attempt in (({}, None, 1), ({"route": "alarms", "attempt": 3}, "alarms", 3)):
        data = letter_of(b"", **more).data()
        assert (data["route"], data["attempt"]) == (route, attempt)


def test_the_original_of_an_error_action_is_read_as_it_came() -> None:
    for other in (None, [ORIGINAL], ORIGINAL, {}, {"payload": "eA=="}):
        assert original_of(other) is None
    assert original_of({ORIGINAL: base64.b64encode(b"\xff{").decode()}) == b"\xff{"
    with pytest.raises(ValueError, match="base64"):
        original_of({ORIGINAL: "e!A=="})
    with pytest.raises(TypeError):
        original_of({ORIGINAL: 7})


def test_the_letter_of_a_huge_event_is_valid() -> None:
    original = b"x" * (MAX_EVENT_BYTES * 2)
    trace = f"00-{1:032x}-{2:016x}-01"
    traced = write_event({"id": "1", "source": "/a", "type": "t", "traceparent": trace})
    letter = letter_of(original, detail="\x01" * MAX_EVENT_BYTES, event=traced)
    data = letter.data()
    assert len(letter.json.encode()) <= MAX_SENT_EVENT_BYTES
    assert letter.attributes["traceparent"] == trace
    assert base64.b64decode(data["original_base64"]) == original[:MAX_ORIGINAL_BYTES]
    assert data["original_bytes"] == len(original)
    assert data["original_sha256"] == hashlib.sha256(original).hexdigest()


def frame(payload: bytes) -> str:
    return json.dumps(
        {
            "data": base64.b64encode(payload).decode(),
            "topic": "devices/home-1/outbox",
            "clientid": "home-1",
            "principal": "p",
            "timestamp": 1_700_000_000_123,
        }
    )


def test_each_event_and_refusal_of_a_frame_has_a_record_in_the_tap() -> None:
    both = parse_frame(frame(b"[" + EVENT.json.encode() + b",{}]"))
    good, bad = both.items()
    assert (good.index, good.event, bad.index, bad.event) == (0, EVENT, 1, None)
    assert (bad.original, bad.error.reason) == (b"{}", "missing_attribute")
    (whole,) = parse_frame(frame(b"\x78\x9cbroken")).items()
    assert (whole.original, whole.error.reason) == (b"\x78\x9cbroken", "not_zlib")
    taken, refused = tap_records(both, "m1", 5)
    assert (taken.event, taken.original_base64, taken.refusal) == (EVENT.json, None, None)
    assert (refused.event, refused.original_base64, refused.refusal) == (None, "e30=", "missing_attribute")
    assert json.loads(to_line(taken))["client_id"] == "home-1"


NO_FRAMES = [
    "",
    "{}",
    "[]",
    "null",
    "[" * 200_000,
    '{"data":"?","topic":"t","clientid":"c","timestamp":1}',
    *(
        f'{{"data":"","topic":"t","clientid":"c","timestamp":{number}}}'
        for number in ("9" * 5_000, "9" * 100, '"1e999"', "1e999", "-1", "null", str(MAX_TIME_MS + 1))
    ),
]


@pytest.mark.parametrize("body", NO_FRAMES, ids=range(len(NO_FRAMES)))
def test_malformed_frames_are_refused(body: str) -> None:
    with pytest.raises(EnvelopeError, match="bad_frame"):
        parse_frame(body)


def test_receipts_are_read_as_they_are_written() -> None:
    receipts = [Receipt(digest(b"a")), Receipt(digest(b"b"), refused="not_json")]
    assert read_receipts(write_receipts(receipts)) == receipts


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xff", b"{}x", b"[1]", b'[{"refused":null}]', b"7", b"[" * 100_000,
        b'[{"digest":"d","refused":false}]', b'[{"digest":"d","refused":{}}]',
    ],
)  # fmt: skip
def test_malformed_receipts_are_refused(payload: bytes) -> None:
    with pytest.raises(ReceiptError):
        read_receipts(payload)


@pytest.mark.source("P2")
def test_topics_follow_from_names() -> None:
    assert local_topic("voice-service", "outbox") == "eventplane/voice-service/outbox"
    assert receipt_topic("voice-service", "outbox") == "eventplane/voice-service/outbox/receipts"
    assert device_topic("home-1", "inbox") == "devices/home-1/inbox"
    assert basic_ingest_topic("ingest", "home-1") == "$aws/rules/ingest/devices/home-1/outbox"


ROOT = Path(__file__).parents[3]


@cache
def nodes() -> list[ast.AST]:
    """Return the syntax of the files that could name a reason. Parsing all of them takes seconds."""
    packages = (
        "eventplane",
        "edge",
        "lambdas",
        "operations",
        "parts",
        "eventplane_client",
        "eventplane_mqtt",
    )
    texts = (file.read_text() for package in packages for file in (ROOT / package).rglob("*.py"))
    named = (text for text in texts if any(name in text for name in ("Reason.", "Refusal(", "rejected(")))
    return [node for text in named for node in ast.walk(ast.parse(text))]


def test_each_reason_is_used() -> None:
    used = {
        node.attr
        for node in nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    assert used == {each.name for each in Reason}


def test_no_refusal_has_a_word_that_is_no_reason() -> None:
    """mypy checks this of `EnvelopeError`; the reason of a `Refusal` can be a word of a device's service."""
    words = {
        node.args[0].value
        for node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Refusal", "rejected")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    # The letter of the smoke test's own example.
    assert words <= {"sample"}


def test_a_reason_and_a_services_own_word_are_explained() -> None:
    assert [*TEXTS] == [*Reason, "another"]
    assert explained(Reason.NOT_JSON)[0] == "Not JSON."
    assert "Correct the sender" in explained(Reason.NOT_JSON)[1]
    assert explained(Reason.ENDPOINT_FAILED) == tuple(TEXTS["endpoint_failed"])
    assert explained("out_of_paper") == tuple(TEXTS["another"])
