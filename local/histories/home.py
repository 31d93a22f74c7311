"""One home: its services, its broker, and the real forwarder over the real spool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from edge.components import make_links
from edge.errors import SpoolFullError, SpoolUnavailableError
from edge.forwarder import Forwarder
from edge.settings import CloudSettings, HealthSettings, LocalSettings, Settings
from edge.spool import Spool
from edge.system import System
from edge.uptime_clock import Uptime
from edge.without_disk import DiskWatch
from eventplane.contract import Contract
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.receipts import Receipt, digest, read_receipts, write_receipts
from eventplane.topics import local_topic, receipt_topic
from eventplane_mqtt import Endpoint
from eventplane_mqtt.mailbox import LinkName, Mailbox
from local.histories.broker import Broker, Client, Message
from local.histories.engine import START_S, Engine, Killed
from local.histories.iot_core import RULE
from local.histories.line import CLOUD_DELAY_S, HOME_DELAY_S, Dialled, Line

TURN_S: Final = 0.002
"""What one turn of the forwarder takes."""

AGAIN_S: Final = 10.0
"""How often a service repeats what it has no receipt for."""

TRUSTING: Final = ("activity-service",)
"""The services that wait for the broker's PUBACK only: its lasting session keeps what it has acknowledged."""

RESTART_S: Final = 5.0
"""How long the service manager takes to start a program again."""


class Disk:
    """What happens when the spool commits: `full` refuses, `broken` fails."""

    def __init__(self) -> None:
        self.state = "well"


