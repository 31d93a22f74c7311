"""The scene of the attacks: the deployed plane, a victim's home, its attackers, and all that anybody sees."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from eventplane.batch import pack
from eventplane.contract import Downlink
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.downlink.table import DESIRED, sort_key
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.presence import BUCKETS
from eventplane.topics import basic_ingest_topic
from eventplane_client import Client, ClientSettings, Inbox, connect
from eventplane_client.errors import NothingThereError, RefusedError, UnavailableError
from eventplane_client.mqtt import MqttTransport
from lab.cloud import CloudEndpoint
from lab.plane import Plane, invoke
from lab.things import Thing
from tests.eventually import eventually
from tests.integration.access import Guarded
from tests.integration.cloud import Archive, enter_as, run
from tests.integration.cloud import Inboxes as SharedInboxes
from tests.integration.downlink import Home
from tests.integration.mqtt import TestClient

VICTIM = "home-7"
THIEF = "thief"
PATIENCE_S = 240.0
"""How long a trace may take to show, on a busy machine; nothing here is about speed."""

ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"
HELP = {"keyword": "help"}
VOICE = f"/homes/{VICTIM}/voice"
"""The `source` by which the victim's home calls for help."""

_NUMBERS = count(1)


def new_id() -> str:
    """An id that no other event of the session has."""
    return f"attack-{next(_NUMBERS)}"


class Attacker(Protocol):
    """Somebody who sends with credentials that he has; `name` is the sender that the plane should see."""

    @property
    def name(self) -> str: ...

    def send(self, event: Envelope) -> None:
        """Send `event` as what it says it is."""


@dataclass(frozen=True)
class StolenDevice:
    """Whoever holds a device's certificate, connected with it; `service` is whom a frame of his names."""

    thing: Thing
    line: TestClient
    rule: str
    service: str = ""

    @property
    def name(self) -> str:
        return f"{self.thing.name}/{self.service}"

    def send(self, event: Envelope) -> None:
        if self.service:
            self.publish(pack([event.stamped(senderservice=self.service)]))
        else:
            self.publish(event.json.encode())

    def publish(self, payload: bytes) -> None:
        """Publish whatever bytes to the device's own outbox."""
        assert self.line.publish(basic_ingest_topic(self.rule, self.thing.name), payload)

    def naming(self, service: str) -> StolenDevice:
        """The same device, whose frames say that `service` sent the event."""
        return StolenDevice(self.thing, self.line, self.rule, service)


@dataclass(frozen=True)
class HostileService:
    """A service on the victim's device, with its own user at the home's broker, which `guarded` has."""

    service: str
    guarded: Guarded

    @property
    def name(self) -> str:
        return f"{VICTIM}/{self.service}"

    def send(self, event: Envelope) -> None:
        port, login = self.guarded.broker.port, self.guarded.login(self.service)
        # The forwarder's receipt says that it refused.
        with closing(MqttTransport(self.service, port=port, login=login)) as client, suppress(RefusedError):
            # As bytes: of an event the client leaves out what only the plane may write.
            client.put(event.json.encode(), PATIENCE_S)


@dataclass(frozen=True)
class CompromisedProgram:
    """The program of a cloud service, with the rights of its participant: read its inbox, fill its outbox."""

    name: str
    cloud: CloudEndpoint
    outbox: str

    def send(self, event: Envelope) -> None:
        self.cloud.client("sqs").send_message(QueueUrl=self.outbox, MessageBody=event.json)


@dataclass(frozen=True)
class Letter:
    """A dead letter in the operators' inbox."""

    event: Envelope

    @property
    def data(self) -> Mapping[str, Any]:
        return self.event.data()

    @property
    def original(self) -> bytes:
        return base64.b64decode(self.data["original_base64"])

    @property
    def original_id(self) -> str:
        try:
            return parse_event(self.original).id
        except EnvelopeError:
            return ""

    @property
    def sender(self) -> str:
        """Who sent the original. What a device says of another device does not count."""
        said = self.data.get("sender") or {}
        device = self.event.attributes.get("senderdevice") or said.get("device")
        service = said.get("service") or ""
        return f"{device}/{service}" if device else str(service)


