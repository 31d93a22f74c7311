"""The plane that is up, as the control room sees it: what happens in it, and what can be done to it."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from contract.offers import Offer, completed, offers
from contract.rollout import ROLLOUT, ROLLOUT_KEY, ContractRollout, RolloutPhase
from eventplane.contract import Channel, Contract, ContractError, Place
from eventplane.contract.publication import CONTRACTS_TABLE, ContractTable
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.names import OWN_SERVICES
from eventplane.records import RecordError, Records
from eventplane.resource_names import resource_name, source_queue
from eventplane_aws.tables import DynamoDbTables
from lab.background import Background
from lab.chaos.fault_proxy import Outage, ProxyTarget
from lab.cloud import ENVIRONMENT, ROOT, TOOLS, CloudEndpoint
from lab.consumers import InboxReaders
from lab.control_room.plane import QUESTIONS, CommandResult, RoomFault, Stage, StageStanding, State
from lab.control_room.tally import Counters, Tally
from lab.emulator import kill_functions, queued_messages
from lab.errors import LocalError
from lab.home import Home
from lab.oracle import SentLog
from lab.plane import ROUTERS, Plane, leads_to_inbox
from lab.process import Child, NameTakenError, Supervisor
from lab.services import CALL_SERVICE, CallService, Service
from lab.up.observer import HomeObserver, ObservingProxy
from operations.rollout_command import lines
from stacks.names import url_output

_SEND_S: Final = 1.0
"""How long an event waits for room in the window of 200 events without a receipt."""

_S3: Final = ProxyTarget("s3")
_REFRESH_S: Final = 0.5
_ROLLOUT_S: Final = 3.0


class NoRouterError(LocalError):
    """No process of a router runs."""

    def __init__(self) -> None:
        super().__init__("no router runs at the moment; send an event first, which starts one")


class NothingToHealError(LocalError):
    """`fault` is over as soon as it began."""

    def __init__(self, fault: RoomFault) -> None:
        self.fault = fault
        super().__init__(f"{fault} does not last: the process starts again by itself")


class NoParticipantError(LocalError):
    """The contract has no participant `name` that can do what was asked."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"{name!r} cannot do that by this contract; choose one of: {', '.join(known)}")


class QuestionOpenError(LocalError):
    """The same `question` is being answered."""

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(f"the answer to an earlier {question} is still to come; wait for it")


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


class RolloutWatch(Background):
    """Looks every few seconds at the roll-out in `cloud`; `now` is what it found, None for none.

    `follow` gets the contract that the home follows, when that becomes another one.
    """

    def __init__(self, cloud: CloudEndpoint, follow: Callable[[Contract], object]) -> None:
        super().__init__("roll-out")
        self.now: ContractRollout | None = None
        self._follow = follow
        self._followed = ""
        name = resource_name(ENVIRONMENT, CONTRACTS_TABLE)
        tables = DynamoDbTables(cloud.client("dynamodb"), os.urandom)
        self._rollouts, self._contracts = Records(tables, name, ROLLOUT), ContractTable(tables, name)

    def _run(self) -> None:
        while not self._ending.wait(_ROLLOUT_S):
            # The cloud may be busy with a deployment.
            with suppress(BotoCoreError, ClientError, RecordError, ContractError):
                self._look()

    def _look(self) -> None:
        self.now = found = self._rollouts.read(ROLLOUT_KEY)
        if found is None:
            return
        is_new = found.phase is RolloutPhase.DONE or (found.following > 0 and not found.phase.is_over)
        version = found.version if is_new else found.former
        if version != (self._followed or found.former):
            self._follow(self._contracts.contract(version))
            self._followed = version


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


