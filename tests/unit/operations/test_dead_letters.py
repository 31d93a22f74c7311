"""`dead-letters list`, `show` and `redrive`."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.sqs.models import sqs_backends

from eventplane.batch import pack
from eventplane.ingest import IngestFrame, frame_text, parse_frame
from eventplane.reasons import Outcome
from eventplane.sender import Sender
from operations.outgoing import again
from operations.reading import Reading
from tests.rule_failure import rule_failure
from tests.unit.operations.support import (
    HOME,
    INBOX,
    ROUTER,
    Killed,
    Plane,
    as_json,
    event,
    ledger_line,
    letter,
    letter_of_event,
    tap_line,
    tap_refusal_line,
)

Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., Any]
DLQ = f"{INBOX}-dlq"


def test_list_counts_by_queue_and_reason_and_leaves_everything_where_it_is(plane: Plane, run: Run) -> None:
    for id in "123":
        plane.send(DLQ, event(id))
    plane.send("operations-inbox", letter(b"{}"))

    status, out, _ = run("dead-letters", "list")

    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    (row,) = (each for each in rows if each[0] == "care-analytics.inbox")
    assert (row[1], row[3:]) == (
        "3",
        ["s", "receives_exhausted", "3", "unknown", "3"],
    )  # between them the age, in seconds
    assert "look inside with --letters" in out
    assert "empty" in rows[-1]
    assert len(plane.received(DLQ)) == 3
    (unread,) = plane.received("operations-inbox")
    assert unread["Attributes"]["ApproximateReceiveCount"] == "1"


def test_list_looks_into_the_letters_inbox_only_when_asked(plane: Plane, run_json: RunJson) -> None:
    plane.send("operations-inbox", letter(b"{}", reason="not_json"))

    listed = run_json("dead-letters", "list", "--letters")

    (inbox,) = [each for each in listed["queues"] if each["reasons"]]
    assert inbox["name"] == "eventplane-test-operations-inbox"
    assert inbox["reasons"] == {"not_json": 1}


def test_list_names_channels_without_a_queue(plane: Plane, run_json: RunJson) -> None:
    plane.sqs.delete_queue(QueueUrl=plane.urls["family-app-inbox"])

    assert run_json("dead-letters", "list")["missing"] == ["family-app.inbox"]


def test_show_gives_reason_remedy_and_the_original(plane: Plane, run: Run) -> None:
    refused = event("17")
    plane.send("operations-inbox", letter_of_event(refused))

    status, out, _ = run("dead-letters", "show", "17", "--letters")

    assert status == 0
    assert "payload_invalid" in out
    assert "$.value is a string" in out
    assert "redrive the letter" in out
    assert "id 17 of /homes/1/health" in out
    assert refused.json in out


def test_what_an_original_contains_does_not_reach_the_terminal_as_it_is(plane: Plane, run: Run) -> None:
    plane.send("operations-inbox", letter("\x1b[2J\u202eabc".encode(), reason="not_json"))

    assert "\\x1b[2J\\u202eabc" in run("dead-letters", "show", "--letters")[1]


def test_show_gives_bytes_that_are_no_text_in_hexadecimal(plane: Plane, run: Run, run_json: RunJson) -> None:
    plane.send("operations-inbox", letter(b"\xff\x00\x1bx", reason="not_utf8"))

    assert "ff 00 1b 78" in run("dead-letters", "show", "--letters")[1]
    (shown,) = run_json("dead-letters", "show", "--letters")
    assert base64.b64decode(shown["original_base64"]) == b"\xff\x00\x1bx"


def test_show_of_nothing_is_not_a_success(plane: Plane, run: Run) -> None:
    assert run("dead-letters", "show", "17")[0] == 1


def test_whatever_lies_in_a_queue_is_shown(plane: Plane, run_json: RunJson) -> None:
    bodies = ["", " ", "{", "null", '{"data": "%"}', '{"type": "org.eventplane.deadletter.v1"}', "\ud7ff" * 9]
    for body in bodies[1:]:
        plane.sqs.send_message(QueueUrl=plane.urls["ingest-dlq"], MessageBody=body)

    shown = run_json("dead-letters", "show", "--queue", "ingest")

    assert {each["kind"] for each in shown} == {"unreadable"}
    assert len(shown) == len(bodies) - 1


def test_what_a_rule_could_not_hand_over_is_shown_as_that(plane: Plane, run_json: RunJson) -> None:
    lost, line = event("17"), b'{"clientId": "home-1", "eventType": "connected"}'
    for body in (
        rule_failure(pack([lost]), "queue-1", "queue-2"),
        rule_failure(line, ruleName="connections", failures=7, clientId=None),
        rule_failure(line, base64OriginalPayload=7),
    ):
        plane.sqs.send_message(QueueUrl=plane.urls["ingest-dlq"], MessageBody=body)

    shown = {each["detail"]: each for each in run_json("dead-letters", "show", "--queue", "ingest")}
    listed = run_json("dead-letters", "list", "--queue", "ingest")

    batch = shown["the rule eventplane_dev_ingest: no; no"]
    assert (batch["kind"], batch["reason"], batch["sender"]) == ("rule_failure", "rule_failed", "home-1/")
    assert [each["id"] for each in batch["events"]] == ["17"]
    connection = shown["the rule connections: it does not say why"]
    assert base64.b64decode(connection["original_base64"]) == line
    (queue,) = [each for each in listed["queues"] if each["reasons"]]
    assert queue["reasons"] == {"rule_failed": 2, "receives_exhausted": 1}


def test_a_dry_run_moves_nothing(plane: Plane, run: Run) -> None:
    plane.send(DLQ, event("1"))

    status, out, err = run("dead-letters", "redrive", "--all", "--queue", "care-analytics.inbox", "--dry-run")

    assert (status, out, err) == (0, "care-analytics.inbox: 1 would move, nothing was changed\n", "")
    assert plane.count(INBOX) == 0
    assert len(plane.received(DLQ)) == 1


def test_all_go_back_with_body_and_hints(plane: Plane, run: Run) -> None:
    sent = {each.json for each in map(event, map(str, range(25)))}
    for id in range(25):
        plane.send(DLQ, event(str(id)))

    status, out, _ = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert (status, out) == (0, "care-analytics.inbox: 25 moved\n")
    back = plane.received(INBOX)
    assert {each["Body"] for each in back} == sent
    assert len(back) == 25
    assert {each["MessageAttributes"]["route"]["StringValue"] for each in back} == {"a-route"}
    assert plane.count(DLQ) == 0


def test_one_goes_back_by_its_events_id(plane: Plane, run: Run) -> None:
    for id in "12":
        plane.send(DLQ, event(id))

    assert run("dead-letters", "redrive", "2", "--queue", "care-analytics.inbox")[0] == 0

    assert [as_json(each["Body"])["id"] for each in plane.received(INBOX)] == ["2"]
    assert [as_json(each["Body"])["id"] for each in plane.received(DLQ)] == ["1"]


def test_a_filter_chooses_by_content_and_reason(plane: Plane, run: Run) -> None:
    plane.send(DLQ, event("1", subject="/bedroom"))
    plane.send(DLQ, event("2", subject="/kitchen"))

    expression = "subject = '/kitchen' AND deadletterreason = 'receives_exhausted'"
    status, out, _ = run("dead-letters", "redrive", "--filter", expression, "--queue", "care-analytics.inbox")

    assert (status, out) == (0, "care-analytics.inbox: 1 moved, 1 left: not chosen\n")
    assert [as_json(each["Body"])["id"] for each in plane.received(INBOX)] == ["2"]


def test_killed_between_send_and_delete_nothing_is_lost(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in "123":
        plane.send(DLQ, event(id))

    def die(**_: Any) -> Any:
        raise Killed

    plane.client.faults = {"delete_message_batch": die, "change_message_visibility_batch": die}
    with pytest.raises(Killed):
        run("dead-letters", "redrive", "--all", "--queue", DLQ)
    assert plane.count(DLQ) == 3  # still there, hidden

    plane.client.faults = {}
    hidden = plane.sqs.get_queue_attributes(QueueUrl=plane.urls[DLQ], AttributeNames=["All"])["Attributes"]
    assert hidden["ApproximateNumberOfMessagesNotVisible"] == "3"
    show_again(plane, DLQ)
    assert run("dead-letters", "redrive", "--all", "--queue", DLQ)[0] == 0

    back = [as_json(each["Body"])["id"] for each in plane.received(INBOX)]
    assert sorted(back) == ["1", "1", "2", "2", "3", "3"]  # twice, as at-least-once has it
    assert plane.count(DLQ) == 0


def test_what_sqs_does_not_take_stays(plane: Plane, run: Run) -> None:
    for id in "12":
        plane.send(DLQ, event(id))

    def in_part(**arguments: Any) -> Any:
        taken = plane.sqs.send_message_batch(
            QueueUrl=arguments["QueueUrl"],
            Entries=[each for each in arguments["Entries"] if each["Id"] == "0"],
        )
        return {"Successful": taken["Successful"], "Failed": [{"Id": "1", "Code": "InternalError"}]}

    plane.client.faults = {"send_message_batch": in_part}
    status, out, _ = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert status == 1
    assert "SQS refused it: InternalError" in out
    (stays,) = plane.received(DLQ)
    (moved,) = plane.received(INBOX)
    assert stays["Body"] != moved["Body"]


def test_a_reader_that_fails_at_once_does_not_keep_the_run_alive(plane: Plane, run: Run) -> None:
    plane.send(DLQ, event("1"))

    def send_into_the_dead_letter_queue(**arguments: Any) -> Any:
        return plane.sqs.send_message_batch(**{**arguments, "QueueUrl": plane.urls[DLQ]})

    plane.client.faults = {"send_message_batch": send_into_the_dead_letter_queue}
    status, out, _ = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert (status, out) == (0, "care-analytics.inbox: 1 moved, 1 left: not chosen\n")
    assert plane.count(DLQ) == 1


def test_a_fifo_queue_gets_its_messages_in_order(plane: Plane, run: Run) -> None:
    plane.create_pair("ordered-inbox", is_fifo=True)
    for number in range(12):
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
        plane.send("ordered-inbox-dlq", event(str(number)), **fifo)

    assert run("dead-letters", "redrive", "--all", "--queue", "ordered-inbox.fifo")[0] == 0

    back = plane.sqs.receive_message(
        QueueUrl=plane.urls["ordered-inbox"], MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert [as_json(each["Body"])["id"] for each in back] == [str(number) for number in range(10)]
    assert {each["Attributes"]["MessageGroupId"] for each in back} == {"g"}
    assert plane.count("ordered-inbox") == 12
    assert plane.count("ordered-inbox-dlq") == 0


def test_a_fifo_queue_takes_a_message_again_and_a_second_try_at_it_as_a_duplicate() -> None:
    # SQS would accept the old deduplication id within five minutes, and drop the message.
    def deduplication(message_id: str) -> str:
        attributes = {"MessageGroupId": "g", "MessageDeduplicationId": "old"}
        message = {"MessageId": message_id, "Body": "b", "Attributes": attributes}
        return str(again(message, "https://queue/ordered.fifo", "run").entry["MessageDeduplicationId"])

    assert deduplication("one") == deduplication("one")
    assert len({"old", deduplication("one"), deduplication("two")}) == 3


def test_a_fifo_queue_stops_at_the_first_refusal(plane: Plane, run: Run) -> None:
    plane.create_pair("ordered-inbox", is_fifo=True)
    for number in range(3):
        plane.send(
            "ordered-inbox-dlq", event(str(number)), MessageGroupId="g", MessageDeduplicationId=str(number)
        )
    plane.client.faults = {"send_message_batch": lambda **_: {"Failed": [{"Id": "0", "Code": "Throttled"}]}}

    assert run("dead-letters", "redrive", "--all", "--queue", "ordered-inbox.fifo")[0] == 1

    plane.client.faults = {}
    back = plane.received("ordered-inbox-dlq")
    assert [as_json(each["Body"])["id"] for each in back] == ["0", "1", "2"]


def test_a_letters_original_goes_back_to_the_uplinks_queue_as_a_frame(plane: Plane, run: Run) -> None:
    refused = event("17")
    plane.send("operations-inbox", letter_of_event(refused))
    plane.send("operations-inbox", event("report", "org.eventplane.device.heartbeat.v1"))

    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")

    assert (status, out) == (0, "operations.inbox (letters): 1 moved, 1 left: not chosen\n")
    (sent,) = plane.received("ingest")
    (item,) = parse_frame(sent["Body"]).items()
    assert item.original == refused.json.encode()
    (left,) = plane.received("operations-inbox")
    assert as_json(left["Body"])["id"] == "report"


def test_a_cloud_services_original_goes_back_to_its_outbox(plane: Plane, run: Run) -> None:
    refused = event("17")
    lost = letter(refused.json.encode(), channel="family-app.outbox", sender=Sender(service="family-app"))
    plane.send("operations-inbox", lost)

    assert run("dead-letters", "redrive", "17", "--letters")[0] == 0

    (sent,) = plane.received("family-app-outbox")
    assert sent["Body"] == refused.json


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (letter(b"no event", reason="not_json"), "refused again"),
        (letter(event("1").json.encode(), channel="voice-service.outbox"), "on the device"),
        (letter(b"{}", reason="not_in_tap", channel="replay", sender=None), "nobody knows who sent"),
        (letter(b"x" * 70_000, reason="too_large"), "of 70000 bytes"),
    ],
)
def test_what_cannot_go_back_stays_and_says_why(plane: Plane, run: Run, lost: Any, why: str) -> None:
    plane.send("operations-inbox", lost)

    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")

    assert status == 1
    assert why in out
    assert len(plane.received("operations-inbox")) == 1


DEVICE = Sender("home-1", "device")
FORGED_FRAME = frame_text(
    IngestFrame(event("1", "org.eventplane.alarm.keyword.v1").json.encode(), "t", "home-2", "p", 1)
).encode()


@pytest.mark.parametrize(
    "channel", ["carers.outbox", "alarm-centre.inbox", "family-app.inbox", "device.inbox"]
)
@pytest.mark.parametrize("author", [DEVICE, Sender("home-1"), Sender(service="family-app")])
def test_a_forged_letter_leads_to_nobody_elses_queue(
    plane: Plane, run: Run, channel: str, author: Sender
) -> None:
    if channel == "family-app.inbox" and author.service == "family-app":
        return  # its own
    forged = letter(event("1").json.encode(), channel=channel, sender=Sender("home-2"), written_by=author)
    plane.send("operations-inbox", forged)

    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")

    assert status == 1
    assert f"{author} wrote this letter" in out
    assert plane.count(channel.replace(".", "-")) == 0
    assert plane.count("operations-inbox") == 1


@pytest.mark.parametrize("author", [ROUTER, DEVICE, Sender(service="family-app")])
@pytest.mark.parametrize("sender", [None, Sender("home-2")])
def test_what_no_transport_vouched_for_never_becomes_a_frame(
    plane: Plane, run: Run, author: Sender, sender: Sender | None
) -> None:
    forged = letter(FORGED_FRAME, reason="bad_frame", sender=sender, written_by=author)
    plane.send("operations-inbox", forged)

    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")

    assert (status, plane.count("ingest")) == (1, 0)
    assert "nobody knows who sent what is no frame" in out


def test_a_devices_letter_leads_to_that_device_whatever_it_says(plane: Plane, run: Run) -> None:
    lost = letter(
        event("1").json.encode(), reason="refused_by_cloud", sender=Sender("home-2"), written_by=DEVICE
    )
    plane.send("operations-inbox", lost)

    assert run("dead-letters", "redrive", "1", "--letters")[0] == 0

    (sent,) = plane.received("ingest")
    assert parse_frame(sent["Body"]).client_id == "home-1"


def test_the_routers_letter_leads_to_the_true_sender(plane: Plane, run: Run) -> None:
    plane.send("operations-inbox", letter_of_event(event("1"), Sender("home-2", "voice-service")))

    assert run("dead-letters", "redrive", "1", "--letters")[0] == 0

    (sent,) = plane.received("ingest")
    assert parse_frame(sent["Body"]).client_id == "home-2"


@pytest.mark.parametrize(
    ("channel", "sender"),
    [
        ("device.outbox", Sender(service="family-app")),
        ("device.outbox", ROUTER),
        ("family-app.outbox", HOME),
        ("family-app.outbox", Sender(service="carers")),
        ("family-app.outbox", None),
        ("gone.outbox", Sender(service="gone")),
    ],
)
def test_an_original_goes_back_over_its_true_senders_channel_only(
    plane: Plane, run: Run, channel: str, sender: Sender | None
) -> None:
    plane.send("operations-inbox", letter(event("1").json.encode(), channel=channel, sender=sender))

    assert run("dead-letters", "redrive", "--all", "--letters")[0] == 1

    assert plane.count("ingest") == plane.count("family-app-outbox") == 0


@pytest.mark.parametrize(
    ("author", "channel"),
    [("family-app", "family-app.inbox"), ("family-app", "family-app.outbox"), ("downlink", "device.inbox")],
)
def test_a_services_letter_leads_to_its_own_channels(
    plane: Plane, run: Run, author: str, channel: str
) -> None:
    lost = event("1").stamped(**HOME.attributes) if channel.endswith("inbox") else event("1")
    author_of = Sender(service=author)
    plane.send(
        "operations-inbox",
        letter(lost.json.encode(), "refused", channel, sender=None, written_by=author_of),
    )

    assert run("dead-letters", "redrive", "1", "--letters")[0] == 0

    (sent,) = plane.received(channel.replace(".", "-"))
    assert sent["Body"] == lost.json


def test_a_letter_without_a_stamp_goes_nowhere(plane: Plane, run: Run) -> None:
    plane.send("operations-inbox", letter(event("1").json.encode(), written_by=Sender()))

    status, out, _ = run("dead-letters", "redrive", "--all", "--letters")

    assert (status, "nobody knows who sent the original" in out) == (1, True)


def test_list_and_show_name_the_senders(plane: Plane, run: Run, run_json: RunJson) -> None:
    plane.send("operations-inbox", letter_of_event(event("1"), Sender("home-2", "voice-service")))
    forged = letter(b"{}", channel="carers.outbox", sender=Sender(service="carers"), written_by=DEVICE)
    plane.send("operations-inbox", forged)
    plane.send(DLQ, event("2").stamped(**Sender(service="carers").attributes))

    queues = run_json("dead-letters", "list", "--letters")["queues"]
    (listed,) = [each for each in queues if each["name"].endswith("operations-inbox")]
    assert listed["senders"] == {"home-2/voice-service": 1, "home-1/carers": 1}
    assert "home-2/voice-service 1" in run("dead-letters", "list", "--letters")[1]
    out = run("dead-letters", "show", "1", "--letters")[1]
    assert "sender      home-2/voice-service" in out
    assert "written by  eventplane" in out
    (forged_one,) = [
        each
        for each in run_json("dead-letters", "show", "--letters")
        if each["written_by"] == "home-1/device"
    ]
    assert forged_one["sender"] == "home-1/carers", "a device speaks for its own services only"
    assert run_json("dead-letters", "show", "2")[0]["sender"] == "carers"


def test_sqs_itself_moves_a_whole_queue(plane: Plane, run: Run) -> None:
    answers = [
        {
            "Results": [
                {
                    "TaskHandle": "h",
                    "Status": "RUNNING",
                    "ApproximateNumberOfMessagesMoved": 3,
                    "ApproximateNumberOfMessagesToMove": 7,
                }
            ]
        },
        {"Results": [{"Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": 7}]},
    ]
    plane.client.faults = {
        "start_message_move_task": lambda **_: {"TaskHandle": "h"},
        "list_message_move_tasks": lambda **_: answers.pop(0),
    }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("operations.move_task._POLL_S", 0)
        status, out, err = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert (status, out) == (0, "care-analytics.inbox: 7 moved\n")
    assert "3 moved of about 7" in err


def test_a_move_that_sqs_ends_says_what_to_do(plane: Plane, run: Run) -> None:
    failed = {"Results": [{"Status": "FAILED", "FailureReason": "CouldNotDetermineMessageSource"}]}
    plane.client.faults = {
        "start_message_move_task": lambda **_: {"TaskHandle": "h"},
        "list_message_move_tasks": lambda **_: failed,
    }

    status, _, err = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert status == 1
    assert "CouldNotDetermineMessageSource" in err
    assert "--filter TRUE" in err


def _denied(**_: Any) -> Any:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListMessageMoveTasks")


@pytest.mark.parametrize(
    ("listing", "problem"), [(lambda **_: {"Results": []}, "does not list"), (_denied, "AccessDenied")]
)
def test_a_move_that_cannot_be_watched_is_called_neither_failed_nor_done(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch, listing: Any, problem: str
) -> None:
    monkeypatch.setattr("operations.move_task._POLL_S", 0)
    plane.client.faults = {
        "start_message_move_task": lambda **_: {"TaskHandle": "h"},
        "list_message_move_tasks": listing,
    }

    status, out, err = run("dead-letters", "redrive", "--all", "--queue", DLQ)

    assert (status, out) == (1, "")
    assert "by itself" in err
    assert problem in err


def test_the_archives_letters_are_listed_shown_and_sent(plane: Plane, run: Run, run_json: RunJson) -> None:
    refused, report = event("17"), letter(b"junk", reason="not_json", channel="voice-service.outbox", id="d")
    plane.archive("tap", [tap_line(refused.json, 0), tap_line(report.json, 1), tap_line(event("18").json, 2)])
    plane.archive("ledger", [ledger_line(refused, Outcome.DEAD_LETTERED, reason="payload_invalid")])

    listed = run_json("dead-letters", "list", "--archived")
    shown = run_json("dead-letters", "show", "17", "--archived")
    status, out, _ = run("dead-letters", "redrive", "17", "--archived")

    assert listed["archived"] == {"payload_invalid": 1, "not_json": 1}
    assert base64.b64decode(shown[0]["original_base64"]) == refused.json.encode()
    assert (status, out) == (0, "archive: 1 moved\n")
    (sent,) = plane.received("ingest")
    assert parse_frame(sent["Body"]).client_id == "home-1"


def test_the_archive_is_never_redriven_as_a_whole(plane: Plane, run: Run) -> None:
    assert run("dead-letters", "redrive", "--all", "--archived")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["list", "--env", "nowhere"], "name another environment with --env"),
        (["list", "--queue", "nobody.inbox"], "use one of: "),
        (["redrive", "--queue", "ingest"], "--all"),
        (["redrive", "7", "--all", "--queue", "ingest"], "--all"),
        (["redrive", "--all"], "--queue NAME"),
        (["list", "--filter", "subject ="], "no CESQL expression"),
        (["list", "--archived", "--archive", "/no/such/folder"], "name a folder"),
        (["list", "--archived", "--archive", "s3://no-such-bucket"], "name a folder"),
        (["list", "--contract", "/no/such/contract.yaml"], "name an existing file"),
    ],
)
def test_an_error_says_what_to_do(plane: Plane, run: Run, arguments: list[str], remedy: str) -> None:
    status, _, err = run("dead-letters", *arguments)

    assert status == (2 if remedy in ("--all", "--queue NAME", "no CESQL expression") else 1)
    assert remedy in err


@pytest.mark.parametrize("verb", ["list", "show"])
def test_a_copy_of_the_archive_needs_no_credentials(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda _: None)
    folder = tmp_path / "tap" / "date=2026-03-02" / "hour=23"
    folder.mkdir(parents=True)
    refused = tap_refusal_line(b"no event", "not_json")
    (folder / "one.json.gz").write_bytes(gzip.compress(refused.encode()))
    days = ("--from", "2026-03-02", "--to", "2026-03-02")

    status, out, err = run("dead-letters", verb, "--archived", "--archive", str(tmp_path), *days)

    assert (status, err) == (0, "")
    assert "not_json" in out


@pytest.mark.parametrize("words", [["redrive"], ["list", "--filter", "a ="], ["redrive", "--all"]])
def test_wrong_words_are_found_before_credentials_are_missed(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda _: None)
    status, _, err = run("dead-letters", *words)
    assert status == 2
    assert "log in" not in err


def test_without_credentials_it_says_how_to_get_them(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda _: None)

    status, _, err = run("dead-letters", "list")

    assert status == 1
    assert "log in" in err


def test_messages_that_were_looked_at_show_again_at_once(plane: Plane) -> None:
    for number in range(15):
        plane.send(DLQ, event(str(number)))

    with Reading(plane.sqs, plane.urls[DLQ]) as reading:
        assert sum(map(len, reading.pages())) == 15
        assert plane.received(DLQ) == []

    assert len(plane.received(DLQ)) == 15


def show_again(plane: Plane, queue: str) -> None:
    """What the end of the visibility timeout does."""
    for backend in sqs_backends["123456789012"].values():
        for each in backend.queues.values():
            if each.url == plane.urls[queue] or each.name == plane.urls[queue].rsplit("/", 1)[1]:
                for message in each._messages:
                    message.change_visibility(0)
