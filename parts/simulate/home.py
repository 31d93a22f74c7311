"""One home: its services, its broker, and the real forwarder over the real spool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final

from edge.components import make_links
from edge.contract_updates import active_contract, keep_contract, read_contract
from edge.errors import SettingProblem, SpoolFullError, SpoolUnavailableError
from edge.forwarder import Forwarder, Reload
from edge.settings import CloudSettings, HealthSettings, LocalSettings, Settings
from edge.spool import Delivery, Discard, StoredEvent
from edge.spool.store import Spool
from edge.system import Host, Uptime
from edge.without_disk import DiskWatch
from eventplane.contract import Contract, Downlink, Priority
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.receipts import Receipt, digest, read_receipts, write_receipts
from eventplane.topics import local_topic, receipt_topic
from eventplane.values import RandomBytes
from eventplane_mqtt import Endpoint
from eventplane_mqtt.mailbox import LinkName, Mailbox
from parts.simulate.broker import BrokerMessage, BrokerModel, ClientModel, Limits, profile_number
from parts.simulate.line import CLOUD_DELAY_S, HOME_DELAY_S, Dialled, LineModel
from parts.simulate.timeline import START_S, Killed, Timeline, Wakeup

SCRATCH: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - in memory, a folder of its own in it

RULE: Final = "ingest"
"""The rule of IoT Core that reads what homes publish."""

TURN_S: Final = 0.002
"""What one turn of the forwarder takes."""

AGAIN_S: Final = 10.0
"""How often a service repeats what it has no receipt for."""

RELOADS_S: Final = 1.0
"""How long a forwarder may take to follow another contract, seconds."""

RESTART_S: Final = 5.0
"""How long the service manager takes to start a program again."""


@cache
def home_limits() -> Limits:
    """Return what Mosquitto keeps for a client by the device's profile."""
    return Limits(
        profile_number("max_inflight_messages"), profile_number("max_queued_messages"), queues_qos_0=True
    )


class Disk:
    """The behaviour of the spool's disk at a commit: `full` refuses, `broken` fails."""

    def __init__(self) -> None:
        self.state = "well"


@dataclass(slots=True)
class Kept:
    """An event in the spool for the cloud: when it was stored, and when and how its delivery ended."""

    at_s: float
    is_urgent: bool
    ended_s: float = inf
    is_sent: bool = False


