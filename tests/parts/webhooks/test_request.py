"""An event as a signed HTTP request, read again by the official SDK and the receiver's example; its keys."""

import base64
import json
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import value_problem
from eventplane.contract import WebhookMode
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from parts.webhooks import receiver
from parts.webhooks.request import Posted, to_request
from parts.webhooks.signing import KEEP_MS, SigningKeyError, SigningKeys, signature_headers
from tests.fakes.aws import FakeAws
from tests.fakes.faults import FailingClient

NOW_S = 1_767_225_600
OLD, NEW, OTHER = (letter * 64 for letter in "abc")
"""Keys as Secrets Manager makes them: letters and digits that are base64."""

FULL: dict[str, Any] = {
    "specversion": "1.0",
    "id": 'A-7 é%"',
    "source": "/homes/1/voice",
    "type": "org.example.ring.v1",
    "time": "2026-01-01T00:00:00.123456789+01:00",
    "subject": "Küche",
    "urgent": True,
    "severitynumber": 21,
}


def signed(request: Posted, *keys: str) -> dict[str, str]:
    raw = [base64.b64decode(key) for key in keys]
    return {**request.headers, **signature_headers(raw, request.id, NOW_S, request.body)}


def test_structured_mode_sends_the_event_s_exact_text() -> None:
    text = '{ "type":"a","id":"1","source":"/s", "time":"2026-01-01T00:00:00.123456789Z","specversion":"1.0",'
    text += ' "data": {"b": 1.0, "a": 1e2} }'
    request = to_request(parse_event(text), WebhookMode.STRUCTURED)
    assert request.body == text.encode()
    assert request.headers == {"content-type": "application/cloudevents+json"}
    event = from_http_event(HTTPMessage(dict(request.headers), request.body))
    assert (event.get_id(), event.get_data()) == ("1", {"b": 1.0, "a": 100.0})


def test_binary_mode_sends_headers() -> None:
    text = json.dumps(FULL)[:-1] + ', "data":{"b": 1.0}}'
    request = to_request(parse_event(text), WebhookMode.BINARY)
    assert request.body == b'{"b": 1.0}'
    assert request.headers == {
        "ce-specversion": "1.0",
        "ce-id": "A-7%20%C3%A9%25%22",
        "ce-source": "/homes/1/voice",
        "ce-type": "org.example.ring.v1",
        # All nine digits of the producer.
        "ce-time": "2026-01-01T00:00:00.123456789+01:00",
        "ce-subject": "K%C3%BCche",
        "ce-urgent": "true",
        "ce-severitynumber": "21",
        "content-type": "application/json",
    }
    event = from_http_event(HTTPMessage(dict(request.headers), request.body))
    assert (event.get_id(), event.get_subject()) == (FULL["id"], FULL["subject"])