ALARM_CENTRE = "alarm-centre"


class Inboxes:
    """What came to the cloud services, by service, in order.

    The alarm centre reads by the client library, which hands out each event once; the inboxes of the others
    are emptied as they are.
    """

    def __init__(self, plane: Plane) -> None:
        self.events: dict[str, list[Envelope]] = defaultdict(list)
        self._others = SharedInboxes(plane)
        self._services = plane.inboxes.keys() - {ALARM_CENTRE}
        self._stopping = threading.Event()

    @contextmanager
    def listening(self, alarm_centre: Client) -> Iterator[None]:
        """Let the alarm centre read, in a thread, until the end of the block."""

        def listen(inbox: Inbox) -> None:
            while not self._stopping.is_set():
                with suppress(NothingThereError, UnavailableError):  # the emulated cloud may be busy
                    self.events[ALARM_CENTRE].append(inbox.get(1))

        with alarm_centre.subscribe() as inbox, ThreadPoolExecutor(1) as thread:
            done = thread.submit(listen, inbox)
            try:
                yield
            finally:
                self._stopping.set()
                done.result()

    def drain(self) -> None:
        """Take over what came since."""
        for service in self._services:
            self.events[service] = self._others.events(service)

    def letters(self) -> Iterator[Letter]:
        """The dead letters that operators got."""
        return (Letter(each) for each in self.events["operations"] if each.type == DEAD_LETTER_TYPE)


