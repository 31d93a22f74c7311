"""`dead-letters list`, `show` and `redrive`: what they read, move and print."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eventplane import resource_names
from eventplane.envelope import Envelope, Sender, parse_event
from eventplane.ingest import parse_frame
from eventplane.ledger import parse_ledger_text
from eventplane.reasons import Outcome
from eventplane.sqs_binding import REDRIVEN, ROUTE, hint_of, redrive_in
from eventplane_client.ports import digest
from operations.dead_letters import move_all
from operations.errors import MoveFailedError, MoveUnseenError
from operations.reading import Peek
from tests.fakes.client import ScriptedClient
from tests.unit.operations.support import (
    INBOX,
    ROUTER,
    Folder,
    Killed,
    Plane,
    Run,
    RunJson,
    as_json,
    event,
    ledger_line,
    letter,
    letter_of_event,
    tap_line,
    tap_refusal_line,
)

DLQ = f"{INBOX}-dlq"
ANALYTICS = "care-analytics.inbox"
REDRIVE = ("dead-letters", "redrive", "--all", "--queue", DLQ)


@pytest.fixture
def three(plane: Plane) -> Plane:
    """A plane with three dead letters."""
    for id in "123":
        plane.send(DLQ, event(id, subject="/kitchen" if id == "2" else "/bedroom"))
    return plane


def ids(plane: Plane, queue: str) -> list[str]:
    """The ids of the events that a reader of a queue gets now."""
    return sorted(as_json(each["Body"])["id"] for each in plane.received(queue))


@pytest.mark.lost_answers
def test_list_counts_by_queue_and_reason_and_leaves_everything_where_it_is(three: Plane, run: Run) -> None:
    three.send("operations-inbox", letter(b"{}"))
    status, out, _ = run("dead-letters", "list")
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    (row,) = (each for each in rows if each[0] == "care-analytics.inbox")
    # Between them the age, in seconds.
    assert (row[1], row[3:]) == ("3", ["s", "receives_exhausted", "3", "unknown", "3"])
    assert "in the inbox, for its reader; see --archived" in out
    assert "empty" in rows[-1]
    assert ids(three, DLQ) == ["1", "2", "3"]
    (unread,) = three.received("operations-inbox")
    assert unread["Attributes"]["ApproximateReceiveCount"] == "1"


def test_what_waits_unread_is_no_dead_letter_and_costs_no_receive(plane: Plane, run_json: RunJson) -> None:
    plane.send("operations-inbox", letter_of_event(event("17")))
    plane.send("operations-inbox", event("report", "org.eventplane.device.heartbeat.v1"))
    plane.sqs.delete_queue(QueueUrl=plane.urls["family-app-inbox"])
    plane.archive("tap", [tap_line(event("17").json)])
    by_reader = letter(b"", "ConnectionError", "alarm-centre.inbox", "by-reader")
    plane.archive(
        "ledger",
        [
            ledger_line(event("17"), Outcome.DEAD_LETTERED, reason="payload_invalid"),
            *[ledger_line(by_reader, Outcome.DELIVERED, sender=Sender(service="alarm-centre"))] * 2,
            ledger_line(letter_of_event(event("17")), Outcome.DELIVERED, sender=ROUTER),
        ],
    )
    listed = run_json("dead-letters", "list", "--letters")
    (inbox,) = (each for each in listed["queues"] if each["waiting"])
    assert inbox["name"] == "eventplane-test-operations-inbox"
    assert (inbox["waiting"], inbox["looked"], inbox["reasons"]) == (2, None, {})
    assert listed["missing"] == ["family-app.inbox"]
    assert listed["archived"] == {"payload_invalid": 1, "ConnectionError": 1}
    (shown,) = run_json("dead-letters", "show", "17", "--letters")
    assert [each["id"] for each in shown["events"]][-1] == "17"
    (shown,) = run_json("dead-letters", "show", "by-reader", "--archived")
    assert (shown["channel"], shown["written_by"]) == ("alarm-centre.inbox", "alarm-centre")
    for each in plane.received("operations-inbox"):
        assert each["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_dry_run_moves_nothing_and_to_show_nothing_is_not_a_success(three: Plane, run: Run) -> None:
    assert run("dead-letters", "show", "17")[0] == 1
    words = ("dead-letters", "redrive", "--all", "--queue", "care-analytics.inbox", "--dry-run")
    assert run(*words) == (0, "care-analytics.inbox: 3 would move, nothing was changed\n", "")
    assert (three.count(INBOX), three.count(DLQ)) == (0, 3)


def test_all_go_back_with_body_and_hints(plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.dead_letters_command._EVERY", 5)
    sent = [event(str(id)) for id in range(15)]
    for each in sent:
        plane.send(DLQ, each)
    assert run(*REDRIVE) == (0, "care-analytics.inbox: 15 moved\n", "10 moved\n15 moved\n")
    back = plane.received(INBOX)
    assert sorted(each["Body"] for each in back) == sorted(each.json for each in sent)
    assert {each["MessageAttributes"]["route"]["StringValue"] for each in back} == {"a-route"}
    assert plane.count(DLQ) == 0


@pytest.mark.parametrize(
    "chosen", [["2"], ["--filter", "subject = '/kitchen' AND deadletterreason = 'receives_exhausted'"]]
)
@pytest.mark.lost_answers
def test_one_goes_back_by_its_events_id_or_by_its_content(three: Plane, run: Run, chosen: list[str]) -> None:
    status, out, _ = run("dead-letters", "redrive", *chosen, "--queue", "care-analytics.inbox")
    assert (status, out) == (0, "care-analytics.inbox: 1 moved, 2 left: not chosen\n")
    assert (ids(three, INBOX), ids(three, DLQ)) == (["2"], ["1", "3"])


@pytest.mark.parametrize("is_fifo", [False, True])
@pytest.mark.parametrize(
    ("place", "words"),
    [(DLQ, (*REDRIVE[:4], ANALYTICS)), ("operations-inbox", (*REDRIVE[:3], "--letters"))],
)
def test_killed_between_send_and_delete_a_letter_stays_the_same_decision(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch, place: str, words: Sequence[str], is_fifo: bool
) -> None:
    if is_fifo:
        plane.create_pair(INBOX, is_fifo=True)
        monkeypatch.setattr(resource_names, "is_fifo", lambda channel: channel.address == ANALYTICS)

    def die(**request: Any) -> Any:
        if "Entries" in request and request["Entries"][0].get("VisibilityTimeout"):
            return plane.sqs.change_message_visibility_batch(**request)  # they are held
        raise Killed

    for id in "123":
        fifo = {"MessageGroupId": id, "MessageDeduplicationId": id} if is_fifo and place == DLQ else {}
        plane.send(place, event(id) if place == DLQ else given_up(event(id), id), **fifo)
    plane.client.faults = {"delete_message_batch": die, "change_message_visibility_batch": die}
    with pytest.raises(Killed):
        run(*words)
    assert (plane.count(place), plane.received(place)) == (3, [])  # still there, hidden
    plane.client.faults = {}
    show_again(plane, place)
    assert run(*words)[0] == 0
    assert plane.count(place) == 0
    messages = plane.sqs.queue(plane.urls[INBOX]).messages
    copies = [(parse_event(each.body), each.attributes[REDRIVEN]["StringValue"]) for each in messages]
    # Of a FIFO queue's three one was sent before; were it dropped, a row would say `delivered` of nothing.
    assert len(ledger_rows(plane)) == len(copies) == (4 if is_fifo else 6)
    assert {one.id for one, _ in copies} == {*"123"}
    assert len({mark for _, mark in copies}) == len(copies)
    assert len({digest(one, mark) for one, mark in copies}) == 3


def show_again(plane: Plane, queue: str) -> None:
    """What the end of the visibility timeout does."""
    for message in plane.sqs.queue(plane.urls[queue]).messages:
        message.visible_ms = 0


def test_a_message_that_sqs_refuses_stays(three: Plane, run: Run) -> None:
    def in_part(QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803 - as botocore has it
        taken = three.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=Entries[:2])
        return {"Successful": taken["Successful"], "Failed": [{"Id": "2", "Code": "InternalError"}]}

    three.client.faults = {"send_message_batch": in_part}
    status, out, _ = run(*REDRIVE)
    assert (status, "SQS refused it: InternalError" in out) == (1, True)
    assert sorted(ids(three, DLQ) + ids(three, INBOX)) == ["1", "2", "3"]
    assert three.count(INBOX) == 2


def test_a_batch_that_is_too_long_goes_in_halves(three: Plane, run: Run) -> None:
    """The one message that is too long by itself stays."""
    send = three.sqs.send_message_batch

    def too_long(**request: Any) -> Any:
        if len(request["Entries"]) > 1 or "/kitchen" in request["Entries"][0]["MessageBody"]:
            error = {"Code": "AWS.SimpleQueueService.BatchRequestTooLong"}
            raise ClientError({"Error": error}, "SendMessageBatch")
        return send(**request)

    three.client.faults = {"send_message_batch": too_long}
    status, out, _ = run(*REDRIVE)
    assert (status, "SQS refused it: BatchRequestTooLong" in out) == (1, True)
    assert (three.count(INBOX), ids(three, DLQ)) == (2, ["2"])


def test_a_reader_that_fails_at_once_does_not_keep_the_run_alive(three: Plane, run: Run) -> None:
    def send_into_the_dead_letter_queue(**arguments: Any) -> Any:
        return three.sqs.send_message_batch(**{**arguments, "QueueUrl": three.urls[DLQ]})

    three.client.faults = {"send_message_batch": send_into_the_dead_letter_queue}
    assert run(*REDRIVE)[:2] == (0, "care-analytics.inbox: 3 moved, 3 left: not chosen\n")
    assert three.count(DLQ) == 3


def ordered(plane: Plane, count: int) -> str:
    """A FIFO queue's dead-letter queue with `count` events of one group; the queue's name."""
    plane.create_pair("ordered-inbox", is_fifo=True)
    for number in range(count):
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
        plane.send("ordered-inbox-dlq", event(str(number)), **fifo)
    return "ordered-inbox.fifo"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_fifo_queue_gets_its_messages_in_order_and_stops_at_the_first_refusal(
    plane: Plane, run: Run, is_refused: bool
) -> None:
    queue = ordered(plane, 12)
    refusal = {"Failed": [{"Id": "0", "Code": "Throttled"}]}

    def one_at_a_time(QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803 - as botocore has it
        assert len(Entries) == 1
        return refusal if is_refused else plane.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    plane.client.faults = {"send_message_batch": one_at_a_time}
    status, *_ = run("dead-letters", "redrive", "--all", "--queue", queue)
    assert status == is_refused
    full, empty = ("-dlq", "") if is_refused else ("", "-dlq")
    assert (plane.count(f"ordered-inbox{full}"), plane.count(f"ordered-inbox{empty}")) == (12, 0)
    back = plane.sqs.receive_message(
        QueueUrl=plane.urls[f"ordered-inbox{full}"],
        MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["All"],
    )["Messages"]
    assert [as_json(each["Body"])["id"] for each in back] == [str(number) for number in range(10)]
    assert {each["Attributes"]["MessageGroupId"] for each in back} == {"g"}


def test_messages_behind_others_of_their_fifo_group_are_not_called_absent(
    plane: Plane, run: Run, run_json: RunJson
) -> None:
    queue = ordered(plane, 12)
    two = "2 messages were not looked at: others of their FIFO group"
    for words, ends in ((("dead-letters", "show", "11", "--queue", queue), 1), (("trace", "11"), 3)):
        status, _, err = run(*words)
        assert (status, two in err) == (ends, True)
    (listed,) = run_json("dead-letters", "list", "--queue", queue)["queues"]
    assert (listed["waiting"], listed["looked"], listed["has_more"]) == (12, 10, True)
    redrive = ("dead-letters", "redrive", "--queue", queue, "--filter", "id = '3' OR id = '11'")
    would = "1 would move, nothing was changed\n9 not chosen\n2 not looked at: others of"
    assert would in run(*redrive, "--dry-run")[1]
    status, out, _ = run(*redrive)
    assert (status, "1 moved, 9 left: not chosen, 2 not looked at: others of" in out) == (1, True)
    assert plane.count("ordered-inbox-dlq") == 11


@pytest.mark.parametrize(
    ("page_s", "status", "said"),
    [(100, 0, "1 moved, 29 left: not chosen"), (1_000, 1, "10 left: not chosen, 20 not looked at: ")],
)
def test_a_run_that_outlasts_what_it_holds_says_what_it_has_not_seen(
    plane: Plane, run: Run, page_s: int, status: int, said: str
) -> None:
    for number in range(30):
        plane.send(DLQ, event(str(number)))

    def slowly(**arguments: Any) -> Any:
        plane.sqs.clock.advance(page_s)
        return plane.sqs.receive_message(**arguments)

    plane.client.faults = {"receive_message": slowly}
    found, out, _ = run("dead-letters", "redrive", "29", "--queue", DLQ)
    assert (found, said in out) == (status, True)
    assert plane.count(DLQ) == 30 - (not status)


def test_letters_are_redriven_and_the_inboxs_other_events_stay(plane: Plane, run: Run) -> None:
    refused = event("17")
    plane.send("operations-inbox", letter_of_event(refused))
    plane.send("operations-inbox", letter(b"no event", "not_json", id="stays"))
    plane.send("operations-inbox", event("report", "org.eventplane.device.heartbeat.v1"))
    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")
    assert status == 1
    assert "operations.inbox (letters): 1 moved, 1 left: other events, 1 left: cannot go back" in out
    assert "it would be refused again" in out
    (sent,) = plane.received("ingest")
    (item,) = parse_frame(sent["Body"]).items()
    assert item.original == refused.json.encode()
    assert ids(plane, "operations-inbox") == ["report", "stays"]


def test_messages_that_were_looked_at_show_again_at_once(plane: Plane) -> None:
    for number in range(15):
        plane.send(DLQ, event(str(number)))
    with Peek(plane.sqs, plane.urls[DLQ]) as reading:
        assert sum(map(len, reading.pages())) == 15
        assert plane.received(DLQ) == []
    assert len(plane.received(DLQ)) == 15


class MoveTasks:
    """SQS with one task that moves a queue; `answers` are its looks at the task, the last one again."""

    def __init__(self, *answers: Any, start: Any = None) -> None:
        self._answers = list(answers)
        self._start = start or {"TaskHandle": "h"}

    def start_message_move_task(self, **_: Any) -> Any:
        return self._given(self._start)

    def list_message_move_tasks(self, **_: Any) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._given(answer)

    def _given(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "ListMessageMoveTasks")


RUNNING = {"Status": "RUNNING", "ApproximateNumberOfMessagesMoved": 3, "ApproximateNumberOfMessagesToMove": 7}


DONE = {"Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": 7}
SECOND = refused("AWS.SimpleQueueService.UnsupportedOperation")


def moved(sqs: Any, sleep: Callable[[float], None] = lambda _: None, *progress: list[Any]) -> int | None:
    """What SQS moves of a queue; `progress` gets what it says meanwhile."""

    def tell(*seen: int | None) -> None:
        for each in progress:
            each.append(seen)

    return move_all(ScriptedClient("sqs", sqs), "q", "arn", progress=tell, sleep=sleep)


def test_sqs_itself_moves_a_whole_queue_where_it_offers_that() -> None:
    progress: list[Any] = []
    tasks = MoveTasks({"Results": [{**RUNNING, "TaskHandle": "h"}]}, {"Results": [DONE]})
    assert moved(tasks, lambda _: None, progress) == 7
    assert progress == [(3, 7)]
    assert moved(MoveTasks(start=refused("InvalidAction"))) is None
    assert moved(MoveTasks({"Results": [RUNNING]}, {"Results": [DONE]}, start=SECOND)) == 7
    assert moved(MoveTasks(refused("UnsupportedOperation"), start=SECOND)) is None
    failed = {"Status": "FAILED", "FailureReason": "CouldNotDetermineMessageSource"}
    with pytest.raises(MoveFailedError, match=r"CouldNotDetermineMessageSource.*--filter TRUE"):
        moved(MoveTasks({"Results": [failed]}))
    # Neither failed nor done: it goes on by itself.
    for answer, problem in (({"Results": []}, "does not list"), (refused("AccessDenied"), "AccessDenied")):
        with pytest.raises(MoveUnseenError, match=problem):
            moved(MoveTasks(answer))


@pytest.mark.lost_answers
def test_a_move_that_runs_is_followed() -> None:
    looks = [{"Results": [each]} for each in (RUNNING, RUNNING, RUNNING, DONE)]
    assert moved(MoveTasks(*looks, start=SECOND)) == 7


class OneMove:
    """SQS, which refuses a second task while one `runs`; the first one moves everything."""

    def __init__(self, *, runs: bool) -> None:
        self._runs = runs
        self.tasks: list[dict[str, Any]] = []

    def start_message_move_task(self, **_: Any) -> Any:
        if self.tasks and self._runs:
            raise SECOND
        moved = 0 if self.tasks else 7
        self.tasks.insert(0, {"Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": moved})
        return {"TaskHandle": "h"}

    def list_message_move_tasks(self, **_: Any) -> Any:
        return {"Results": self.tasks}


@pytest.mark.lost_answers
@pytest.mark.parametrize("runs", [True, False])
def test_a_move_is_counted_once_and_whole(*, runs: bool) -> None:
    assert moved(OneMove(runs=runs), lambda _: pytest.fail("done")) == 7


@pytest.mark.lost_answers
def test_a_move_by_sqs_is_used_and_reported(three: Plane, run: Run) -> None:
    done = MoveTasks({"Results": [DONE]})
    for name in ("start_message_move_task", "list_message_move_tasks"):
        three.client.faults[name] = getattr(done, name)
    status, out, _ = run("dead-letters", "redrive", "--all", "--queue", "ingest")
    assert (status, out) == (0, "eventplane-test-ingest: 7 moved\n")
    # Unmarked, the reader of an inbox would take its events for copies.
    assert run(*REDRIVE)[:2] == (0, "care-analytics.inbox: 3 moved\n")
    assert three.count(DLQ) == 0


def given_up(failed: Envelope, id: str = "letter-1") -> Envelope:
    """Return the letter of the reader of `INBOX`, whose handler failed."""
    reader = Sender(service="care-analytics")
    original = failed.json.encode()
    return letter(original, "handler", "care-analytics.inbox", id, written_by=reader, route="a-route")


def ledger_rows(plane: Plane) -> list[Any]:
    """Return the rows that wait in the ledger's queue. Those of a run come after the contract they name."""
    filed: set[str] = set()
    rows: list[Any] = []
    for message in (parse_ledger_text(each["Body"]) for each in plane.received("ledger")):
        filed.update(message.contracts)
        rows += map(as_json, message.lines)
        assert {row["contract_version"] for row in rows} <= filed
    return rows


