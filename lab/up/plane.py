"""The plane that is up, as the control room sees it: what happens in it, and what can be done to it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self
from uuid import uuid4

from eventplane.contract import Channel, Contract, Place
from eventplane.envelope import Envelope, write_event
from eventplane.names import OWN_SERVICES
from eventplane.resource_names import source_queue
from eventplane.values import timestamp
from lab.background import Background
from lab.chaos.fault_proxy import Outage, ProxyTarget
from lab.cloud import CloudEndpoint
from lab.control_room.plane import RoomFault, Stage, StageStanding, State
from lab.control_room.tally import Counters, Tally
from lab.emulator import kill_functions, queued_messages
from lab.errors import LocalError
from lab.home import Home
from lab.oracle import SentLog
from lab.plane import ROUTERS, leads_to_inbox
from lab.process import Child
from lab.services import CALL_SERVICE, CallService, Service
from lab.up.observer import HomeObserver, ObservingProxy

ALARM: Final = "org.eventplane.alarm.keyword.v1"
VOICE_SERVICE: Final = "voice-service"

_SEND_S: Final = 1.0
"""How long an alarm waits for room in the window of 200 alarms without a receipt."""

_S3: Final = ProxyTarget("s3")
_REFRESH_S: Final = 0.5


class NoRouterError(LocalError):
    """No process of a router runs."""

    def __init__(self) -> None:
        super().__init__("no router runs at the moment; send an alarm first, which starts one")


class NothingToHealError(LocalError):
    """`fault` is over as soon as it began."""

    def __init__(self, fault: RoomFault) -> None:
        self.fault = fault
        super().__init__(f"{fault} does not last: the process starts again by itself")


@dataclass(frozen=True, slots=True)
class StageBacklog:
    """Pending deliveries in the spool, messages on their way through the cloud and in inboxes, and `given_up`
    by the routers: in the dead-letter queues of what they read."""

    spool: int = 0
    on_the_way: int = 0
    inboxes: int = 0
    given_up: int = 0

    def __str__(self) -> str:
        counts = {
            "deliveries in the spool": self.spool,
            "messages on the way": self.on_the_way,
            "messages in dead-letter queues": self.given_up,
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


class BacklogWatch(Background):
    """Counts every half second what waits in `home` and in the queues of `cloud`; `now` is the last count."""

    def __init__(self, cloud: CloudEndpoint, home: Home, inboxes: Mapping[str, str]) -> None:
        super().__init__("backlog")
        self.now = StageBacklog()
        self.inboxes = inboxes
        self._cloud = cloud
        self._home = home

    def _run(self) -> None:
        while not self._ending.wait(_REFRESH_S):
            found = {name: len(each) for name, each in queued_messages(self._cloud).items()}
            inboxes = {name for name in found if name in self.inboxes}
            on_the_way = {name for name in found if leads_to_inbox(name)} - inboxes
            given_up = {name for name in found if source_queue(name) in on_the_way}
            counts = (sum(found[name] for name in names) for names in (on_the_way, inboxes, given_up))
            self.now = StageBacklog(self._home.backlog, *counts)


class _TallyLog(SentLog):
    """Records what the call-service sends in `tally` only: a plane may stay up for days."""

    def __init__(self, contract: Contract, tally: Tally) -> None:
        super().__init__(contract)
        self._tally = tally

    def event(self, event: Envelope, channel: Channel, entered: Place = Place.DEVICE) -> None:
        """Record the call `event`, which shows that its alarm was handled."""
        del entered
        now_ms, alarm = time.time() * 1_000, event.data()
        self._tally.handled(channel.participant, (alarm["alarm_source"], alarm["alarm_id"]), now_ms)
        self._tally.sent(event, channel.participant, now_ms)


class LocalPlane:
    """The plane in `cloud`, called by its functions through `proxy`, with `home`; use it in a `with` block.

    `inboxes` has the participant by the name of its queue; `commands` is what one can type. It sends as the
    home's voice-service and places a call for each alarm as its call-service.
    """

    def __init__(
        self,
        cloud: CloudEndpoint,
        proxy: ObservingProxy,
        home: Home,
        contract: Contract,
        inboxes: Mapping[str, str],
        commands: Mapping[str, str],
    ) -> None:
        self.tally = Tally(contract)
        self._contract = contract
        self._cloud = cloud
        self._proxy = proxy
        self._home = home
        self._commands = dict(commands)
        self._observer = HomeObserver(home.broker.port, self.tally, own=CALL_SERVICE)
        self._watch = BacklogWatch(cloud, home, inboxes)
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._has_s3 = True
        self._routed_at_kill: int | None = None
        proxy.observe(inboxes, self.tally)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._observer)
            stack.enter_context(self._watch)
            port = self._home.broker.port
            # Another client id than the default, which is for a voice-service of one's own.
            self._voice = Service(VOICE_SERVICE, port, client_id="control-room")
            stack.callback(self._voice.close)
            if CALL_SERVICE in self._contract.participants:
                log = _TallyLog(self._contract, self.tally)
                stack.callback(CallService(self._home.name, port, self._contract, log).close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take_contract(self, contract: Contract, inboxes: Mapping[str, str]) -> None:
        """Use `contract`, whose queues are `inboxes`, from now on."""
        self._home.reload_contract(contract.canonical)
        self.tally.take_contract(contract)
        self._contract = contract
        self._watch.inboxes = inboxes
        self._proxy.observe(inboxes, self.tally)

    def state(self) -> State:
        """Return the present state."""
        backlog, active = self._watch.now, self._active()
        is_idle = not (active - {RoomFault.ROUTER} or backlog.on_the_way or backlog.given_up)
        counters = self.tally.counters(backlog.spool, is_idle, time.time() * 1_000, str(backlog))
        return State(
            contract=self._contract.version,
            home=self._home.name,
            stages=self._stages(backlog, active, counters),
            counters=counters,
            latency=self.tally.latency(),
            active=tuple(sorted(active)),  # it becomes JSON
            events=self.tally.last(),
            commands=self._commands,
        )

    def send_alarm(self) -> str:
        """Publish an alarm at the home's broker, once that is up, and return the event's id.

        Raises `WindowFullError` when 200 alarms have no receipt yet.
        """
        now = timestamp(datetime.now(UTC))
        event = write_event(
            {
                "id": uuid4().hex,
                "source": f"/homes/{self._home.name}/{VOICE_SERVICE}",
                "type": ALARM,
                "subject": "/living-room",
                "time": now,
                "recordedtime": now,
            },
            {"keyword": "help"},
        )
        self._voice.client.send(event, _SEND_S)
        self.tally.sent(event, VOICE_SERVICE, time.time() * 1_000)
        return event.id

    def strike(self, fault: RoomFault) -> None:
        """Start a fault (idempotent). Raises `NoRouterError`."""
        with self._lock:
            match fault:
                case RoomFault.NETWORK:
                    self._home.link.cut()
                case RoomFault.FORWARDER:
                    _kill(self._home.forwarder)
                case RoomFault.MOSQUITTO:
                    _kill(self._home.broker.child)
                case RoomFault.ROUTER:
                    if not kill_functions(replace(self._cloud, url=self._proxy.url), *ROUTERS):
                        raise NoRouterError
                    self._routed_at_kill = self._proxy.routed
                case RoomFault.S3:
                    if self._has_s3:
                        self._proxy.begin(_S3, Outage.UNAVAILABLE)
                    self._has_s3 = False

    def heal(self, fault: RoomFault) -> None:
        """End a lasting fault (idempotent). Raises `NothingToHealError`."""
        with self._lock:
            match fault:
                case RoomFault.NETWORK:
                    self._home.link.heal()
                case RoomFault.S3:
                    if not self._has_s3:
                        self._proxy.end(_S3, unmet=True)
                    self._has_s3 = True
                case _:
                    raise NothingToHealError(fault)

    def _active(self) -> set[RoomFault]:
        is_active = {
            RoomFault.NETWORK: self._home.link.is_cut,
            RoomFault.FORWARDER: not self._home.forwarder.running,
            RoomFault.MOSQUITTO: not self._home.broker.child.running,
            RoomFault.ROUTER: self._proxy.routed == self._routed_at_kill,  # until another process routes
            RoomFault.S3: not self._has_s3,
        }
        return {fault for fault, holds in is_active.items() if holds}

    def _stages(
        self, backlog: StageBacklog, active: set[RoomFault], counters: Counters
    ) -> dict[Stage, StageStanding]:
        def standing(
            fault: RoomFault, note: str, passed: int | None = None, waiting: int | None = None
        ) -> StageStanding:
            is_broken = fault in active
            return StageStanding(not is_broken, passed, waiting, note if is_broken else "")

        published = self._observer.published.total()
        archive = standing(RoomFault.S3, "S3 answers 503", passed=self._proxy.put_objects)
        return {
            Stage.HOME: StageStanding(passed=published, note=f"{counters.rang:,} taken"),
            Stage.BROKER: standing(RoomFault.MOSQUITTO, "killed", passed=published),
            Stage.FORWARDER: standing(RoomFault.FORWARDER, "killed", waiting=backlog.spool),
            Stage.RULE: standing(RoomFault.NETWORK, "the network is cut"),
            Stage.ROUTERS: standing(RoomFault.ROUTER, "killed", waiting=backlog.on_the_way),
            Stage.INBOXES: StageStanding(
                passed=self._proxy.routed, waiting=backlog.inboxes, note=f"{counters.taken:,} taken"
            ),
            Stage.ARCHIVE: replace(archive, note=archive.note or "objects written"),
        }


def queue_names(inboxes: Mapping[str, str]) -> dict[str, str]:
    """Return the participant by its queue's name, from the queues' URLs by participant."""
    return {url.rpartition("/")[2]: name for name, url in inboxes.items() if name not in OWN_SERVICES}


def _kill(child: Child) -> None:
    """Kill a process (SIGKILL) without its supervisor, which restarts it."""
    pid = child.pid
    if pid is not None and child.running:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