@pytest.mark.parametrize(
    ("members", "content_type", "body"),
    [
        (
            {"data_base64": "AP8=", "datacontenttype": "application/octet-stream"},
            "application/octet-stream",
            b"\0\xff",
        ),
        (
            {"data": "hé", "datacontenttype": "text/plain; charset=utf-8"},
            "text/plain; charset=utf-8",
            "hé".encode(),
        ),
        ({"data": "x"}, "application/json", b' "x"'),
        *(
            ({"data": data, "datacontenttype": content_type}, content_type, body)
            for content_type, data, body in (
                ("text/plain; charset=iso-8859-1", "Küche", b"K\xfcche"),
                ('text/plain;CHARSET="windows-1252"', "5 €", b"5 \x80"),
                ("text/plain; charset=utf-16le", "ü", b"\xfc\0"),
                ("text/html; charset=us-ascii", "abc", b"abc"),
                ('text/plain; title="; charset=utf-16"', "ü", "ü".encode()),
                ("application/json; charset=utf-16be", "a", b' "a"'),
                ("application/x+json; charset=utf-16", "a", b' "a"'),
                (
                    "application/xml",
                    "<?xml version='1.0' encoding='latin-1'?><a>ü</a>",
                    b"<?xml version='1.0' encoding='latin-1'?><a>\xfc</a>",
                ),
                (
                    "text/plain",
                    "<?xml version='1.0' encoding='latin-1'?>ü",
                    b"<?xml version='1.0' encoding='latin-1'?>\xc3\xbc",
                ),
            )
        ),
        (
            {"data_base64": "/w==", "datacontenttype": "text/plain; charset=utf-8"},
            "text/plain; charset=utf-8",
            b"\xff",
        ),
    ],
)
def test_data_is_kept_in_binary_mode(members: dict[str, Any], content_type: str | None, body: bytes) -> None:
    request = to_request(parse_event(json.dumps({**FULL, **members})), WebhookMode.BINARY)
    assert (request.headers.get("content-type"), request.body) == (content_type, body)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"data": {"a": 1}, "datacontenttype": "text/plain"}, "data_not_text"),
        ({"data": "x", "datacontenttype": 'text/plain; charset="é"'}, "attribute_value"),
        *(
            ({"data": "5 €", "datacontenttype": f"text/plain; charset={charset}"}, "charset")
            for charset in ("iso-8859-1", "us-ascii", "x-unknown", "idna", "base64", "unicode_escape")
        ),
    ],
)
def test_binary_mode_refuses_what_does_not_fit_a_header(members: dict[str, Any], reason: str) -> None:
    event = parse_event(json.dumps({**FULL, **members}))
    with pytest.raises(EnvelopeError) as caught:
        to_request(event, WebhookMode.BINARY)
    assert caught.value.reason == reason
    assert to_request(event, WebhookMode.STRUCTURED).body == event.json.encode()


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"datacontenttype": "text/plain", "data": ""},
        {"datacontenttype": "application/cloudevents+json", "data": {**FULL, "source": "/other"}},
        {"datacontenttype": "Application/CloudEvents-Batch+JSON; charset=utf-8", "data": [FULL]},
        {"datacontenttype": "application/cloudevents+avro", "data_base64": "AP8="},
    ],
)
def test_an_event_without_data_is_sent_structured(members: dict[str, Any]) -> None:
    """A receiver would take a body of such a type for the event, with whatever source it names."""
    event = parse_event(json.dumps({**FULL, **members}))
    assert to_request(event, WebhookMode.BINARY) == to_request(event, WebhookMode.STRUCTURED)


TEXTS = st.text(min_size=1).filter(lambda text: value_problem("id", text) is None)


@given(id=TEXTS, subject=TEXTS, data=st.binary(max_size=50), mode=st.sampled_from(WebhookMode))
def test_events_survive_with_ascii_headers(id: str, subject: str, data: bytes, mode: WebhookMode) -> None:
    attributes: dict[str, Any] = {
        "specversion": "1.0",
        "id": id,
        "source": "/s",
        "type": "t",
        "subject": subject,
    }
    attributes |= {"datacontenttype": "application/x-bytes", "data_base64": base64.b64encode(data).decode()}
    event = parse_event(json.dumps(attributes))
    request = to_request(event, mode)
    assert all(value.isascii() and value.isprintable() for value in request.headers.values())
    again = from_http_event(HTTPMessage(dict(request.headers), request.body))
    assert (again.get_id(), again.get_subject()) == (id, subject)
    assert receiver.is_genuine([NEW], signed(request, NEW), request.body, NOW_S)


@pytest.fixture(params=WebhookMode)
def mode(request: pytest.FixtureRequest) -> WebhookMode:
    return request.param


@pytest.fixture
def event() -> Envelope:
    return write_event({"id": "1", "source": "/s", "type": "org.example.ring.v1"}, {"door": "front"})


@pytest.mark.parametrize(
    ("signers", "keys", "changes", "age_s", "is_genuine"),
    [
        # During a rotation any key of both sides is enough.
        ([NEW, OLD], [OLD], {}, 0, True),
        ([NEW, OLD], [NEW], {}, 0, True),
        ([NEW, OLD], [OTHER, NEW], {}, 0, True),
        ([OLD], [NEW, OLD], {}, 0, True),
        ([NEW, OLD], [OTHER], {}, 0, False),
        # A proxy may add headers of its own.
        ([NEW], [NEW], {"via": "1.1 proxy"}, 0, True),
        *(
            ([NEW], [NEW], {f"webhook-{name}": change}, 0, False)
            for name in ("id", "timestamp", "signature")
            for change in ("0", None)
        ),
        # A late request may be a replay.
        *(([NEW], [NEW], {}, age_s, abs(age_s) <= 300) for age_s in (300, -300, 301, -301)),
    ],
)
def test_a_receiver_verifies_keys_headers_and_time(
    event: Envelope,
    mode: WebhookMode,
    signers: list[str],
    keys: list[str],
    changes: dict[str, str | None],
    age_s: int,
    is_genuine: bool,
) -> None:
    """Each of `changes` is appended to a header, or removes it."""
    request = to_request(event, mode)
    headers = signed(request, *signers)
    for name, more in changes.items():
        value = headers.pop(name, "")
        if more is not None:
            headers[name] = value + more
    assert receiver.is_genuine(keys, headers, request.body, NOW_S + age_s) is is_genuine
    assert not receiver.is_genuine(keys, headers, request.body + b" ", NOW_S + age_s)


