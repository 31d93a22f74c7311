"""Bytes from outside: each reader refuses them by name, and shows nothing that steers a terminal."""

import asyncio
import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from edge.health_server import MAX_HEAD_BYTES, HealthResponse, is_complete, read_path
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane_mqtt.tls import read_validity
from lab.aws_requests import MEASURES, within_rules
from operations import text
from operations.dead_letters_command import letter_document, letter_text
from operations.letters import Letter, read_letter
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import ACCEPTED, TARGETS
from tests.property.strategies import json_values

JSON = json_values(st.text())
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["", "Zm9v", "%", "1", 1])
        for name in (
            "reason", "detail", "channel", "route", "attempt", "contract_version", "original_base64",
            "original_bytes",
        )
    },
)  # fmt: skip
LETTERS = (MEMBERS | JSON).map(
    lambda data: json.dumps(
        {"specversion": "1.0", "id": "1", "source": "/s", "type": DEAD_LETTER_TYPE, "data": data}
    )
)
BODIES = st.text(min_size=1) | JSON.map(json.dumps) | LETTERS


def letter_of(body: str) -> Letter:
    attributes = {"SentTimestamp": "1767225600000", "ApproximateReceiveCount": "6"}
    message: dict[str, Any] = {"MessageId": "m", "Body": body, "Attributes": attributes}
    return read_letter(message, "queue", None)


@given(BODIES)
def test_every_message_is_a_letter_that_can_be_shown(body: str) -> None:
    letter = letter_of(body)

    assert all(each.isprintable() for each in letter_text(letter).replace("\n", ""))
    assert json.loads(json.dumps(letter_document(letter)))["id"] == "m"
    assert not letter.is_called("no such id")


@given(st.binary())
def test_every_original_can_be_shown(original: bytes) -> None:
    assert all(each.isprintable() for each in text.shown(original).replace("\n", ""))


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_a_table_has_one_line_for_a_row(row: list[str]) -> None:
    assert text.table(["HEAD"] * len(row), [row]).count("\n") == 1


KEY = ec.generate_private_key(ec.SECP256R1())
moments = st.datetimes(datetime(1951, 1, 1), datetime(2999, 1, 1)).map(  # noqa: DTZ001 -- made aware next
    lambda each: each.replace(microsecond=0, tzinfo=UTC)
)