class HomeModel:
    """The home `thing`, at IoT Core's `cloud` broker. Its files are in `folder`.

    Services that are `trusting` wait for the broker's PUBACK only: its lasting session keeps what it has
    acknowledged. The others repeat an event until they have the forwarder's receipt. `settings` of the
    forwarder replace those below.
    """

    def __init__(
        self,
        engine: Timeline,
        thing: str,
        contract: Contract,
        cloud: BrokerModel,
        folder: Path,
        random_bytes: RandomBytes,
        trusting: Collection[str],
        settings: Mapping[str, Any],
    ) -> None:
        self.thing = thing
        self.engine = engine
        self.contract = contract
        self.trusting = trusting
        self.broker = BrokerModel(engine, home_limits())
        self.uplink = LineModel(engine, cloud, CLOUD_DELAY_S)
        self.inside = LineModel(engine, self.broker, HOME_DELAY_S)
        self.disk = Disk()
        self.wrong_by_s = 0.0
        self.is_frozen = False
        """Whether its forwarder takes no further turn."""
        self.fuse: int | None = None
        self.fuse_at = ""
        self._alarm: Wakeup | None = None
        self.boot = 0
        self.services: dict[str, ServiceModel] = {}
        self.forwarder: Forwarder | None = None
        self.numbers: dict[tuple[str, str], tuple[str, int]] = {}
        self.for_cloud: dict[tuple[str, int], Kept] = {}
        """What was stored for the cloud, by epoch and number."""
        self.published: list[tuple[float, str, bytes]] = []
        """When the forwarder published what to the cloud over which topic, while it had a disk."""
        self.ended_s: list[float] = []
        """When the forwarder, or the device, was killed: what is only in memory is lost then."""
        self.system = Host(lambda: engine.now_s, self.now, self.uptime, lambda: 0.0, random_bytes)
        self.folder = folder / thing
        self.folder.mkdir()
        self.states: dict[str, list[int]] = {}
        """The versions of each state that were stored, by key."""
        self.contracts: list[tuple[float, Contract]] = []
        """From when on the home followed which contract."""
        self._settings = Settings(
            thing=thing,
            contract=self.folder / "contract.json",
            spool=self.folder / "spool.db",
            local=LocalSettings(),
            cloud=CloudSettings(host="cloud", rule=RULE),
            health=HealthSettings(),
            provisioning=None,
            **settings,
        )
        self._settings.contract.write_bytes(contract.canonical)
        for name, each in contract.participants.items():
            if each.kind.value == "device_service":
                self.services[name] = ServiceModel(self, name)
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
        contract = self._active_contract(spool)
        links = make_links(
            self._settings, lambda: self.contracts[-1][1], self._mailbox, self.system, self._connect
        )
        for share in self._mailbox.shares.values():
            share._notify = self._notify(share._notify)  # noqa: SLF001 - the loop that waits is not run here
        self._woken = False
        self.forwarder = Forwarder(
            contract,
            self._settings,
            spool,
            links,
            lambda *_: [],
            self.system,
            dict,
            self._contract_came,
            self.contract,
            disk=disk,
        )
        self._wake()

    def _active_contract(self, spool: Spool) -> Contract:
        """Return the contract to follow: the last that came down, or the image's."""
        found = active_contract(read_contract(self._settings.contract), spool, self.contract)
        contract = self.contract if isinstance(found, SettingProblem) else found.contract
        self.contracts.append((self.engine.now_s, contract))
        keep_contract(contract, self._settings.spool)
        return contract

    def _contract_came(self) -> None:
        forwarder = self.forwarder
        if forwarder is not None and forwarder.disk.failure is None:
            self._put(Reload(self._active_contract(forwarder.spool), self.contract))

    def contract_at(self, at_s: float) -> Contract | None:
        """Return the contract that the home follows at a moment; None while it changes."""
        if any(abs(each - at_s) < RELOADS_S for each, _ in self.contracts[1:]):
            return None
        return next(contract for since_s, contract in reversed(self.contracts) if since_s <= at_s)

    def kill(self, *, power: bool = False, for_s: float = RESTART_S) -> None:
        """End the forwarder at this step for so long; with `power` the whole device."""
        forwarder, self.forwarder, self.fuse = self.forwarder, None, None
        if forwarder is None:
            return
        self.ended_s.append(self.engine.now_s)
        self.engine.note(f"{self.thing} spool", "power cut" if power else "killed", is_fault=True)
        for line in (self.uplink, self.inside):
            for each in list(line.open):
                each.die()
        self._leave_files(forwarder.spool)
        if power:
            self.boot += 1
            self.broker.stop()
        self.engine.after(for_s, self._again)

    def _again(self) -> None:
        self.broker.start()
        self.start()

    def _leave_files(self, spool: Spool) -> None:
        """Close the spool as a kill does: without SQLite's last words."""
        kept = {each: each.read_bytes() for each in self.folder.iterdir() if each.is_file()}
        spool.close()
        for each in self.folder.iterdir():
            if each.is_file() and each not in kept:
                each.unlink()
        for path, content in kept.items():
            path.write_bytes(content)

    def step(self, what: str) -> None:
        """One of the steps between which the forwarder can be killed; `fuse` counts those at `fuse_at`."""
        if self.fuse is not None and self.fuse_at in ("", what):
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                raise Killed

    def _open(self, path: Path, system: Host, **options: Any) -> Spool:
        return HomeSpool(self, path, system, **options)

    def _wake(self, forwarder: Forwarder | None = None) -> None:
        """Let the forwarder take a turn soon, if it is still the same one."""
        if not self._woken and forwarder in (None, self.forwarder):
            self._woken = True
            self.engine.after(TURN_S, self._turn)

    def _turn(self) -> None:
        self._woken = False
        if self._alarm is not None:
            self._alarm.is_off = True  # the turn has a deadline of its own
        forwarder = self.forwarder
        if forwarder is None or self.is_frozen:
            return
        try:
            forwarder.turn(self._mailbox.wait(0.0))
        except Killed:
            self.kill()
            return
        if any(each.waiting for each in self._mailbox.shares.values()):
            self._wake()
        elif (at_s := forwarder.deadline()) is not None:
            at_s = max(at_s, self.engine.now_s + 0.001)
            self._alarm = self.engine.at(at_s, lambda: self._wake(forwarder))

    # What becomes of events.

    def note_stored(self, epoch: str, stored: StoredEvent, event: Envelope) -> None:
        """Record that the spool of an `epoch` has an event."""
        self.numbers[event.claim] = epoch, stored.sequence
        if self.contract.device.outbox.address in stored.destinations:
            is_urgent = stored.rank <= Priority.URGENT.rank
            self.for_cloud[epoch, stored.sequence] = Kept(self.engine.now_s, is_urgent)

    def note_ended(self, epoch: str, delivery: Delivery, discard: Discard | None = None) -> None:
        """Record that a delivery has ended: it was made, or it is a `discard`."""
        if delivery.destination == self.contract.device.outbox.address:
            kept = self.for_cloud[epoch, delivery.sequence]
            kept.ended_s, kept.is_sent = self.engine.now_s, discard is None

    # Its connections.

    def _put(self, item: Any) -> None:
        self._mailbox.put(item)
        self._wake()

    def _connect(
        self, endpoint: Endpoint, link: LinkName, generation: int, _: Any, share: Any, skips: Any
    ) -> Dialled:
        is_cloud = link is LinkName.CLOUD
        line, note = (self.uplink, self._note_publish) if is_cloud else (self.inside, None)
        return Dialled(line, endpoint, link, generation, self._put, share, skips, self.step, note)

    def _note_publish(self, topic: str, payload: bytes) -> None:
        if self.forwarder is not None and self.forwarder.disk.failure is None:
            self.published.append((self.engine.now_s, topic, payload))

    def _notify(self, notify: Callable[[bool], None]) -> Callable[[bool], None]:
        def both(eager: bool) -> None:
            notify(eager)
            self._wake()

        return both