EXPECTED_OF_REDRIVE = {
    "entered_by": "care-analytics.inbox",
    "destination": "care-analytics.inbox",
    "outcome": "delivered",
    "reason": "redrive",
    "put_back_by": "operator",
}


def test_what_goes_back_into_an_inbox_is_a_new_decision_in_the_ledger(plane: Plane, run: Run) -> None:
    plane.send("operations-inbox", given_up(event("17", "org.eventplane.activity.door.v1")))
    plane.send(DLQ, event("18"))
    assert run("dead-letters", "redrive", "17", "--letters")[0] == 0
    assert run(*REDRIVE)[0] == 0
    back = plane.received(INBOX)
    marks = [str(hint_of(each, REDRIVEN)) for each in back]
    # For the dead letter of the next failure.
    assert [hint_of(each, ROUTE) for each in back] == ["a-route", "a-route"]
    rows = ledger_rows(plane)
    assert [row["id"] for row in rows] == ["17", "18"]
    assert [row["message_id"].split(".")[0] for row in rows] == [mark.split(".")[0] for mark in marks]
    for row in rows:
        assert {**row, **EXPECTED_OF_REDRIVE} == row
        assert row["route"]


def test_a_dead_letter_that_its_own_inbox_gave_up_goes_back_there_and_is_what_is_recorded(
    plane: Plane, run: Run
) -> None:
    lost = given_up(event("17"))
    plane.send("operations-inbox-dlq", lost)
    assert run("dead-letters", "redrive", "--all", "--queue", "operations.inbox")[0] == 0
    assert [(row["id"], row["destination"]) for row in ledger_rows(plane)] == [(lost.id, "operations.inbox")]
    assert (ids(plane, "operations-inbox"), ids(plane, INBOX)) == ([lost.id], [])