@dataclass
class World:
    """The plane, the victim's home and its broker, and who attacks them.

    `log` is what the emulated cloud logs of itself, as IoT Core's own log does; `folder` is for files.
    """

    plane: Plane
    home: Home
    guarded: Guarded
    thief: StolenDevice
    programs: Mapping[str, CompromisedProgram]
    service: HostileService
    log: Path
    folder: Path
    inboxes: Inboxes = field(init=False)
    archive: Archive = field(init=False)

    def __post_init__(self) -> None:
        self.inboxes = Inboxes(self.plane)
        self.archive = Archive(self.plane)

    @property
    def cloud(self) -> CloudEndpoint:
        return self.plane.cloud

    def attacker(self, name: str) -> Attacker:
        """The attacker called `name`: `thief/`, `thief/SERVICE`, the hostile service, or a cloud service."""
        if name == self.service.name:
            return self.service
        _, slash, service = name.partition("/")
        if not slash:
            return self.programs[name]
        return self.thief.naming(service) if service else self.thief

    def who_got(self, event: Envelope) -> list[str]:
        """Everybody who got an event with this id: in the cloud, in the home, on its way down to the home."""
        self.inboxes.drain()
        found = [
            service
            for service, events in [*self.inboxes.events.items(), *self.home.got.items()]
            if any((each.source, each.id) == (event.source, event.id) for each in events)
        ]
        key, version = (str(event.attributes.get(each, "")) for each in ("statekey", "stateversion"))
        state = {"sk": {"S": sort_key(Downlink.STATE, key)}, "acknowledged_version": {"N": version}}
        wanted = [
            f"the state of {device}"
            for device in (VICTIM, THIEF)
            for item in self.desired(device)
            if event.id in json.dumps(item) or state.items() <= item.items()
        ]
        return found + wanted

    def desired(self, device: str) -> list[dict[str, Any]]:
        """What the plane's table says that `device` should have."""
        answer = self.cloud.client("dynamodb").query(
            TableName=self.plane.outputs["DesiredTable"],
            KeyConditionExpression="thing = :thing",
            ExpressionAttributeValues={":thing": {"S": device}},
            ConsistentRead=True,
        )
        return answer["Items"]

    def on_its_way(self, event: Envelope) -> Envelope | None:
        """The event as it waits for the victim's device, None where it does not wait."""
        items = [DESIRED.from_item(item) for item in self.desired(VICTIM)]
        found = [each for item in items for each in (item.message, *item.waiting)]
        return next((parse_event(each.text) for each in found if each and each.id == event.id), None)

    @contextmanager
    def enter_as(self, participant: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
        """The client library with the rights of a participant."""
        contract = self.folder / "contract.json"
        contract.write_bytes(self.plane.contract.canonical)
        enter_as(self.programs[participant].cloud, monkeypatch)
        with connect(ClientSettings("sqs:local", participant, contract=str(contract))) as client:
            yield client

    def letter(self, event: Envelope) -> Letter | None:
        """The dead letter about `event`, if one came."""
        self.inboxes.drain()
        return next((each for each in self.inboxes.letters() if each.original_id == event.id), None)

    def letter_about(self, payload: bytes) -> Letter | None:
        """The dead letter about a payload that is no event, if one came."""
        self.inboxes.drain()
        digest = hashlib.sha256(payload).hexdigest()
        return next((each for each in self.inboxes.letters() if each.data["original_sha256"] == digest), None)

    def decisions(self, event: Envelope) -> list[dict[str, Any]]:
        """What the ledger says of the event, a row for each decision."""
        return [
            row
            for row in self.archive.rows("ledger")
            if (row["source"], row["id"]) == (event.source, event.id)
        ]

    def deciders(self, event: Envelope) -> set[str]:
        """The senders that the ledger names of the event."""
        return {str(row.get("sender")) for row in self.decisions(event)}

    def accepted_from(self, event: Envelope) -> set[str]:
        """The clients from which the tap has an event with this id."""
        found = set()
        for row in self.archive.rows("tap"):
            if row["event"] and event.id in row["event"] and json.loads(row["event"])["id"] == event.id:
                found.add(row["client_id"])
        return found

    def problem_of_trace(self, event: Envelope, sender: str, reason: str, since: float | None = None) -> str:
        """Why the plane does not name `sender` of a refused event in time; '' when it does."""
        found = [""]

        def is_traced() -> bool:
            found[0] = self._problem_of_trace(event, sender, reason)
            return not found[0]

        self.comes(is_traced, since)
        return found[0]

    def calls_for_help(self) -> Envelope:
        """The victim's voice-service calls for help; return the event once it is in the device's spool."""
        alarm = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
        self.home.services["voice-service"].put(alarm, PATIENCE_S)
        return alarm

    def is_heard(self, alarm: Envelope) -> bool:
        """Whether an alarm of the victim reaches its call-service, the alarm centre and the family."""
        everybody = {"call-service", "alarm-centre", "family-app"}
        return self.comes(lambda: everybody <= set(self.who_got(alarm)))

    def comes(self, condition: Callable[[], bool], since: float | None = None) -> bool:
        """Whether `condition` holds in time, which counts from `since` (`time.monotonic`), else from now."""
        waited = 0.0 if since is None else time.monotonic() - since
        return eventually(condition, max(0.0, PATIENCE_S - waited), 0.1)

    def logged(self, *words: str) -> bool:
        """Whether a line of the emulated cloud's log has all `words`."""
        return any(all(word in line for word in words) for line in self.log.read_text().splitlines())

    def sweep(self) -> None:
        """Have everything judged that is due: nobody waits for timers here."""
        judged = {"buckets": list(range(BUCKETS)), "overdue_ms": 0}
        invoke(self.cloud, "eventplane-local-presence-reconciler", judged)

    def operator(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the operators' command line."""
        return run(self.cloud, *arguments)

    def _problem_of_trace(self, event: Envelope, sender: str, reason: str) -> str:
        letter = self.letter(event)
        if letter is None:
            return "no dead letter came to operations"
        if (letter.sender, letter.data["reason"]) != (sender, reason):
            return f"the dead letter says {letter.sender!r}: {letter.data['reason']}, {letter.data['detail']}"
        if sender == self.service.name:
            return ""  # refused in the home: the cloud's ledger has its letter only
        rows = self.decisions(event)
        if [(row.get("sender"), row["outcome"], row["reason"]) for row in rows] != [
            (sender, "dead_lettered", reason)
        ]:
            return f"the ledger says {rows}"
        device, slash, _ = sender.partition("/")
        if slash and self.accepted_from(event) != {device}:
            return f"the tap has it from {self.accepted_from(event)}"
        return ""