class Home:
    """The home `thing`, at IoT Core's `cloud` broker. Its files are in `folder`."""

    def __init__(
        self, engine: Engine, thing: str, contract: Contract, cloud: Broker, folder: Path, random: Random
    ) -> None:
        self.thing = thing
        self.engine = engine
        self.contract = contract
        self.broker = Broker(engine)
        self.uplink = Line(engine, cloud, CLOUD_DELAY_S)
        self.inside = Line(engine, self.broker, HOME_DELAY_S)
        self.disk = Disk()
        self.wrong_by_s = 0.0
        self.fuse: int | None = None
        self.boot = 0
        self.services: dict[str, Service] = {}
        self.forwarder: Forwarder | None = None
        self.numbers: dict[tuple[str, str], tuple[str, int]] = {}
        self.for_cloud: set[tuple[str, int]] = set()
        """The epochs and numbers of the events that were stored for the cloud."""
        self.system = System(lambda: engine.now_s, self.now, self.uptime, lambda: 0.0, random.randbytes)
        self._folder = folder / thing
        self._folder.mkdir()
        self._settings = Settings(
            thing=thing,
            contract=self._folder / "contract.json",
            spool=self._folder / "spool.db",
            spool_capacity_bytes=64 * 1024 * 1024,
            heartbeat_s=300.0,
            manifest_interval_s=300.0,
            local=LocalSettings(),
            cloud=CloudSettings(host="cloud", rule=RULE),
            health=HealthSettings(),
            provisioning=None,
        )
        for name, each in contract.participants.items():
            if each.kind.value == "device_service":
                self.services[name] = Service(self, name)
        self.start()

    # Its clocks.

    def now(self) -> datetime:
        """The device's wall clock, which may be wrong."""
        return datetime.fromtimestamp(START_S, UTC) + timedelta(seconds=self.engine.now_s + self.wrong_by_s)

    def uptime(self) -> Uptime:
        return Uptime(f"boot-{self.boot}", round(1_000 * self.engine.now_s))

    # The forwarder as a program.

    def start(self) -> None:
        """Start the forwarder."""
        if self.forwarder is not None:
            return
        engine = self.engine
        self._mailbox: Mailbox[Any] = Mailbox()
        disk = DiskWatch(self._settings, self.system, self._open)
        spool = disk.open(engine.now_s)
        links = make_links(self._settings, lambda: self.contract, self._mailbox, self.system, self._connect)
        for share in self._mailbox.shares.values():
            share._notify = self._notify(share._notify)  # noqa: SLF001 - the loop that waits is not run here
        self._woken = False
        self.forwarder = Forwarder(
            self.contract, self._settings, spool, links, lambda *_: [], self.system, dict, disk=disk
        )
        self._wake()

    def kill(self, *, power: bool = False) -> None:
        """End the forwarder at this step; with `power` the whole device."""
        forwarder, self.forwarder, self.fuse = self.forwarder, None, None
        if forwarder is None:
            return
        self.engine.note(f"{self.thing} spool", "power cut" if power else "killed", is_fault=True)
        for line in (self.uplink, self.inside):
            for each in list(line.open):
                each.die()
        self._leave_files(forwarder.spool)
        if power:
            self.boot += 1
            self.broker.stop()
        self.engine.after(RESTART_S, self._again)

    def _again(self) -> None:
        self.broker.start()
        self.start()

    def _leave_files(self, spool: Spool) -> None:
        """Close the spool as a kill does: without SQLite's last words."""
        kept = {each: each.read_bytes() for each in self._folder.iterdir() if each.is_file()}
        spool.close()
        for each in self._folder.iterdir():
            if each.is_file() and each not in kept:
                each.unlink()
        for path, content in kept.items():
            path.write_bytes(content)

    def step(self, _what: str) -> None:
        """One of the steps between which the forwarder can be killed."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                raise Killed

    def _open(self, path: Path, system: System, **options: Any) -> Spool:
        return HomeSpool(self, path, system, **options)

    def _wake(self, forwarder: Forwarder | None = None) -> None:
        """Let the forwarder take a turn soon, if it is still the same one."""
        if not self._woken and forwarder in (None, self.forwarder):
            self._woken = True
            self.engine.after(TURN_S, self._turn)

    def _turn(self) -> None:
        self._woken = False
        forwarder = self.forwarder
        if forwarder is None:
            return
        try:
            forwarder.turn(self._mailbox.wait(0.0))
        except Killed:
            self.kill()
            return
        if any(each.waiting for each in self._mailbox.shares.values()):
            self._wake()
        elif (at_s := forwarder.deadline()) is not None:
            self.engine.at(max(at_s, self.engine.now_s + 0.001), lambda: self._wake(forwarder))

    # Its connections.

    def _put(self, item: Any) -> None:
        self._mailbox.put(item)
        self._wake()

    def _connect(
        self, endpoint: Endpoint, link: LinkName, generation: int, _: Any, share: Any, skips: Any
    ) -> Dialled:
        line = self.uplink if link is LinkName.CLOUD else self.inside
        return Dialled(line, endpoint, link, generation, self._put, share, skips, self.step)

    def _notify(self, notify: Callable[[bool], None]) -> Callable[[bool], None]:
        def both(eager: bool) -> None:
            notify(eager)
            self._wake()

        return both


class HomeSpool(Spool):
    """The real spool, on a disk that fails when the history says so."""

    def __init__(self, home: Home, path: Path, system: System, **options: Any) -> None:
        self._home = home
        if home.disk.state == "broken" and options.get("on_disk", True):
            raise SpoolUnavailableError(path, "the disk is broken", "replace it")
        super().__init__(path, system, **options)

    def commit(self, *given: Any, **named: Any) -> None:
        if self.is_on_disk:
            self._home.step("commit")
            if self._home.disk.state == "broken":
                raise SpoolUnavailableError(self.path, "the disk is broken", "replace it")
            if self._home.disk.state == "full" and given[0]:
                raise SpoolFullError(self.path, "the disk is full", "make room")
        super().commit(*given, **named)
        for each in given[0]:
            event = parse_event(each.json)
            self._home.numbers[event.source, event.id] = self.epoch, each.sequence
            if self._home.contract.device.outbox.address in each.destinations:
                self._home.for_cloud.add((self.epoch, each.sequence))
        if given[0]:
            self._home.engine.note(
                f"{self._home.thing} spool", f"stores {len(given[0])} up to {given[0][-1].sequence}"
            )
        if self.is_on_disk:
            self._home.step("committed")


class Service:
    """A service of the home: sends until it has a receipt, and handles each event of its inbox once."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.name = name
        self.pending: dict[str, bytes] = {}
        self.accepted: dict[str, tuple[float, str | None]] = {}
        self.handled: dict[tuple[str, str, str], float] = {}
        self.is_crashing = False
        contract = home.contract
        # A service without an inbox reads a topic that nothing comes over.
        self._has_receipts = contract.participants[name].inbox.receipts
        topics = receipt_topic(name, "outbox"), local_topic(name, "inbox")
        self._client = Client(home.broker, name, topics, self._hear)

    def say(self, event: Envelope) -> None:
        """Send `event`, and again until the forwarder has stored it; a `TRUSTING` service sends once."""
        payload = event.json.encode()
        self.pending[digest(payload)] = payload
        self.home.engine.note(f"{self.home.thing} {self.name}", f"says {event.id}")
        self._send(payload)

    def _send(self, payload: bytes) -> None:
        if digest(payload) not in self.pending:
            return
        is_taken = self._client.publish(local_topic(self.name, "outbox"), payload)
        if is_taken and self.name in TRUSTING:
            del self.pending[digest(payload)]
            self.accepted[digest(payload)] = self.home.engine.now_s, None
            return
        self.home.engine.after(AGAIN_S, lambda: self._send(payload))

    def _hear(self, message: Message) -> None:
        if message.topic == receipt_topic(self.name, "outbox"):
            for each in read_receipts(message.payload):
                if self.pending.pop(each.digest, None) is not None or each.refused:
                    self.accepted[each.digest] = self.home.engine.now_s, each.refused
                    self.home.engine.note(
                        f"{self.home.thing} {self.name}", f"receipt {each.refused or 'stored'}"
                    )
            return
        try:
            event = parse_event(message.payload)
        except EnvelopeError:
            return
        if self.is_crashing and self._has_receipts:
            return  # what it has taken from the broker and not confirmed has to come again
        key = (str(event.sender), event.source, event.id)
        if key not in self.handled:
            self.handled[key] = self.home.engine.now_s
            self.home.engine.note(f"{self.home.thing} {self.name}", f"handles {event.id}")
        if self._has_receipts:
            said = write_receipts([Receipt(digest(message.payload))])
            self._client.publish(receipt_topic(self.name, "inbox"), said)