# By the letter of a reader, and of a router, which gives a second one the id of the first.
@pytest.mark.parametrize("id", ["first.{}", "first"])
def test_what_a_run_sent_and_failed_at_once_is_left_to_the_next_run(plane: Plane, run: Run, id: str) -> None:
    plane.send("operations-inbox", given_up(event("17"), "first"))
    send = plane.sqs.send_message_batch

    def fails_at_once(**request: Any) -> Any:
        answer = send(**request)
        plane.client.faults.clear()
        mark = hint_of(request["Entries"][0], REDRIVEN) or ""
        plane.send("operations-inbox", given_up(event("17"), id.format(redrive_in(mark))))
        return answer

    plane.client.faults = {"send_message_batch": fails_at_once}
    out = run("dead-letters", "redrive", "--all", "--letters")[1]
    assert "1 moved, 1 left: not chosen" in out
    assert (plane.count(INBOX), plane.count("operations-inbox")) == (1, 1)


def test_what_was_sent_is_deleted_though_the_ledger_refuses_its_record(three: Plane, run: Run) -> None:
    def refused(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessage")

    three.client.faults = {"send_message": refused}
    assert run(*REDRIVE)[0] == 1
    assert (three.count(INBOX), three.count(DLQ)) == (3, 0)


@pytest.mark.lost_answers
def test_the_archives_letters_are_listed_shown_and_sent_and_never_as_a_whole(
    plane: Plane, run: Run, run_json: RunJson
) -> None:
    refused, report = event("17"), letter(b"junk", reason="not_json", channel="voice-service.outbox", id="d")
    plane.archive("tap", [tap_line(refused.json, 0), tap_line(report.json, 1), tap_line(event("18").json, 2)])
    plane.archive("ledger", [ledger_line(refused, Outcome.DEAD_LETTERED, reason="payload_invalid")])
    listed = run_json("dead-letters", "list", "--archived")
    shown = run_json("dead-letters", "show", "17", "--archived")
    assert listed["archived"] == {"payload_invalid": 1, "not_json": 1}
    assert base64.b64decode(shown[0]["original_base64"]) == refused.json.encode()
    assert run("dead-letters", "redrive", "--all", "--archived")[0] == 2
    assert run("dead-letters", "redrive", "17", "--archived")[:2] == (0, "archive: 1 moved\n")
    (sent,) = plane.received("ingest")
    assert parse_frame(sent["Body"]).client_id == "home-1"


@pytest.mark.parametrize(
    ("reader", "inbox"), [("downlink", "device.inbox"), ("care-analytics", "care-analytics.inbox")]
)
def test_an_archived_letter_of_a_reader_names_its_inbox(
    run_json: RunJson, folder: Folder, reader: str, inbox: str
) -> None:
    by_reader = Sender(service=reader)
    written = letter(event("17").json.encode(), channel=inbox, written_by=by_reader)
    line = ledger_line(written, Outcome.DELIVERED, route=("letters", "operations.inbox"), sender=by_reader)
    folder.write("ledger", [line], "2026-03-02")
    days = ("--from", "2026-03-02", "--to", "2026-03-02")
    (shown,) = run_json("dead-letters", "show", "--archived", *folder.named, *days)
    assert shown["channel"] == inbox


@pytest.mark.parametrize("verb", ["list", "show"])
def test_a_copy_of_the_archive_needs_no_credentials(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Folder, verb: str
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda _: None)
    folder.write("tap", [tap_refusal_line(b"no event", "not_json")], "2026-03-02")
    days = ("--from", "2026-03-02", "--to", "2026-03-02")
    status, out, err = run("dead-letters", verb, "--archived", *folder.named, *days)
    assert (status, err, "not_json" in out) == (0, "", True)


def test_dead_letters_whose_raw_lines_have_left_are_not_called_absent(run: Run, folder: Folder) -> None:
    for part in ("tap", "ledger"):
        folder.put(f"compactions/{part}/date=2026-03-02/hour=12/receipt.json", b"{}")
    days = ("--from", "2026-03-02", "--to", "2026-03-02")
    for verb in (("show", "17"), ("list",)):
        err = run("dead-letters", *verb, "--archived", *folder.named, *days)[2]
        assert "raw lines up to 2026-03-02 have left (raw_days)" in err


@pytest.mark.parametrize(
    ("arguments", "expected", "remedy"),
    [
        (["list", "--env", "nowhere"], 1, "name another environment with --env"),
        (["list", "--queue", "nobody.inbox"], 1, "use one of: "),
        (["list", "--archived", "--archive", "/no/such/folder"], 1, "name a folder"),
        (["list", "--archived", "--archive", "s3://no-such-bucket"], 1, "name a folder"),
        (["redrive", "--queue", "ingest"], 2, "--all"),
        (["redrive", "7", "--all", "--queue", "ingest"], 2, "--all"),
        (["redrive", "--all"], 2, "--queue NAME"),
        (["list", "--filter", "subject ="], 2, "no CESQL expression"),
    ],
)
def test_an_error_says_what_to_do(
    plane: Plane, run: Run, arguments: list[str], expected: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expected == 2:
        # Wrong words are found before credentials are missed.
        monkeypatch.setattr("tests.fakes.aws.FakeAws.get_credentials", lambda _: None)
    status, _, err = run("dead-letters", *arguments)
    assert (status, remedy in err) == (expected, True)
