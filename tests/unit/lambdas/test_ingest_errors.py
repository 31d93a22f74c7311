"""A publish that a rule could not write to a queue is written there later; anything else is a dead letter."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.batch import pack
from eventplane.ingest import parse_frame
from eventplane.names import PLANE_CLIENT
from eventplane.retries import URGENT_S
from eventplane.topics import urgent_rule
from lambdas.archive import ingest_errors as handler
from lambdas.archive.ingest_errors import (
    RESERVE_MS,
    SOURCE,
    IngestErrorsService,
    NoFailureError,
    parse_failure,
)
from lambdas.common.queue import QueueMessage
from lambdas.common.queue_function import queue_function
from lambdas.common.sqs import SqsSender
from tests.fakes.faults import FailingClient
from tests.fakes.iot import rule_failure
from tests.unit.lambdas.support import (
    NOW_MS,
    Cloud,
    LambdaContext,
    deploy,
    event,
    failures,
    invocation,
    message,
    sqs_event,
)

PAYLOAD = pack([event("1"), event("2")])


def failure(*resources: str, **members: Any) -> str:
    return rule_failure(PAYLOAD, *resources, **members)


class Rules:
    """The queues that the ingest rules write to, by name, and the function that handles their failures."""

    def __init__(self, cloud: Cloud) -> None:
        self.sqs = cloud.sqs
        self.urls = {name: cloud.queue(name) for name in ("ingest", "ingest-urgent", "tap")}

    def process(self, *messages: QueueMessage, sqs: Any = None, remaining_ms: int = 30_000) -> frozenset[str]:
        """Return the ids of the failures that are redelivered."""
        service = IngestErrorsService(
            ways_in=tuple(self.urls.values()),
            letters_to=(self.urls["ingest"], self.urls["tap"]),
            channel="device.outbox",
            contract_version="c0ffee",
            sender=SqsSender(sqs or self.sqs),
            clock=lambda: NOW_MS,
            chance=lambda: 1.0,
        )
        self.waits = service.process(messages, invocation(remaining_ms))
        return frozenset(self.waits)

    def received(self) -> dict[str, list[str]]:
        return {name: found for name, url in self.urls.items() if (found := self.sqs.take(url))}


@pytest.fixture
def rules(cloud: Cloud) -> Rules:
    return Rules(cloud)


@pytest.mark.parametrize("missed", [["ingest"], ["tap"], ["ingest-urgent"], ["ingest", "tap"]])
@pytest.mark.parametrize("form", ["{url}", "arn:aws:sqs:us-east-1:123456789012:{name}", "{name}"])
def test_the_frame_goes_to_the_queues_that_missed_it(rules: Rules, missed: list[str], form: str) -> None:
    body = failure(*(form.format(url=rules.urls[name], name=name) for name in missed))
    assert rules.process(message("m1", body)) == frozenset()

    found = rules.received()
    assert sorted(found) == sorted(missed)
    for (text,) in found.values():
        frame = parse_frame(text)
        assert (frame.payload, frame.topic, frame.client_id) == (PAYLOAD, "devices/home-1/outbox", "home-1")
        assert frame.accepted_at_ms == NOW_MS - 500


@pytest.mark.parametrize("resources", [[], ["elsewhere"], ["", "tap"]])
def test_a_failure_without_a_known_queue_goes_to_router_and_tap(rules: Rules, resources: list[str]) -> None:
    assert rules.process(message("m1", failure(*resources))) == frozenset()
    assert sorted(rules.received()) == ["ingest", "tap"]


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
        failure("ingest", clientId=PLANE_CLIENT),
    ],
)
def test_a_malformed_failure_is_a_dead_letter_for_router_and_tap(rules: Rules, body: str) -> None:
    assert rules.process(message("m1", body, attempt=2)) == frozenset()

    found = rules.received()
    assert (found["ingest"], set(found)) == (found["tap"], {"ingest", "tap"})
    frame = parse_frame(found["ingest"][0])
    ((letter,),) = [frame.items()]
    assert (letter.event.source, letter.event.id, frame.client_id) == (SOURCE, "m1", SOURCE)
    data = letter.event.data()
    assert (data["reason"], data["channel"], data["attempt"]) == ("bad_rule_failure", "device.outbox", 2)
    assert data["sender"] is None, "it has no verified sender"
    assert base64.b64decode(data["original_base64"]).decode() == body


def test_a_refusing_queue_fails_only_its_own_messages(cloud: Cloud, rules: Rules) -> None:
    unwilling = FailingClient(cloud.sqs, "send_message_batch", targets={rules.urls["tap"]})
    messages = [message("m1", failure("ingest")), message("m2", failure("tap")), message("m3", "no json")]
    assert rules.process(*messages, sqs=unwilling) == {"m2", "m3"}
    assert len(rules.received()["ingest"]) == 2


def test_an_urgent_failure_that_fails_again_waits_for_seconds_only(cloud: Cloud, rules: Rules) -> None:
    cloud.sqs.delete_queue(QueueUrl=rules.urls["ingest-urgent"])
    urgent = failure("ingest-urgent", ruleName=urgent_rule("eventplane_dev_ingest"))
    rules.process(message("m1", urgent, attempt=100), message("m2", failure("ingest-urgent"), attempt=100))
    assert 0 < rules.waits["m1"] <= URGENT_S
    assert rules.waits["m2"] == 0


def test_without_time_every_message_is_redelivered(rules: Rules) -> None:
    assert rules.process(message("m1", failure("tap")), remaining_ms=RESERVE_MS - 1) == {"m1"}


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_refused(body: str) -> None:
    with pytest.raises(NoFailureError, match="find out who else writes"):
        parse_failure(body)


@given(st.binary())
def test_the_payload_is_restored_byte_for_byte(payload: bytes) -> None:
    assert parse_failure(rule_failure(payload, "x")).payload == payload


@pytest.mark.lost_answers
def test_the_handler_is_wired_by_its_environment(
    cloud: Cloud, rules: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "SOURCE_QUEUE": cloud.source,
        "WAYS_IN": list(rules.urls.values()),
        "LETTERS_TO": [rules.urls["ingest"], rules.urls["tap"]],
        "SOURCE": "device.outbox",
        "CONTRACT": "c0ffee",
    }
    deploy(monkeypatch, tmp_path, None, settings)
    cloud.sqs.delete_queue(QueueUrl=rules.urls.pop("tap"))
    batch = sqs_event(message("m1", failure("ingest")), message("m2", failure("tap")))
    assert queue_function(handler.service)(batch, LambdaContext()) == failures("m2")
    assert list(rules.received()) == ["ingest"]
