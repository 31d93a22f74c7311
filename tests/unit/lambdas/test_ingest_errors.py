"""What becomes of a publish that a rule could not hand to a queue, and of what is no such thing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.batch import pack, unpack
from eventplane.ingest import parse_frame
from eventplane.sender import PLANE_CLIENT
from lambdas.archive import ingest_errors as handler
from lambdas.archive.ingest_errors import (
    RESERVE_MS,
    SOURCE,
    IngestErrorsService,
    NoFailureError,
    parse_failure,
)
from lambdas.common.queue_function import queue_function
from lambdas.common.redelivery import Redelivery
from lambdas.common.sqs import SqsSender
from tests.rule_failure import rule_failure
from tests.unit.lambdas.support import (
    NOW_MS,
    Cloud,
    LambdaContext,
    Unwilling,
    event,
    invocation,
    message,
    sqs_event,
)

PAYLOAD = pack([event("1"), event("2")])


def failure(*resources: str, **members: Any) -> str:
    return rule_failure(PAYLOAD, *resources, **members)


@pytest.fixture
def ways_in(cloud: Cloud) -> dict[str, str]:
    names = ("ingest", "ingest-urgent", "tap")
    return {name: cloud.sqs.create_queue(QueueName=name)["QueueUrl"] for name in names}


@pytest.fixture
def make(cloud: Cloud, ways_in: dict[str, str]) -> Callable[..., IngestErrorsService]:
    def make(sqs: Any = None) -> IngestErrorsService:
        return IngestErrorsService(
            ways_in=tuple(ways_in.values()),
            letters_to=(ways_in["ingest"], ways_in["tap"]),
            channel="device.outbox",
            contract_version="c0ffee",
            sender=SqsSender(sqs or cloud.sqs),
            clock=lambda: NOW_MS,
        )

    return make


def received(cloud: Cloud, ways_in: dict[str, str]) -> dict[str, list[str]]:
    taken = {
        name: cloud.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for name, url in ways_in.items()
    }
    return {name: [each["Body"] for each in messages] for name, messages in taken.items() if messages}


@pytest.mark.parametrize("missed", [["ingest"], ["tap"], ["ingest-urgent"], ["ingest", "tap"]])
@pytest.mark.parametrize("form", ["{url}", "arn:aws:sqs:us-east-1:123456789012:{name}", "{name}"])
def test_exactly_the_queues_that_missed_it_get_the_frame(
    cloud: Cloud,
    ways_in: dict[str, str],
    make: Callable[..., IngestErrorsService],
    missed: list[str],
    form: str,
) -> None:
    body = failure(*(form.format(url=ways_in[name], name=name) for name in missed))
    assert make().process([message("m1", body)], invocation()) == frozenset()

    found = received(cloud, ways_in)
    assert sorted(found) == sorted(missed)
    for (text,) in found.values():
        frame = parse_frame(text)
        assert (frame.payload, frame.topic, frame.client_id) == (PAYLOAD, "devices/home-1/outbox", "home-1")
        assert frame.accepted_at_ms == NOW_MS - 500


@pytest.mark.parametrize("resources", [[], ["elsewhere"], ["", "tap"]])
def test_what_failed_nobody_knows_where_goes_to_router_and_tap(
    cloud: Cloud, ways_in: dict[str, str], make: Callable[..., IngestErrorsService], resources: list[str]
) -> None:
    assert make().process([message("m1", failure(*resources))], invocation()) == frozenset()
    assert sorted(received(cloud, ways_in)) == ["ingest", "tap"]


@pytest.mark.parametrize(
    "body",
    [
        "no json",
        "[]",
        "{}",
        failure("x", base64OriginalPayload="?"),
        failure("x", base64OriginalPayload=None),
        failure("x", topic=7),
        failure("x", failures="none"),
        failure("x", failures=[1]),
    ],
)
def test_what_is_no_failure_is_a_dead_letter_that_takes_the_way_of_all_events(
    cloud: Cloud, ways_in: dict[str, str], make: Callable[..., IngestErrorsService], body: str
) -> None:
    assert make().process([message("m1", body, attempt=2)], invocation()) == frozenset()

    found = received(cloud, ways_in)
    assert found["ingest"] == found["tap"]
    assert set(found) == {"ingest", "tap"}
    frame = parse_frame(found["ingest"][0])
    (letter,) = unpack(frame.payload)
    assert not isinstance(letter, tuple)
    assert (letter.source, letter.id, frame.client_id) == (SOURCE, "m1", SOURCE)
    data = letter.data()
    assert (data["reason"], data["channel"], data["attempt"]) == ("bad_rule_failure", "device.outbox", 2)
    assert base64.b64decode(data["original_base64"]).decode() == body


def test_no_failure_of_a_rule_speaks_for_the_plane(
    cloud: Cloud, ways_in: dict[str, str], make: Callable[..., IngestErrorsService]
) -> None:
    forged = failure(ways_in["ingest"], clientId=PLANE_CLIENT)
    assert make().process([message("m1", forged)], invocation()) == frozenset()
    (body,) = received(cloud, ways_in)["ingest"]
    (item,) = parse_frame(body).items()
    assert item.event is not None
    assert item.event.attributes["deadletterreason"] == "bad_rule_failure"
    assert "sender" in item.event.data()
    assert item.event.data()["sender"] is None, "nobody vouches for what it says"


def test_a_queue_that_refuses_fails_only_its_own(
    cloud: Cloud, ways_in: dict[str, str], make: Callable[..., IngestErrorsService]
) -> None:
    unwilling = Unwilling(cloud.sqs, "send_message_batch", queue_urls={ways_in["tap"]})
    messages = [message("m1", failure("ingest")), message("m2", failure("tap")), message("m3", "no json")]
    assert make(unwilling).process(messages, invocation()) == {"m2", "m3"}
    assert len(received(cloud, ways_in)["ingest"]) == 2


def test_without_time_everything_comes_again(make: Callable[..., IngestErrorsService]) -> None:
    assert make().process([message("m1", failure("tap"))], invocation(RESERVE_MS - 1)) == {"m1"}


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps))
def test_whatever_comes_is_a_failure_or_is_named_none(body: str) -> None:
    with pytest.raises(NoFailureError, match="see who else writes"):
        parse_failure(body)


@given(st.binary())
def test_the_payload_comes_back_byte_for_byte(payload: bytes) -> None:
    assert parse_failure(rule_failure(payload, "x")).payload == payload


def test_the_handler_is_wired_by_its_environment(
    cloud: Cloud, ways_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "EVENTPLANE_SOURCE_QUEUE": cloud.source,
        "EVENTPLANE_WAYS_IN": json.dumps(list(ways_in.values())),
        "EVENTPLANE_LETTERS_TO": json.dumps([ways_in["ingest"], ways_in["tap"]]),
        "EVENTPLANE_SOURCE": "device.outbox",
        "EVENTPLANE_CONTRACT": "c0ffee",
        "POWERTOOLS_SERVICE_NAME": "function",
    }.items():
        monkeypatch.setenv(name, value)
    cloud.sqs.delete_queue(QueueUrl=ways_in["tap"])
    waits: list[str] = []
    monkeypatch.setattr(Redelivery, "_delay", lambda _, batch, *_failed: waits.extend(m.id for m in batch))
    batch = sqs_event(message("m1", failure("ingest")), message("m2", failure("tap")))
    assert queue_function(handler.service)(batch, LambdaContext()) == {
        "batchItemFailures": [{"itemIdentifier": "m2"}]
    }
    assert waits == ["m2"]
    assert cloud.sqs.receive_message(QueueUrl=ways_in["ingest"])["Messages"]
