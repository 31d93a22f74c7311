"""The client library in the deployed plane, with the rights of a participant and no others."""

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.reasons import Outcome
from eventplane_client import ClientSettings, connect
from eventplane_client.errors import NothingThereError
from eventplane_client.notices import DeadLettered, Notice
from lab.plane import Plane
from lab.process import Supervisor
from tests.eventually import eventually
from tests.integration.cloud import Archive, enter, enter_as, program_of

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "lab" / "examples" / "call_for_help.py"
SECONDS = 60
LOT = 12
KILLS = 5
OUTAGE_S = float(os.environ.get("OUTAGE_S", "12"))
"""Longer than five receives took before 0.4.0; `OUTAGE_S=120` takes two minutes."""
NEWS = {"exact": {"type": "org.eventplane.activity.news.v1"}}
_NUMBERS = count(1)


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
def test_it_answers_each_alarm_once(plane: Plane, supervisor: Supervisor, tmp_path: Path) -> None:
    database = tmp_path / "calls.db"
    environment = {
        **program_of(plane, "alarm-centre").environment(),
        "CALLS": str(database),
        "EVENTPLANE_CLIENT_PARTICIPANT": "alarm-centre",
        "EVENTPLANE_CLIENT_TRANSPORT": "sqs:local",
    }
    kill_while_it_works(supervisor, environment, database, lambda event: enter(plane, event))


def test_an_outage_handles_each_alarm_once(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(program_of(plane, "alarm-centre"), monkeypatch)
    sent, handled, notices = [alarm() for _ in range(LOT)], Counter[str](), list[Notice]()
    ids = {each.id for each in sent}
    ends = monotonic() + OUTAGE_S

    def call(event: Envelope) -> None:
        if monotonic() < ends:
            raise ConnectionRefusedError("the telephone exchange is down")
        handled[event.id] += 1

    settings = ClientSettings("sqs:local", "alarm-centre")
    with connect(settings, on_notice=notices.append) as centre, centre.subscribe() as inbox:
        for each in sent:
            enter(plane, each)
        while not ids <= handled.keys() and monotonic() < ends + SECONDS:
            inbox.handle(call, idle_s=1)
    assert Counter({id: handled[id] for id in ids}) == Counter(ids)
    assert [each for each in notices if isinstance(each, DeadLettered) and each.id in ids] == []


@pytest.mark.source("F1")
def test_a_participant_subscribes(plane: Plane, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(program_of(plane, "carers"), monkeypatch)
    with (
        connect(ClientSettings("sqs:local", "carers")) as carers,
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


def test_unhandled_does_not_come(plane: Plane, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(program_of(plane, "family-app"), monkeypatch)
    doors, motion = (f"org.eventplane.activity.{kind}.v1" for kind in ("door", "motion"))
    with connect(ClientSettings("sqs:local", "family-app")) as family, family.subscribe() as inbox:

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