def pem(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"some text\n-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def signed(start: datetime, end: datetime, name: str) -> x509.Certificate:
    """A certificate that signs itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), 1, start, end)
    return builder.sign(KEY, hashes.SHA256())


@given(moments, st.timedeltas(timedelta(seconds=1), timedelta(days=36_500)), st.text(min_size=1, max_size=16))
def test_it_is_what_another_implementation_wrote(start: datetime, span: timedelta, name: str) -> None:
    end = max((start + span).replace(microsecond=0), start)
    text = signed(start, end, name).public_bytes(serialization.Encoding.PEM).decode()
    assert read_validity(text) == (start, end)


VALID = signed(datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC), "d").public_bytes(
    serialization.Encoding.DER
)


@given(st.one_of(st.text(), st.binary().map(pem)))
def test_other_text_is_refused_by_name(text: str) -> None:
    with contextlib.suppress(ValueError):
        read_validity(text)


@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, len(VALID)))
def test_a_damaged_certificate_is_read_or_refused(at: int, byte: int, cut: int) -> None:
    damaged = (VALID[:at] + bytes([byte]) + VALID[at + 1 :])[:cut]
    with contextlib.suppress(ValueError):
        validity = read_validity(pem(damaged))
        assert validity.start.tzinfo is UTC


PATH = "/-_.~%abc0189"
anything = st.one_of(
    st.binary(max_size=MAX_HEAD_BYTES + 100),
    st.builds(
        bytes.__add__,
        st.sampled_from(
            [b"GET /", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"GET http://a/ HTTP/1.1\r\n"]
        ),
        st.binary(max_size=200).map(lambda tail: tail + b"\r\n\r\n"),
    ),
)


@given(anything)
def test_every_input_is_a_path_or_a_refusal(received: bytes) -> None:
    answer = read_path(received)
    if isinstance(answer, str):
        assert received.startswith(b"GET /")
        assert answer.startswith("/")
        assert "?" not in answer
        assert answer.isascii()
        assert answer.isprintable()
    else:
        assert answer.status in (400, 405)


@given(st.text(PATH, max_size=50), st.text(PATH, max_size=50), st.binary(max_size=300))
def test_a_request_is_understood_whatever_its_headers(path: str, query: str, headers: bytes) -> None:
    received = f"GET /{path}?{query} HTTP/1.1\r\n".encode() + headers + b"\r\n\r\n"
    assert is_complete(received)
    assert read_path(received) == f"/{path}"


@given(st.binary(max_size=MAX_HEAD_BYTES), st.integers(0, MAX_HEAD_BYTES))
def test_reading_in_pieces_comes_to_the_same_end(received: bytes, cut: int) -> None:
    """What was complete stays so, however much follows; no more than the limit is waited for."""
    assert not is_complete(received[:cut]) or is_complete(received)
    assert is_complete(received.ljust(MAX_HEAD_BYTES + 1))


@given(st.text(), st.sampled_from([200, 400, 404, 405, 503]))
def test_a_body_is_as_long_as_it_says(body: str, status: int) -> None:
    head, _, sent = HealthResponse(status, body).encode().partition(b"\r\n\r\n")
    assert f"Content-Length: {len(sent)}".encode() in head.split(b"\r\n")
    assert sent.decode("utf-8") == body.encode("utf-8", "replace").decode()


Cut = tuple[int, int, bytes]
"""Where bytes are left out, how many, and what is there instead."""

CUTS = st.lists(
    st.tuples(st.integers(0, 30_000), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4
)


def changed(raw: bytes, cuts: list[Cut]) -> bytes:
    for at, length, new in cuts:
        place = at % (len(raw) + 1)
        raw = raw[:place] + new + raw[place + length :]
    return raw


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str) -> None:
    assert {TARGETS[name](seed) for seed in seeds(name)} & {ACCEPTED, "recovered"}


@pytest.mark.source("P-W4")
@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_bytes_are_read_or_refused_by_name(name: str, data: st.DataObject) -> None:
    nearly_good = st.builds(changed, st.sampled_from([*seeds(name)]), CUTS)
    assert TARGETS[name](data.draw(st.binary(max_size=200) | nearly_good))


NAMES = """Entries MessageBody MessageAttributes StringValue DelaySeconds VisibilityTimeout WaitTimeSeconds
    Attributes MaxNumberOfMessages RedrivePolicy MessageRetentionPeriod RequestItems Keys TransactItems Item
    logEvents message"""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("[]"),
    lambda each: (
        st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(NAMES.split()), each, max_size=3)
    ),
)


async def taken(*_: Any) -> str:
    return "taken"


@given(
    st.sampled_from([each.split() for each in MEASURES if each.split()[0] in ("sqs", "dynamodb", "logs")]),
    values.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=4),
)
@example(["sqs", "SendMessage"], b"{")
@example(["sqs", "SendMessage"], b"[" * 100_000)
@example(["sqs", "SendMessage"], b'{"MessageBody": 5}')
@example(["sqs", "ReceiveMessage"], b'{"VisibilityTimeout": Infinity}')
@example(["sqs", "DeleteMessageBatch"], b'{"Entries": "ab"}')
@example(["sqs", "SetQueueAttributes"], b'{"Attributes": {"RedrivePolicy": "{"}}')
@example(["dynamodb", "PutItem"], b'{"Item": {"p": {}}}')
@example(["dynamodb", "PutItem"], b"{}")
def test_a_malformed_request_is_answered_as_aws_does(named: list[str], body: bytes) -> None:
    service, operation = named
    headers = {"x-amz-target": f"Service.{operation}"}
    answer = asyncio.run(within_rules(service, taken)("POST", "/", headers, body, {}))
    if answer == "taken":
        assert isinstance(json.loads(body or b"{}"), dict)
    else:
        status, sent, text = answer
        code = json.loads(text)["__type"]
        assert (status, sent["x-amzn-errortype"]) == (400, code)
