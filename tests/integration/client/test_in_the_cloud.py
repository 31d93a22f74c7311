"""The client library in the deployed plane, with the rights of a participant and no others."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import boto3
import pytest

from eventplane.batch import pack
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope, write_event
from eventplane.reasons import Outcome
from eventplane_client import ClientSettings, Mode, Sender, connect
from eventplane_client.errors import NothingThereError, UnavailableError
from eventplane_client.letters import letter as dead_letter
from eventplane_client.ports import Message
from local.cloud import CloudEndpoint
from local.plane import Plane
from local.process import Supervisor
from tests.eventually import eventually
from tests.integration.archive import Archive
from tests.integration.inboxes import enter

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "call_for_help.py"
SECONDS = 60
LOT = 12
KILLS = 5
NEWS = {"exact": {"type": "org.eventplane.activity.news.v1"}}
_NUMBERS = count(1)


def program_of(plane: Plane, participant: str) -> CloudEndpoint:
    """The cloud as the program of `participant` may enter it."""
    iam = plane.cloud.client("iam")
    user = f"{participant}-{next(_NUMBERS)}"
    iam.create_user(UserName=user)
    arn = f"arn:aws:iam::{plane.cloud.account}:policy/eventplane-local-{participant}-client"
    iam.attach_user_policy(UserName=user, PolicyArn=arn)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    return replace(plane.cloud, access_key_id=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"])


def enter_as(program: CloudEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in program.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def news() -> Envelope:
    return write_event({"id": f"n{next(_NUMBERS)}", "source": "/news", "type": NEWS["exact"]["type"]})


def alarm() -> Envelope:
    attributes = {"id": f"alarm-{next(_NUMBERS)}", "source": "/homes/1/voice"}
    return write_event({**attributes, "type": "org.eventplane.alarm.keyword.v1"}, {"keyword": "help"})


def answered(database: Path) -> list[str]:
    if not database.exists():
        return []
    with sqlite3.connect(database) as db:
        try:
            return [id for (id,) in db.execute("SELECT id FROM call")]
        except sqlite3.OperationalError:
            return []


def kill_while_it_works(
    supervisor: Supervisor, environment: dict[str, str], database: Path, send: Callable[[Envelope], None]
) -> None:
    """Send alarms and kill the example in the midst of each lot; at the end it has each alarm once."""
    service = supervisor.start(
        "call-for-help", [sys.executable, str(EXAMPLE)], env={**environment, "PYTHONPATH": str(ROOT)}
    )
    sent: list[Envelope] = []
    for _ in range(KILLS):
        lot = [alarm() for _ in range(LOT)]
        for each in [*lot, lot[0], *sent[-1:]]:
            send(each)
        before = len(answered(database))
        assert eventually(lambda before=before: len(answered(database)) > before, SECONDS), (
            service.log.read_text()
        )
        service.kill()
        service.start()
        sent += lot
    ids = {each.id for each in sent}  # what another test has left in the inbox does not count
    assert eventually(lambda: ids <= set(answered(database)), 2 * SECONDS), service.log.read_text()
    service.stop()
    assert Counter(each for each in answered(database) if each in ids) == Counter(ids)


@pytest.fixture
def soon_again(plane: Plane) -> Iterator[None]:
    """What a killed reader of the alarm centre's inbox had in hand comes again after three seconds."""
    sqs, url, name = plane.cloud.client("sqs"), plane.inboxes["alarm-centre"], "VisibilityTimeout"
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: "3"})
    yield
    sqs.set_queue_attributes(QueueUrl=url, Attributes=before)


@pytest.mark.source("P14")
@pytest.mark.usefixtures("soon_again")
@pytest.mark.parametrize("state", ["", "dynamodb-log:eventplane-local-filter"])
def test_the_example_answers_each_alarm_exactly_once_although_it_is_killed(
    plane: Plane, supervisor: Supervisor, tmp_path: Path, state: str
) -> None:
    database = tmp_path / "calls.db"
    environment = {
        **program_of(plane, "alarm-centre").environment(),
        "CALLS": str(database),
        "EVENTPLANE_CLIENT_PARTICIPANT": "alarm-centre",
        "EVENTPLANE_CLIENT_TRANSPORT": "sqs:local",
        "EVENTPLANE_CLIENT_STATE": state,
    }
    kill_while_it_works(supervisor, environment, database, lambda event: enter(plane, event))