class _Readers(InboxReaders):
    """Readers of inboxes in the cloud, which take each event and record it in `tally`."""

    def __init__(self, urls: Mapping[str, str], client: Callable[[], Any], tally: Tally) -> None:
        super().__init__(urls, client)
        self._tally = tally

    def _run(self, service: str, client: Callable[[], Any], queue_url: str) -> None:
        """Read on after an error, such as during a deployment, until the end."""
        while not self._stopping.is_set():
            super()._run(service, client, queue_url)
            self._stopping.wait(_REFRESH_S)

    def _take(self, service: str, texts: Sequence[str]) -> None:
        for text in texts:
            with suppress(EnvelopeError):
                self._tally.took(service, parse_event(text).claim, time.time() * 1_000)


class LocalPlane:
    """The `plane`, called by its functions through `proxy`, with `home`; use it in a `with` block.

    `commands` returns what one can type at a plane of a contract with these offers; `environment` leads
    commands, which run under `supervisor`, to this one. It sends as any service, and places a call for each
    alarm as the home's call-service.
    """

    def __init__(
        self,
        plane: Plane,
        proxy: ObservingProxy,
        home: Home,
        supervisor: Supervisor,
        environment: Mapping[str, str],
        commands: Callable[[Contract, Sequence[Offer]], Mapping[str, str]],
    ) -> None:
        self.tally = Tally(plane.contract)
        self._proxy = proxy
        self._home = home
        self._supervisor = supervisor
        self._environment = dict(environment)
        self._commands_for = commands
        self._observer = HomeObserver(home.broker.port, self.tally, own=CALL_SERVICE)
        self._watch = BacklogWatch(plane.cloud, home, queue_names(plane.inboxes))
        self._rollout = RolloutWatch(plane.cloud, self._follow)
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._senders: dict[str, Service] = {}
        self._readers: dict[str, ExitStack] = {}
        self._has_s3 = True
        self._routed_at_kill: int | None = None
        self._take(plane)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._observer)
            stack.enter_context(self._watch)
            stack.enter_context(self._rollout)
            stack.callback(self._close_services)
            contract = self._plane.contract
            if CALL_SERVICE in contract.participants:
                log = _TallyLog(contract, self.tally)
                port = self._home.broker.port
                stack.callback(CallService(self._home.name, port, contract, log).close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close_services(self) -> None:
        with self._lock, ExitStack() as stack:
            for sender in self._senders.values():
                stack.callback(sender.close)
            for reader in self._readers.values():
                stack.push(reader)

    def take_contract(self, plane: Plane) -> None:
        """Use the contract and the queues of `plane` from now on."""
        self._home.reload_contract(plane.contract.canonical)
        self.tally.take_contract(plane.contract)
        self._take(plane)

    def _follow(self, contract: Contract) -> None:
        """Expect what `contract` leads to: the home was sent it."""
        self.tally.take_contract(contract)
        self._take(Plane(self._plane.cloud, self._plane.outputs, contract))

    def _take(self, plane: Plane) -> None:
        self._plane = plane
        self._offers = offers(plane.contract, self._home.name)
        self._commands = dict(self._commands_for(plane.contract, self._offers))
        self._watch.inboxes = queue_names(plane.inboxes)
        self._proxy.observe(self._watch.inboxes, self.tally)

    def state(self) -> State:
        """Return the present state."""
        backlog, active, contract = self._watch.now, self._active(), self._plane.contract
        is_idle = not (active - {RoomFault.ROUTER} or backlog.on_the_way or backlog.given_up)
        counters = self.tally.counters(backlog.spool, is_idle, time.time() * 1_000, str(backlog))
        return State(
            contract=contract.version,
            home=self._home.name,
            stages=self._stages(backlog, active, counters),
            counters=counters,
            latency=self.tally.latency(),
            active=tuple(sorted(active)),  # it becomes JSON
            events=self.tally.last(),
            readers={each: each in self._readers for each in self._readable()},
            commands=self._commands,
            rollout=tuple(lines(rollout, _typed)) if (rollout := self._rollout.now) else (),
        )

    def offers(self) -> tuple[Offer, ...]:
        """Return an event of each type and sender of the contract in force."""
        return self._offers

    def send(self, sender: str, event: Mapping[str, Any]) -> str:
        """Send `event` as `sender`: at the home's broker, once that is up, or into its queue.

        Raises `NoParticipantError`, `EnvelopeError`, and `WindowFullError` when 200 events of a service in
        the home have no receipt yet.
        """
        contract, outputs = self._plane.contract, self._plane.outputs
        known = [
            each.name
            for each in contract.participants.values()
            if each is not contract.device
            and (each.kind.is_on_device or url_output(each.name, "Outbox") in outputs)
        ]
        if sender not in known:
            raise NoParticipantError(sender, known)
        whole = completed(contract, event, uuid4().hex, datetime.now(UTC))
        if contract.participants[sender].kind.is_on_device:
            with self._lock:
                if sender not in self._senders:
                    # Another client id than the default, which is for a service of one's own.
                    client_id = f"control-room-{sender}-sends"
                    self._senders[sender] = Service(sender, self._home.broker.port, client_id=client_id)
            self._senders[sender].client.send(whole, _SEND_S)
        else:
            url = outputs[url_output(sender, "Outbox")]
            self._plane.cloud.client("sqs").send_message(QueueUrl=url, MessageBody=whole.json)
        self.tally.sent(whole, sender, time.time() * 1_000)
        return whole.id

    def read(self, participant: str, *, is_read: bool) -> None:
        """Read an inbox, beside a program that reads it, or no longer. Raises `NoParticipantError`."""
        known = self._readable()
        if participant not in known:
            raise NoParticipantError(participant, known)
        with self._lock:
            if not is_read:
                self._readers.pop(participant, ExitStack()).close()
            elif participant not in self._readers:
                self._readers[participant] = self._reader(participant)

    def _reader(self, participant: str) -> ExitStack:
        stack, client = ExitStack(), partial(self._plane.cloud.client, "sqs")
        if url := self._plane.inboxes.get(participant):
            stack.enter_context(_Readers({participant: url}, client, self.tally))
            return stack
        port, client_id = self._home.broker.port, f"control-room-{participant}-reads"

        def take(event: Envelope) -> None:
            self.tally.took(participant, event.claim, time.time() * 1_000)

        stack.callback(Service(participant, port, take, client_id=client_id).close)
        return stack

    def _readable(self) -> list[str]:
        """Return the participants to whose inboxes routes lead, and which only a program of theirs reads."""
        contract = self._plane.contract
        channels = (contract.channel(each.destination) for each in contract.routes)
        names = dict.fromkeys(each.participant for each in channels if not each.webhook)
        return [each for each in names if each not in {*OWN_SERVICES, CALL_SERVICE, contract.device.name}]

    def ask(self, question: str, words: Sequence[str]) -> CommandResult:
        """Run a command of `QUESTIONS` with these words more. Raises `QuestionOpenError`."""
        typed = [*QUESTIONS[question][0].split(), *words]
        name = f"ask-{question}"
        log = self._supervisor.run_dir / f"{name}.log"
        try:
            with self._lock:
                if not self._supervisor.is_running(name):
                    log.unlink(missing_ok=True)
                line = [str(TOOLS / "python"), "-m", "eventplane", *typed]
                child = self._supervisor.start(
                    name, line, env={**self._plane.cloud.environment(), **self._environment}, cwd=ROOT
                )
        except NameTakenError:
            raise QuestionOpenError(question) from None
        status = child.wait()
        return CommandResult(shlex.join(["eventplane", *typed]), status, log.read_text(errors="replace"))

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
                    if not kill_functions(replace(self._plane.cloud, url=self._proxy.url), *ROUTERS):
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


def _typed(*words: str) -> str:
    return shlex.join(["eventplane", "contract", "rollout", *words])


def queue_names(inboxes: Mapping[str, str]) -> dict[str, str]:
    """Return the participant by its queue's name, from the queues' URLs by participant."""
    return {url.rpartition("/")[2]: name for name, url in inboxes.items() if name not in OWN_SERVICES}


def _kill(child: Child) -> None:
    """Kill a process (SIGKILL) without its supervisor, which restarts it."""
    pid = child.pid
    if pid is not None and child.running:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
