"""`eventplane send` and `eventplane inbox`: an event of one's own, and who has it."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from eventplane.contract.publication import CONTRACTS_TABLE, KEY
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.reader_receipts import read_receipt
from eventplane.resource_names import resource_name
from lab.network import free_port
from operations import send_command
from tests.dynamodb import create_table
from tests.plane import plane_contract
from tests.unit.operations.support import ENVIRONMENT, READING, Plane, Run, RunJson, event

ROOT = Path(__file__).parents[3]
NOTICE, MESSAGE = "org.eventplane.notice.carer.v1", "org.eventplane.home.message.v1"
DEVICE = ("--broker", "mqtt://127.0.0.1:1")


@pytest.fixture
def contracts(plane: Plane) -> str:
    table = resource_name(ENVIRONMENT, CONTRACTS_TABLE)
    create_table(boto3.client("dynamodb"), table, KEY)
    return table


def example(id: str, type: str = READING, **attributes: str) -> Envelope:
    """An event with the first example of its schema."""
    schema = next(iter(plane_contract().event_types[type].schemas.values()))
    return write_event(
        {"id": id, "source": "/homes/1/health", "type": type} | attributes, schema["examples"][0]
    )


def file_of(sent: Envelope, folder: Path) -> str:
    file = folder / "event.json"
    file.write_text(sent.json)
    return str(file)


def test_an_event_is_sent_as_the_only_participant_that_sends_its_type(
    plane: Plane, run: Run, tmp_path: Path
) -> None:
    status, out, err = run("send", file_of(event("17", NOTICE), tmp_path), "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["id"], found["source"], found["sender"]) == ("17", "/homes/1/health", "presence-monitor")
    assert [each["channel"] for each in found["received_by"]] == ["carers.inbox", "family-app.inbox"]
    (message,) = plane.received("presence-monitor-outbox")
    assert parse_event(message["Body"]) == event("17", NOTICE)


def test_who_receives_it_and_how_to_follow_it_is_printed(plane: Plane, run: Run, tmp_path: Path) -> None:
    sent = file_of(example("a b", MESSAGE, todevice="home-1"), tmp_path)
    status, out, _ = run("send", sent, "--as", "carers", "--region", "eu-west-1")
    assert (status, len(plane.received("carers-outbox"))) == (0, 1)
    assert "  voice-service.inbox by down-to-devices -> messages-to-voice-service\n" in out
    assert "\nits way: eventplane trace 'a b' --follow --region eu-west-1\n" in out


@pytest.mark.parametrize(
    ("sent", "words", "reason"),
    [
        (event("1"), DEVICE, "payload_invalid: $: "),
        (event("1", MESSAGE), ("--as", "carers"), "payload_invalid: $: 'text' is a required property"),
        (event("1"), ("--as", "carers"), "sender_not_allowed: carers sent "),
        (event("1", expirytime="2001-01-01T00:00:00Z"), DEVICE, "expired: its expirytime was 2001-01-01"),
        (event("1", MESSAGE, dataschema="urn:none"), ("--as", "carers"), "no_device"),
    ],
)
def test_what_would_be_refused_is_not_sent_and_the_reason_is_named(
    plane: Plane, run: Run, tmp_path: Path, sent: Envelope, words: tuple[str, ...], reason: str
) -> None:
    status, out, err = run("send", file_of(sent, tmp_path), *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"refused, {reason}" in err
    assert plane.count("carers-outbox") == 0


def test_a_service_on_a_device_sends_over_its_broker(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(send_command, "_put", lambda *words: sent.append(words))
    status, out, _ = run(
        "send", file_of(example("17"), tmp_path), "--broker", "mqtt://127.0.0.1:1", "--timeout", "5"
    )
    assert (status, out.splitlines()[-1]) == (0, "its way: eventplane trace /homes/1/health 17 --follow")
    assert sent == [("health-service", "mqtt://127.0.0.1:1", example("17"), 5.0)]


def test_a_broker_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    words = ["--broker", f"mqtt://127.0.0.1:{free_port()}", "--timeout", "0.2"]
    done = subprocess.run(
        [sys.executable, "-m", "eventplane", "send", file_of(example("17"), tmp_path), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("health-service: no receipt within 0.2 s")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("type", "words", "problem"),
    [
        ("org.eventplane.health.reading.v1", [], "health-service runs on a device; name the home's broker"),
        # Its sender declares the family.
        ("org.eventplane.activity.door.v1", [], "activity-service runs on a device; name the home's broker"),
        ("org.example.none.v1", [], "no participant declares that it sends org.example.none.v1; name"),
        (NOTICE, ["--as", "nobody"], "no service is called 'nobody'; name one of: activity-service, "),
        (NOTICE, ["--broker", "localhost"], "'localhost' is no broker; write mqtt://HOST:PORT"),
        (NOTICE, ["--timeout", "0"], "'0' is no number above 0"),
    ],
)
def test_who_sends_it_has_to_be_clear(
    run: Run, tmp_path: Path, type: str, words: list[str], problem: str
) -> None:
    status, out, err = run("send", file_of(event("17", type), tmp_path), *words)
    assert (status, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


def put(plane: Plane, *ids: str) -> None:
    for id in ids:
        plane.send("care-analytics-inbox", event(id).stamped(**Sender("home-1", "health-service").attributes))


def test_what_another_reads_is_counted_and_costs_it_no_receive(
    plane: Plane, run: Run, run_json: RunJson
) -> None:
    put(plane, "17", "18")
    told = "care-analytics.inbox: 2 events wait, its reader has 0 in hand\n"
    assert run("inbox", "care-analytics") == (0, told, "")
    first, _ = plane.received("care-analytics-inbox")
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert run_json("inbox", "care-analytics") == {
        "inbox": "care-analytics.inbox",
        "waiting": 0,
        "in_hand": 2,
    }


@pytest.mark.lost_answers
def test_following_takes_each_event_once_and_no_more_than_it_was_asked_for(
    plane: Plane, contracts: str, run: Run
) -> None:
    put(plane, "17", "18", "19")
    status, out, err = run("inbox", "care-analytics", "--follow", "--most", "2", "--json")
    assert (status, "taking the events" in err) == (0, True)
    told = [json.loads(line) for line in out.splitlines()]
    assert len({each["event"]["id"] for each in told}) == 2
    assert {(each["route"], each["sender"]) for each in told} == {("a-route", "home-1/health-service")}
    assert plane.count("care-analytics-inbox") == 1


def test_what_it_takes_leaves_receipts(plane: Plane, contracts: str, run: Run) -> None:
    plane.create_pair("carers-receipts")
    pack = f"[{event('17').json},{event('18').json}]"
    hints = {"receipts": {"DataType": "String", "StringValue": "100"}}
    plane.sqs.send_message(QueueUrl=plane.urls["carers-inbox"], MessageBody=pack, MessageAttributes=hints)
    assert run("inbox", "carers", "--follow", "--most", "1")[1].count("\n") == 2
    (message,) = plane.received("carers-receipts")
    receipts = [read_receipt(line, "carers.inbox") for line in message["Body"].splitlines()]
    assert [(each.id, each.outcome) for each in receipts] == [("17", "delivered"), ("18", "delivered")]


def test_an_event_that_could_not_be_printed_is_not_taken(
    plane: Plane, contracts: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    put(plane, "17")
    monkeypatch.setattr("operations.inbox_command.present", closed)
    monkeypatch.setattr("sys.stderr", io.StringIO())  # the command closes it
    assert run("inbox", "care-analytics", "--follow", "--most", "1")[0] == 1
    assert plane.count("care-analytics-inbox") == 1


def test_following_ends_in_time_with_the_status_whether_all_came(
    plane: Plane, contracts: str, run: Run
) -> None:
    put(plane, "17")
    assert run("inbox", "care-analytics", "--follow", "--timeout", "0.1", "--most", "2")[0] == 1
    assert run("inbox", "care-analytics", "--follow", "--timeout", "0.1")[:2] == (0, "")


def test_where_data_is_kept_nothing_is_taken_unasked(plane: Plane, contracts: str, run: Run) -> None:
    boto3.client("dynamodb").update_table(TableName=contracts, DeletionProtectionEnabled=True)
    put(plane, "17")
    status, out, err = run("inbox", "care-analytics", "--follow", "--most", "1")
    assert (status, out) == (1, "")
    assert "add --take" in err
    assert plane.count("care-analytics-inbox") == 1
    assert run("inbox", "care-analytics", "--follow", "--most", "1", "--take")[0] == 0
    assert plane.count("care-analytics-inbox") == 0


def test_a_malformed_message_is_shown_escaped(plane: Plane, contracts: str, run: Run) -> None:
    plane.sqs.send_message(QueueUrl=plane.urls["carers-inbox"], MessageBody="no event")
    (message,) = plane.sqs.queue(plane.urls["carers-inbox"]).messages
    message.body = "no \x1b[2J event"
    _, out, _ = run("inbox", "carers", "--follow", "--most", "1")
    assert "no route  no \\x1b[2J event" in out


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["nobody"], 2, "no participant is called 'nobody'; name one of: alarm-centre"),
        (["call-service"], 2, "mosquitto_sub -q 1 -t "),
        (["carers", "--take"], 2, "go with --follow"),
        (["canary", "--env", "nowhere"], 1, "there is no environment 'nowhere'"),
    ],
)
def test_an_inbox_that_cannot_be_shown_is_one_error(
    plane: Plane, run: Run, words: list[str], status: int, problem: str
) -> None:
    found, out, err = run("inbox", *words)
    assert (found, out) == (status, "")
    assert problem in err