@pytest.mark.source("F1")
def test_a_participant_subscribes_to_what_the_contract_does_not_lead_to_it(
    plane: Plane, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_as(program_of(plane, "carers"), monkeypatch)
    with (
        connect(ClientSettings("carers", "sqs:local")) as carers,
        carers.subscribe(NEWS, name="news") as inbox,
    ):
        found: list[str] = []

        def arrives() -> bool:
            enter(plane, news())
            try:
                found.append(inbox.get(2).id)
            except NothingThereError:
                return False
            return True

        assert eventually(arrives, SECONDS)
        assert len(set(found)) == len(found)
        carers.unsubscribe("news")

        def has_ended() -> bool:
            enter(plane, news())
            try:
                inbox.get(3)
            except NothingThereError:
                return True
            return False

        assert eventually(has_ended, SECONDS)
    assert any(b'"carers-subscribes-news"' in archive.body(key) for key in archive.keys("contracts"))


def test_what_a_participant_does_not_handle_does_not_come_and_the_ledger_says_so(
    plane: Plane, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_as(program_of(plane, "family-app"), monkeypatch)
    doors, motion = (f"org.eventplane.activity.{kind}.v1" for kind in ("door", "motion"))
    with connect(ClientSettings("family-app", "sqs:local")) as family, family.subscribe() as inbox:

        def round_of_both() -> tuple[set[str], set[str]]:
            """A motion and then a door come in; which of them come out."""
            number = next(_NUMBERS)
            sent = {f"{kind}-{number}" for kind in ("motion", "door")}
            for kind in (motion, doors):
                id = f"{kind.split('.')[-2]}-{number}"
                enter(plane, write_event({"id": id, "source": "/homes/1", "type": kind}, {"state": "moved"}))
            found: set[str] = set()
            while not found >= sent:
                try:
                    found.add(inbox.get(3).id)
                except NothingThereError:
                    break
            return sent, found

        def come_both() -> bool:
            sent, found = round_of_both()
            return found >= sent

        assert eventually(come_both, SECONDS)
        family.announce([{"exact": {"type": doors}}])

        def is_in_force() -> bool:
            sent, found = round_of_both()
            return {each for each in sent if each.startswith("door")} == found & sent

        assert eventually(is_in_force, SECONDS)
        family.withdraw()

        assert eventually(come_both, SECONDS)

    def spared() -> set[tuple[str, str]]:
        """The types and routes of what the ledger says was not wanted."""
        rows = archive.rows("ledger")
        return {(each["type"], each["route"]) for each in rows if each["outcome"] == Outcome.NO_INTEREST}

    assert eventually(lambda: spared() == {(motion, "daily-life-to-family")}, SECONDS)


def test_events_of_a_packed_inbox_come_out_one_by_one(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [
        write_event(
            {"id": f"packed-{at}", "source": "/homes/1/health", "type": "org.eventplane.health.reading.v1"},
            {"quantity": "body-weight", "value": 70 + at, "unit": "kg"},
        )
        for at in range(40)
    ]
    sqs, queue = plane.cloud.client("sqs"), plane.inboxes["care-analytics"]
    sqs.purge_queue(QueueUrl=queue)
    enter(plane, pack(readings))

    def lengths() -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    assert eventually(lambda: lengths() == (1, 0), SECONDS)
    enter_as(program_of(plane, "care-analytics"), monkeypatch)
    with connect(ClientSettings("care-analytics", "sqs:local")) as analytics, analytics.subscribe() as inbox:
        first, failing, *others = inbox.receive_batch(40, 10)
        failing.nack()
        for each in (first, *others):
            each.ack()
        again = inbox.receive(10)
        assert (again.event.id, again.attempt) == (failing.event.id, 2)
        again.ack()
        with pytest.raises(NothingThereError):
            inbox.receive(0)
    assert [each.event.id for each in (first, failing, *others)] == [each.id for each in readings]
    assert eventually(lambda: lengths() == (0, 0), SECONDS)


def test_a_participants_program_may_not_read_or_route_for_another(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_as(program_of(plane, "carers"), monkeypatch)
    with pytest.raises(UnavailableError):
        connect(ClientSettings("family-app", "sqs:local"))


def test_it_sends_over_its_outbox(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(program_of(plane, "operations"), monkeypatch)
    settings = ClientSettings("operations", "sqs:local", mode=Mode.AT_LEAST_ONCE)
    unread = alarm()
    letter = dead_letter(
        "operations", Message(unread.json.encode(), 1, None), unread, Refusal("test", "unread")
    )
    with connect(settings) as operations, operations.subscribe() as inbox:
        operations.put(letter)

        def arrives() -> bool:
            received = inbox.receive(10)
            received.ack()
            return received.event.claim == letter.claim and received.sender == Sender("", "operations")

        assert eventually(arrives, SECONDS)
