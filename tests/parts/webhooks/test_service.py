"""The webhook function: deliveries to an endpoint on this machine, with AWS in memory."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event
from eventplane.settings import SettingsError
from eventplane.sqs_binding import pack
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import queue_function
from parts.webhooks import receiver
from parts.webhooks import webhook as handler
from parts.webhooks.delivery import RESERVE_MS, Posting
from parts.webhooks.endpoint_state import BREAK_FIRST_S
from tests.endpoint import EndpointServer, Play, answer, says
from tests.fakes.faults import FailingClient
from tests.parts.webhooks.conftest import KEY, SOURCE, TIMEOUT_S, Hook, alarm
from tests.parts.webhooks.test_request import NOW_S
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READ,
    LambdaContext,
    event,
    failures,
    figures,
    invocation,
    message,
    sqs_event,
)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def delivered(
    hook: Hook,
    *messages: QueueMessage,
    plays: tuple[Play, ...] = (),
    remaining_ms: int = 60_000,
    **webhook: Any,
) -> tuple[frozenset[str], EndpointServer]:
    with EndpointServer(*plays) as server:
        service = hook.service(server.url(), **webhook)
        hook.waits = service.process(messages, invocation(remaining_ms, "i1"))
        hook.endpoint.close()
    return frozenset(hook.waits), server


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_events_are_delivered_signed(hook: Hook, mode: str) -> None:
    failed, server = delivered(hook, alarm("1"), alarm("2"), mode=mode)
    assert (failed, len(server.received), server.connections) == (frozenset(), 2, 1)
    request = server.received[0]
    assert request.method == "POST"
    assert request.headers["webhook-request-origin"] == "plane.example"
    if mode == "structured":
        assert request.body.decode() == event("1", ALARM).json
    else:
        assert (request.headers["ce-id"], json.loads(request.body)) == ("1", READ)
    assert receiver.is_genuine([KEY], request.headers, request.body, NOW_S)
    assert hook.outcomes() == [(id, "delivered", None, 204) for id in "12"]
    line = hook.cloud.lines("handovers/")[0]
    assert (line["channel"], line["type"], line["attempt"]) == (SOURCE, ALARM, 1)
    assert not hook.letters()


def test_a_refused_event_is_a_letter(hook: Hook) -> None:
    for _ in range(2):
        failed, _ = delivered(hook, alarm("1"), alarm("2"), plays=(answer(400, b"no such site"),))
        assert not failed
    assert hook.outcomes() == [("1", "dead_lettered", "endpoint_refused", 400), ("2", "delivered", None, 204)]
    letter, again = map(parse_event, hook.cloud.bodies("outbox"))
    assert letter.key == again.key, "an id that repeats"
    assert (letter.source, letter.type) == ("/eventplane/cloud/webhook/alarm-centre", DEAD_LETTER_TYPE)
    expected = {"detail": "HTTP 400 Words: no such site", "channel": SOURCE, "attempt": 1}
    assert letter.data() == {**letter.data(), "reason": "endpoint_refused", **expected}


@pytest.mark.parametrize(
    ("play", "wait_s"),
    [
        (answer(429, retry_after="30"), 31),
        (answer(503, retry_after="Thu, 01 Jan 2026 00:01:00 GMT"), 61),
        (answer(503), 3),
        (answer(429, retry_after="86400"), 901),
        (answer(410), 3_601),
        (says(b""), 3),
    ],
)
def test_a_busy_endpoint_gets_one_request(hook: Hook, play: Play, wait_s: int) -> None:
    failed, server = delivered(hook, alarm("1"), alarm("2"), alarm("3"), plays=(play,))
    assert failed == {"m1", "m2", "m3"}
    assert len(server.received) == 1
    assert hook.waits == {"m1": wait_s, "m2": wait_s, "m3": wait_s}
    assert not hook.outcomes()


def test_processes_share_a_pause(hook: Hook) -> None:
    with EndpointServer(answer(204), answer(204), answer(429, retry_after="30"), answer(204)) as server:
        processes = [hook.service(server.url()) for _ in range(2)]

        def sent(at: int, id: str) -> dict[str, int]:
            return processes[at].process([alarm(id)], invocation(60_000, f"i{id}"))

        assert [sent(0, "1"), sent(1, "2"), sent(0, "3"), sent(1, "4")] == [{}, {}, {"m3": 31}, {"m4": 31}]
        assert len(server.received) == 3
        hook.cloud.clock.advance(30)
        assert [sent(1, "4"), sent(0, "3")] == [{}, {}]
        for each in processes:
            each.delivery.endpoint.close()
    assert hook.outcomes() == [(id, "delivered", None, 204) for id in "1234"]


@pytest.mark.lost_answers
def test_an_event_that_failed_for_too_long_is_a_dead_letter(hook: Hook) -> None:
    failed, _ = delivered(
        hook,
        alarm("1", attempt=9, age_s=599),
        alarm("2", attempt=9, age_s=600),
        plays=(answer(500), answer(500)),
    )
    assert failed == {"m1"}
    # The last attempt is when the age is reached.
    assert hook.waits == {"m1": 1}
    assert hook.outcomes() == [("2", "dead_lettered", "endpoint_failed", 500)]
    (letter,) = hook.letters()
    assert (letter["attempt"], letter["reason"]) == (9, "endpoint_failed")


def test_each_redrive_has_its_letter(hook: Hook) -> None:
    marks = (None, "run-1.letter-1", "run-2.letter-1", "run-3.letter-2")
    sent = [replace(alarm("1"), redrive=mark) for mark in marks]
    _, server = delivered(hook, *sent, plays=(answer(400),) * len(sent))
    assert len(server.received) == len(sent)
    ids = [parse_event(body).id for body in hook.cloud.bodies("outbox")]
    assert ids == [ids[0], f"{ids[0]}.letter-1", f"{ids[0]}.letter-1", f"{ids[0]}.letter-2"]


def test_the_last_reception_that_sqs_counts_is_the_last_attempt(hook: Hook) -> None:
    late = alarm("3", attempt=1_000, age_s=9_999)
    plays = (answer(500), answer(500), answer(204))
    assert delivered(hook, alarm("1", attempt=999), alarm("2", attempt=1_000), late, plays=plays)[0] == {"m1"}
    assert hook.outcomes() == [("2", "dead_lettered", "endpoint_failed", 500), ("3", "delivered", None, 204)]


def test_an_event_at_best_effort_is_tried_once_and_dropped(hook: Hook) -> None:
    once = replace(alarm("1"), is_best_effort=True)
    assert delivered(hook, once, plays=(answer(500),))[0] == frozenset()
    assert (hook.outcomes(), hook.letters()) == ([("1", "dropped", "endpoint_failed", 500)], [])


def test_an_expired_event_is_recorded_and_not_delivered(hook: Hook) -> None:
    over = alarm("3", expirytime="2025-12-31T23:59:59Z")
    failed, server = delivered(hook, alarm("1", age_s=59), alarm("2", age_s=60), over, expiry_s=60)
    assert not failed
    assert [parse_event(each.body).id for each in server.received] == ["1"]
    assert hook.outcomes() == [
        ("1", "delivered", None, 204),
        ("2", "expired", "channel_expiry", None),
        ("3", "expired", "expirytime", None),
    ]


@pytest.mark.parametrize(("ahead_ms", "attempt"), [(0, 1), (840_000, 1), (840_000, 2), (-840_000, 1)])
def test_a_webhook_counts_from_the_arrival(hook: Hook, ahead_ms: int, attempt: int) -> None:
    clock = {"time": "1970-01-01T00:00:12Z", "expirytime": "1970-01-01T00:10:12Z"}
    left, none_left = (timestamp_of_ms(NOW_MS + ms) for ms in (1, 0))
    given = [
        alarm("1", attempt, age_s=599, **clock),
        alarm("2", attempt, age_s=600, **clock),
        alarm("3", attempt, deliverby=left, **clock),
        alarm("4", attempt, deliverby=none_left, **clock),
    ]
    hook.cloud.clock.now_ms = NOW_MS + ahead_ms
    delivered(hook, *(replace(each, received_at_ms=NOW_MS) for each in given))
    ends = [(id, outcome) for id, outcome, *_ in hook.outcomes()]
    assert ends == [("1", "delivered"), ("2", "expired"), ("3", "delivered"), ("4", "expired")]


@pytest.mark.parametrize(
    ("body", "id", "reason"),
    [
        ('{"id": 1}', "", "attribute_value"),
        ("H4sI", "", "not_json"),
        (event("1", ALARM, datacontenttype="text/plain").json, "1", "data_not_text"),
    ],
    ids=["no event", "no pack", "not in binary"],
)
def test_a_malformed_message_is_a_letter(hook: Hook, body: str, id: str, reason: str) -> None:
    failed, server = delivered(hook, message("m1", body), mode="binary")
    assert (failed, server.received) == (frozenset(), [])
    (letter,) = hook.letters()
    assert (letter["reason"], letter["original_bytes"]) == (reason, len(body))
    assert hook.outcomes() == [(id, "dead_lettered", reason, None)]


def test_a_refused_letter_has_a_last_resort(hook: Hook) -> None:
    letter = event("1", DEAD_LETTER_TYPE)
    failed, _ = delivered(hook, message("m1", letter.json), plays=(answer(400),))
    assert not failed
    assert not hook.letters()
    assert hook.cloud.bodies("last-resort") == [letter.json]


@pytest.mark.parametrize(
    ("service", "method", "play", "waits", "outcomes", "logged"),
    [
        # A dead letter that no queue takes keeps the event.
        ("sqs", "send_message_batch", answer(400), {"m1": 1}, [("2", "delivered", None, 204)], []),
        # A record that cannot be written redelivers no event, and is in the log.
        ("s3", "put_object", answer(204), {}, [], ["1", "2"]),
        # Without a key nothing is sent.
        ("secretsmanager", "*", None, {"m1": 1, "m2": 1}, [], []),
    ],
)
def test_a_failing_aws_service_loses_no_event(
    hook: Hook,
    caplog: pytest.LogCaptureFixture,
    service: str,
    method: str,
    play: Play | None,
    waits: dict[str, int],
    outcomes: list[Any],
    logged: list[str],
) -> None:
    aws = hook.cloud.aws
    clients = {"sqs": aws.sqs, "s3": aws.s3, "secretsmanager": aws.secrets}
    aws.others[service] = FailingClient(clients[service], method)
    _, server = delivered(hook, alarm("1"), alarm("2"), plays=(play,) if play else ())
    assert (hook.waits, hook.outcomes()) == (waits, outcomes)
    assert [json.loads(each.record)["id"] for each in caplog.records if hasattr(each, "record")] == logged
    assert len(server.received) == (2 if play else 0)


def test_failures_are_logged_less_often(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    for attempt in (1, 2, 3, 4):
        delivered(hook, alarm("1", attempt=attempt, age_s=attempt - 1), plays=(answer(500),))
    logged = [
        each for each in caplog.records if each.message == "not delivered" and each.levelname == "WARNING"
    ]
    assert [(each.attempt, each.given_up_in_s) for each in logged] == [(1, 600), (2, 599), (4, 597)]
    assert all(each.again_in_s >= 1 and each.event_id == "1" for each in logged)


def test_no_attempt_begins_without_time_for_its_timeout(hook: Hook) -> None:
    needed = RESERVE_MS + 1_000 * TIMEOUT_S
    failed, server = delivered(hook, alarm("1", attempt=50, age_s=9_999), remaining_ms=needed - 1)
    assert failed == {"m1"}
    assert not server.received
    # It was not tried, so it did not fail: it is redelivered at once, at any age.
    assert hook.waits == {"m1": 1}
    assert not delivered(hook, alarm("1"), remaining_ms=needed)[0]


def test_ending_packs_leaves_time_to_answer(hook: Hook) -> None:
    """An endpoint that is down for longer than `give_up_after_s`: each event costs a dead letter."""
    left_ms = [60_000]
    with EndpointServer(answer(503)) as server:
        service = hook.service(server.url())
        refuse = service.letters.refuse

        def slowly(*given: Any) -> bool:
            left_ms[0] -= 10_000
            return refuse(*given)

        letters = Mock(wraps=service.letters, refuse=slowly, channel=service.letters.channel)
        letters.contract = service.letters.contract
        late = [
            replace(packed(*(f"{at}-{number}" for number in range(3)), attempt=2), id=f"m{at}", sent_at_ms=0)
            for at in range(4)
        ]
        again = replace(service, letters=letters).process(late, Invocation("i1", lambda: left_ms[0]))
        hook.endpoint.close()
    assert {"m2", "m3"} <= again.keys()
    assert left_ms[0] >= RESERVE_MS - 10_000
    assert len(hook.outcomes()) == len(hook.letters()) == (60_000 - left_ms[0]) // 10_000 > 0


def test_the_rate_is_kept_and_events_beyond_the_invocation_wait(hook: Hook) -> None:
    failed, server = delivered(hook, alarm("1"), alarm("2"), alarm("3"), requests_per_minute=60)
    assert not failed
    assert len(server.received) == 3
    assert hook.slept == [2.0, 2.0]
    failed, server = delivered(hook, alarm("4"), alarm("5"), requests_per_minute=2)
    assert failed == {"m5"}
    assert hook.waits == {"m5": 60}


@pytest.mark.parametrize("is_ordered", [True, False])
def test_no_event_overtakes_in_order(hook: Hook, is_ordered: bool) -> None:
    failed, server = delivered(
        hook,
        alarm("1", group="a"),
        alarm("2", group="b"),
        alarm("3", group="a"),
        alarm("4", group="b"),
        plays=(answer(500),),
        is_ordered=is_ordered,
    )
    assert failed == ({"m1", "m3"} if is_ordered else {"m1"})
    assert [parse_event(each.body).id for each in server.received] == (
        ["1", "2", "4"] if is_ordered else ["1", "2", "3", "4"]
    )
    assert hook.waits == dict.fromkeys(failed, 1)


def test_a_defect_affects_no_other(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Posting.attempt

    def broken(self: Posting, given: Envelope, remaining_ms: Callable[[], int]) -> Any:
        if given.id == "1":
            raise ZeroDivisionError
        return attempt(self, given, remaining_ms)

    monkeypatch.setattr(Posting, "attempt", broken)
    failed, _ = delivered(hook, alarm("1"), alarm("2"))
    assert failed == {"m1"}
    assert hook.outcomes() == [("2", "delivered", None, 204)]
    # It is not redelivered without end.
    assert not delivered(hook, alarm("1", attempt=2, age_s=600))[0]
    assert hook.letters()[0]["reason"] == "defect"


def test_a_private_address_is_retried(hook: Hook) -> None:
    service = hook.service("https://127.0.0.1/", sinks="internet")
    assert service.process([alarm("1")], invocation(60_000, "i1")).keys() == {"m1"}
    hook.cloud.clock.advance(601)
    again = [replace(alarm("1"), attempt=2)]
    assert service.process(again, invocation(60_000, "i2")) == {}
    (letter,) = hook.letters()
    assert letter["reason"] == "endpoint_forbidden"
    assert "not a public address (loopback)" in letter["detail"]


def packed(*ids: str, attempt: int = 1) -> QueueMessage:
    (body,) = (each.body for each in pack([event(id, ALARM) for id in ids], {"route": "r"}, len(ids)))
    return replace(message("m", body, attempt), receipt="h")


def test_a_pack_comes_again_for_its_failure(hook: Hook) -> None:
    with EndpointServer(answer(204), answer(500), answer(400), answer(502), answer(200)) as server:
        service = hook.service(server.url())
        assert service.process([packed("1", "2", "3")], invocation(60_000, "i1")) == {"m": 1}
        for attempt, waits in ((2, {"m": 1}), (3, {})):
            again = packed("1", "2", "3", attempt=attempt)
            assert service.process([again], invocation(60_000, f"i{attempt}")) == waits
        hook.endpoint.close()
    assert [json.loads(each.body)["id"] for each in server.received] == ["1", "2", "3", "2", "2"]
    assert len({each.headers["webhook-id"] for each in server.received}) == 3
    assert hook.outcomes() == [
        ("1", "delivered", None, 204),
        ("2", "delivered", None, 200),
        ("3", "dead_lettered", "endpoint_refused", 400),
    ]
    (letter,) = hook.letters()
    assert json.loads(base64.b64decode(letter["original_base64"]))["id"] == "3"


def test_the_order_of_attempts_in_a_packed_message_changes(hook: Hook) -> None:
    with EndpointServer(answer(503), answer(204), answer(204), answer(503)) as server:
        # Of the waits after the first attempt, then the places in which the three go into the second.
        places = iter((0, 0, 0, 2, 1, 0))
        service = replace(
            hook.service(server.url()),
            uniform=lambda low, high: high if (low, high) != (0, 1) else next(places, 0),
        )
        service.process([packed("1", "2", "3")], invocation(60_000, "i1"))
        hook.cloud.clock.advance(BREAK_FIRST_S)
        service.process([packed("1", "2", "3", attempt=2)], invocation(60_000, "i2"))
        hook.endpoint.close()
    assert [json.loads(each.body)["id"] for each in server.received] == ["1", "3", "2", "1"]


def test_each_malformed_item_of_a_packed_message_is_a_dead_letter(hook: Hook) -> None:
    body = f'[{{"id":1}},{event("1", ALARM).json},{{"id":2}}]'
    failed, _ = delivered(hook, replace(message("m", body), receipt="h"))
    assert failed == frozenset()
    assert len({parse_event(body).id for body in hook.cloud.bodies("outbox")}) == 2


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("EVENTPLANE_CONCURRENCY", "0", "is malformed .concurrency is 0; give processes"),
        ("EVENTPLANE_SOURCE", "family-app.inbox", "names family-app.inbox, which is no webhook"),
    ],
)
def test_a_wrong_setting_is_named(
    hook: Hook, variable: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} {problem}"):
        hook.service("https://desk.example/")


@pytest.mark.lost_answers
def test_an_invocation_writes_its_figures(
    hook: Hook, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    expired = alarm("3", expirytime="2025-12-31T23:59:59Z", traceparent=TRACE)
    on_a_route = (replace(each, route="urgent-alarms") for each in (alarm("2", traceparent=TRACE), expired))
    batch = sqs_event(alarm("1"), *on_a_route, message("m4", "no event"))
    with EndpointServer(answer(204), answer(500)) as server:
        hook.service(server.url())
        reader = cache(handler.service)
        assert queue_function(reader)(batch, LambdaContext(remaining_ms=60_000)) == failures("m2")
        reader().process.__self__.delivery.endpoint.close()  # type: ignore[attr-defined]
    assert figures(capsys.readouterr().out) == {
        "Messages": 4,
        "Delivered": 1,
        "Retried": 1,
        "Expired": 1,
        "DeadLettered": 1,
    }
    logged = {each["message_id"]: each for each in map(vars, caplog.records) if "reason" in each}
    assert {id: line["reason"] for id, line in logged.items()} == {
        "m2": "endpoint_failed",
        "m3": "expirytime",
        "m4": "not_json",
    }
    for line in (logged["m2"], logged["m3"]):
        assert (line["event_source"], line["event_type"]) == ("/homes/1", ALARM)
        assert (line["traceparent"], line["route"]) == (TRACE, "urgent-alarms")