def test_in_binary_mode_attributes_are_signed(event: Envelope) -> None:
    request = to_request(event, WebhookMode.BINARY)
    headers = signed(request, NEW)
    for changed in (
        {"ce-type": "org.example.silence.v1"},
        {"ce-subject": "new"},
        {"content-type": "text/plain"},
    ):
        assert not receiver.is_genuine([NEW], {**headers, **changed}, request.body, NOW_S)


def test_every_attempt_has_the_id_of_its_event(mode: WebhookMode) -> None:
    def id_of(**changed: str) -> str:
        attributes = {"id": "1", "source": "/s", "type": "t", **changed}
        return to_request(write_event(attributes, 1), mode).id

    assert id_of() == id_of()
    assert len({id_of(), id_of(id="2"), id_of(source="/s2")}) == 3


def test_a_signature_is_that_of_standard_webhooks() -> None:
    # The published example of the specification's libraries.
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


SECRET = "webhook"
FIRST, SECOND, THIRD = ("1" * 64, "2" * 64, "whsec_" + "3" * 64)


def raw(*keys: str) -> tuple[bytes, ...]:
    return tuple(base64.b64decode(key.removeprefix("whsec_")) for key in keys)


def test_after_a_rotation_both_keys_sign(fake_aws: FakeAws) -> None:
    fake_aws.secrets.create_secret(Name=SECRET, SecretString=FIRST)
    keys = SigningKeys(fake_aws.secrets, SECRET, fake_aws.clock)
    assert keys.get() == raw(FIRST)
    fake_aws.secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    fake_aws.clock.now_ms += KEEP_MS - 1
    assert keys.get() == raw(FIRST)
    fake_aws.clock.now_ms += 1
    assert keys.get() == raw(SECOND, FIRST)
    fake_aws.secrets.put_secret_value(SecretId=SECRET, SecretString=THIRD)
    fake_aws.clock.now_ms += KEEP_MS
    assert keys.get() == raw(THIRD, SECOND)


def test_known_keys_are_used_while_secrets_manager_fails(fake_aws: FakeAws) -> None:
    fake_aws.secrets.create_secret(Name=SECRET, SecretString=FIRST)
    client = FailingClient(fake_aws.secrets, targets=())
    keys = SigningKeys(client, SECRET, fake_aws.clock)
    keys.get()
    client.targets = {""}
    fake_aws.clock.now_ms += KEEP_MS
    assert keys.get() == raw(FIRST)
    # It is read again only after the interval, also when it is back.
    client.end()
    fake_aws.secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    assert keys.get() == raw(FIRST)
    fake_aws.clock.now_ms += KEEP_MS
    assert keys.get() == raw(SECOND, FIRST)


@pytest.mark.parametrize("value", [None, "x", "short", "c2hvcnQ=", "not base64!" * 8])
def test_a_missing_or_malformed_key_is_refused(fake_aws: FakeAws, value: str | None) -> None:
    if value is not None:
        fake_aws.secrets.create_secret(Name=SECRET, SecretString=value)
    with pytest.raises(SigningKeyError, match="no version of it is a key"):
        SigningKeys(fake_aws.secrets, SECRET, fake_aws.clock).get()
    unreadable = FailingClient(fake_aws.secrets, code="AccessDenied")
    expected = r"secret webhook: it could not be read .* put a key of 24 bytes"
    with pytest.raises(SigningKeyError, match=expected):
        SigningKeys(unreadable, SECRET, fake_aws.clock).get()


def test_a_malformed_new_key_leaves_the_previous_one_in_use(fake_aws: FakeAws) -> None:
    fake_aws.secrets.create_secret(Name=SECRET, SecretString=FIRST)
    fake_aws.secrets.put_secret_value(SecretId=SECRET, SecretString="oops")
    assert SigningKeys(fake_aws.secrets, SECRET, fake_aws.clock).get() == raw(FIRST)