class HomeSpool(Spool):
    """The real spool, on a disk that fails when the history says so."""

    def __init__(self, home: HomeModel, path: Path, system: Host, **options: Any) -> None:
        self._home = home
        if home.disk.state == "broken" and options.get("on_disk", True):
            raise SpoolUnavailableError(path, "the disk is broken", "replace it")
        super().__init__(path, system, **options)

    def commit(
        self,
        events: Sequence[StoredEvent],
        done: Iterable[Delivery] = (),
        discarded: Iterable[Discard] = (),
        **more: Any,
    ) -> None:
        done, discarded = list(done), list(discarded)
        if self.is_on_disk:
            self._home.step("commit")
            if self._home.disk.state == "broken":
                raise SpoolUnavailableError(self.path, "the disk is broken", "replace it")
            if self._home.disk.state == "full" and events:
                raise SpoolFullError(self.path, "the disk is full", "make room")
        super().commit(events, done, discarded, **more)
        for each in events:
            self._home.note_stored(self.epoch, each, parse_event(each.json))
        ended = [*((each, None) for each in done), *((each.delivery, each) for each in discarded)]
        for delivery, discard in ended:
            self._home.note_ended(self.epoch, delivery, discard)
        if events:
            note = f"stores {len(events)} up to {events[-1].sequence}"
            self._home.engine.note(f"{self._home.thing} spool", note)
        for state in more.get("states", ()):
            if state.kind is Downlink.STATE:
                self._home.states.setdefault(state.key, []).append(state.state_version.version)
        if self.is_on_disk:
            self._home.step("committed")


class ServiceModel:
    """A service of the home: sends until it has a receipt, and handles each event of its inbox once."""

    def __init__(self, home: HomeModel, name: str) -> None:
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
        self._client = ClientModel(home.broker, name, topics, self._hear)

    def say(self, event: Envelope) -> None:
        """Send `event`, and again until the forwarder has stored it; a trusting service sends once."""
        payload = event.json.encode()
        self.pending[digest(payload)] = payload
        self.home.engine.note(f"{self.home.thing} {self.name}", f"says {event.id}")
        self._send(payload)

    def _send(self, payload: bytes) -> None:
        if digest(payload) not in self.pending:
            return
        is_taken = self._client.publish(local_topic(self.name, "outbox"), payload)
        if is_taken and self.name in self.home.trusting:
            del self.pending[digest(payload)]
            self.accepted[digest(payload)] = self.home.engine.now_s, None
            return
        self.home.engine.after(AGAIN_S, lambda: self._send(payload))

    def _hear(self, message: BrokerMessage) -> None:
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
