"""The faults of a demo: those of homes, a deletion from the archive, a lost home."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.ledger import LEDGER
from eventplane.names import CONNECTED, NOTICE
from eventplane.reasons import Outcome
from eventplane.resource_names import resource_name
from eventplane.written import WRITTEN, read_entry
from lab.audit_page.page import PAGE, write_page
from lab.audits import run_audits
from lab.chaos.faults import ChaosFault
from lab.cloud import CloudEndpoint
from lab.consumers import ReceivedEvent
from lab.errors import LocalError
from lab.home import Home
from lab.network import NetworkLink
from lab.oracle import Key
from lab.process import Child, Supervisor
from lab.waiting import Waits
from stacks.config import environment
from stacks.names import TIMERS

CUT_SECONDS: Final = 3.0
"""How long a home stays without network: longer than a reconnect takes, short enough for a demo."""


@dataclass(frozen=True, slots=True)
class RepairedFault:
    """One fault that was injected: `kind` at `home` after `after_events` events, repaired after `seconds`."""

    kind: str
    home: str
    after_events: int
    seconds: float


class _Planned(NamedTuple):
    """A `kind` of fault, the part of all events that goes before, and how long it lasts, seconds."""

    kind: str
    at: float
    outage_s: float
    of: Callable[[Home], ChaosFault]


_PLAN = (
    _Planned("network cut", 0.25, CUT_SECONDS, lambda home: ChaosFault(home.link.cut, home.link.heal)),
    _Planned("forwarder killed (-9)", 0.5, 0, lambda home: _killed(home.forwarder)),
    _Planned("Mosquitto killed (-9)", 0.75, 0, lambda home: _killed(home.broker.child)),
)


def _killed(child: Child) -> ChaosFault:
    # Unlike those of `lab.chaos` it is over when the process is ready again.
    return ChaosFault(child.kill, child.start)


class Faults:
    """Injects the planned faults as events are sent, and repairs them as a supervisor or a provider would.

    A fault strikes the home that has just sent, each fault another home as long as there are enough. All that
    are left strike at the last event. Use it in a `with` block, whose end waits for all repairs.
    """

    def __init__(self, homes: Mapping[str, Home], total_events: int) -> None:
        self._homes = homes
        self._total = total_events
        self._planned = list(_PLAN)
        self._struck: set[str] = set()
        self._repairs: list[Future[RepairedFault]] = []
        self._workers = ThreadPoolExecutor(max_workers=len(_PLAN), thread_name_prefix="repair")
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._ending.set()  # an interrupted run does not sit through an outage
        self._workers.shutdown()

    def passed(self, events: int, home: str) -> None:
        """Inject the faults that are due once `events` events were sent, the last one by `home`."""
        while self._planned and events >= self._planned[0].at * self._total:
            if home in self._struck and len(self._struck) < len(self._homes) and events < self._total:
                return
            planned, began = self._planned.pop(0), monotonic()
            self._struck.add(home)
            fault = planned.of(self._homes[home])
            fault.start()
            self._repairs.append(self._workers.submit(self._repair, planned, fault, home, events, began))

    def injected(self) -> list[RepairedFault]:
        """Return all faults, once they are repaired. Raises the error of a failed repair."""
        return [repair.result() for repair in self._repairs]

    def _repair(
        self, planned: _Planned, fault: ChaosFault, home: str, events: int, began: float
    ) -> RepairedFault:
        self._ending.wait(planned.outage_s)  # the outage itself, not a wait for something
        if fault.heal:
            fault.heal()
        return RepairedFault(planned.kind, home, events, round(monotonic() - began, 2))


class NothingToDeleteError(LocalError):
    """No object of the ledger at `archive` holds deliveries of devices' events."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        super().__init__(f"{archive} has no ledger object with deliveries: play more events (EVENTS=400)")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`file`, by its path in the archive, recorded the delivery of `events` and no longer does."""

    file: str
    events: frozenset[Key]

    def seen_by(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the audit of the archive without the deliveries.

        It has `noticed` when it calls the archive broken, and loses events of the object and no other.
        """
        lost = [each for each in report["findings"] if each["kind"] == "lost"]
        named = {(each["source"], each["id"]) for each in lost}
        return {
            "object": self.file,
            "events": len(self.events),
            "verdict": report["verdict"],
            "lost": report["totals"]["lost"],
            "noticed": report["verdict"] == "broken" and bool(named) and named <= self.events,
            "evidence": sorted({(each["source"], each["id"], each["route"]) for each in lost}, key=str),
        }


def copy_without_one(archive: Path, copy: Path) -> Forgotten:
    """Make `copy` of `archive`, in which the ledger's object with most deliveries has lost them.

    Its other rows stay: a dead letter ends elsewhere as well, and what entered in the cloud has no other
    witness. Raises `NothingToDeleteError`.
    """
    files = sorted((archive / LEDGER).rglob("*.json.gz"))
    held = {file: gzip.decompress(file.read_bytes()).splitlines() for file in files}
    deliveries = {file: [row for row in map(json.loads, held[file]) if _is_delivery(row)] for file in files}
    file = max(files, key=lambda each: len(deliveries[each]), default=None)
    if file is None or not deliveries[file]:
        raise NothingToDeleteError(archive)
    shutil.copytree(archive, copy, copy_function=os.link)
    name = file.relative_to(archive)
    (copy / name).unlink()  # it is a link: the original must not change
    others = (line for line in held[file] if not _is_delivery(json.loads(line)))
    # Also without a row: an object that is gone is a hole of the archive, and no loss.
    write_as_its_writer(copy, name, list(others))
    return Forgotten(name.as_posix(), frozenset((row["source"], row["id"]) for row in deliveries[file]))


def write_as_its_writer(archive: Path, name: Path, lines: Sequence[bytes]) -> None:
    """Replace the object `name` and its entry in its writer's list.

    If the list said what it had before, that somebody altered it would explain all that is missing.
    """
    content = gzip.compress(b"".join(line + b"\n" for line in lines))
    (archive / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for path in (archive / WRITTEN / name).parent.glob(f"{name.name}.*"):
        if entry := read_entry(path.relative_to(archive).as_posix()):
            path.rename(archive / entry._replace(rows=len(lines), digest=digest, mark="").name)


def _is_delivery(row: Mapping[str, Any]) -> bool:
    is_letter = row["type"] == DEAD_LETTER_TYPE
    return row["outcome"] == Outcome.DELIVERED and row["client_id"] is not None and not is_letter


@dataclass(frozen=True, slots=True)
class Audits:
    """The `report` on the archive, its `page`, and what the second audit `noticed` (`Forgotten.seen_by`)."""

    report: dict[str, Any]
    noticed: dict[str, Any]
    page: Path


def audit_twice(supervisor: Supervisor, archive: Path, output: Path) -> Audits:
    """Audit `archive` into `output`, and then a copy of it that lacks an object.

    Raises `AuditFailedError`, `NothingToDeleteError`.
    """
    copy = archive.with_name(f"{archive.name}-without-one")
    deletion = copy_without_one(archive, copy)
    outputs = {archive: output, copy: output.with_name(f"{output.name}-without-one")}
    whole, broken = run_audits(supervisor, outputs)
    for report, (audited, beneath) in zip((whole, broken), outputs.items(), strict=True):
        write_page(report, beneath / PAGE, str(audited))
    return Audits(whole, deletion.seen_by(broken), output / PAGE)


LOCAL: Final = environment("local")

OPENED: Final = "opened"
PHASES: Final = (OPENED, "over")
"""The notices of one incident: when it begins, and when it ends."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that `service` received.

    `late_s` is its delay beyond `disconnected_after_s` after the loss of the connection, in seconds; None at
    the end of an incident, which depends on the device as well.
    """

    service: str
    phase: str
    title: str
    check: Sequence[str]
    late_s: float | None


@contextmanager
def judging(cloud: CloudEndpoint) -> Iterator[None]:
    """Let timers fire while the `with` block runs; before and after, they wait in their queue."""
    client = cloud.client("lambda")
    name = resource_name(LOCAL.name, TIMERS)
    (mapping,) = client.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    yield
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)


def cut_off(
    name: str,
    link: NetworkLink,
    services: Sequence[str],
    kept: Callable[[], Sequence[ReceivedEvent]],
    waits: Waits,
) -> list[Notice]:
    """Cut the `link` of home `name` until `services` got a notice, and heal it until they got the second one.

    Waits first until the plane knows the home as connected; by then all functions have started.
    """

    def is_unknown() -> int:
        return int(not any(_is_about(each, CONNECTED, name) for each in kept()))

    waits.until_none_remain("notices: a home is known to be there", is_unknown)
    for phase, act in zip(PHASES, (link.cut, link.heal), strict=True):
        act()
        title = f"notices: a home is {'cut off' if phase == OPENED else 'back'}"
        waits.until_none_remain(title, lambda phase=phase: missing(notices(kept(), name), services, [phase]))  # type: ignore[misc]
    return notices(kept(), name)


def missing(found: Sequence[Notice], services: Sequence[str], phases: Sequence[str] = PHASES) -> int:
    """Return how many of the notices that each of `services` must get are not in `found`."""
    wanted = {(service, phase) for service in services for phase in phases}
    return len(wanted - {(each.service, each.phase) for each in found})


def notified_services(contract: Contract) -> list[str]:
    """Return the services to which the contract routes notices."""
    takers = (route for route in contract.routes if route.filter.matches({"type": NOTICE}))
    inboxes = {route.destination for route in takers} - {contract.device.outbox.address}
    return sorted(contract.channel(each).participant for each in inboxes)


def notices(kept: Sequence[ReceivedEvent], device: str) -> list[Notice]:
    """Return the notices about `device` among the events in `kept`, in the order of their arrival."""
    return [_notice(*each) for each in kept if _is_about(each, NOTICE, device)]


def _is_about(received: ReceivedEvent, type: str, device: str) -> bool:
    return (received.event["type"], received.event.get("subject")) == (type, device)


def _notice(service: str, event: Mapping[str, Any], arrived_ms: int) -> Notice:
    data, late_s = event["data"], None
    if data["phase"] == OPENED:
        lost_s = datetime.fromisoformat(data["since"]).timestamp()
        late_s = round(arrived_ms / 1_000 - lost_s - LOCAL.presence.disconnected_after_s, 1)
    return Notice(service, data["phase"], data["title"], data["check"], late_s)
