"""One run from an empty machine to the verdict: the steps in their order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Sender
from eventplane.names import CONNECTED, MONITOR, NOTICE
from eventplane.reasons import Reason
from lab.cloud import start_synthesis
from lab.consumers import Consumers, ReceivedEvent
from lab.demo.faults import (
    Faults,
    Notice,
    RepairedFault,
    audit_twice,
    cut_off,
    judging,
    missing,
    notified_services,
)
from lab.demo.report import alarms, print_table, write_page
from lab.demo.senders import send_as_carers, send_without_forwarder
from lab.demo.summary import ALARM_CENTRE, summarise, unproven
from lab.emulator import ACCOUNT, REGION, start_emulator
from lab.errors import LocalError
from lab.home import Home
from lab.input import Input
from lab.input.model import HomeInput, InputEvent
from lab.network import Network
from lab.oracle import SentLog, ServiceResult, dead_lettered, expected_by_service, judge
from lab.plane import DownlinkSchedule, Plane, deploy_plane, snapshot_fleet, warm_up
from lab.poison import Poison, poison
from lab.process import Supervisor
from lab.services import LISTENERS, ON_DEVICE, HomeServices, arrived_on_device
from lab.waiting import Waits
from stacks.names import url_output

EVENTS_PER_POISON: Final = 500
LEAST_POISON: Final = 5
"""One malformed message follows so many events; a short run has at least so many in all."""

_QUEUED: Final = 200
"""Messages that may be queued for one home: a home that stands still can fall so far behind the others."""


class PlayerError(LocalError):
    """The home `home` could not send its messages because of `cause`."""

    def __init__(self, home: str, cause: BaseException) -> None:
        self.home, self.cause = home, cause
        super().__init__(f"{home} could not send: {cause}")


@dataclass(frozen=True, slots=True)
class HomeMessage:
    """A message that one service of a home sends."""

    service: str
    content: InputEvent | Poison


class Players:
    """Sends the messages of each home in order, from a thread of its own, with a queue between.

    The caller's thread deals the messages out in the order of the input, so that the homes go through time
    together. A service waits when its window is full, and a home that stands still must not stop the others.
    """

    def __init__(self, homes: Mapping[str, HomeServices]) -> None:
        self._homes = homes
        self._failure: PlayerError | None = None

    def play(
        self, events: Iterable[InputEvent], total: int, progress: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        """Send all `events`, of which there are `total`; they may be without a receipt when this returns.

        `progress` gets the number of events dealt out, and the home, after each. Raises `PlayerError`.
        """
        senders = {home: ThreadPoolExecutor(1, f"player {home}") for home in self._homes}
        room = {home: BoundedSemaphore(_QUEUED) for home in self._homes}

        def send(home: str, message: HomeMessage) -> None:
            try:
                _send(self._homes[home], message)
            except Exception as error:  # noqa: BLE001 - raised by the dealer, with the home's name
                self._failure = self._failure or PlayerError(home, error)
            finally:
                room[home].release()

        done = 0
        try:
            for home, message in mixed(events, total):
                room[home].acquire()
                self._raise_failure()
                senders[home].submit(send, home, message)
                if isinstance(message.content, InputEvent):
                    done += 1
                    progress(done, home)
        except BaseException:
            for sender in senders.values():
                sender.shutdown(wait=False, cancel_futures=True)
            raise
        for sender in senders.values():
            sender.shutdown()
        self._raise_failure()

    def flush(self, timeout_seconds: float) -> None:
        """Wait until every home's forwarder has confirmed what it was sent. Raises `FlushTimeoutError`."""
        for home in self._homes.values():
            home.flush(timeout_seconds)

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure from self._failure.cause


def mixed(events: Iterable[InputEvent], total: int) -> Iterator[tuple[str, HomeMessage]]:
    """Yield the `total` events with malformed messages among them, each with the home that sends it.

    A malformed message comes from the home and service of the event before it.
    """
    every = max(1, min(EVENTS_PER_POISON, total // LEAST_POISON))
    for number, event in enumerate(events, start=1):
        yield event.home, HomeMessage(event.service, event)
        if number % every == 0:
            yield event.home, HomeMessage(event.service, poison(number // every - 1, event.event.source))


def _send(services: HomeServices, message: HomeMessage) -> None:
    if isinstance(message.content, Poison):
        services.send_poison(message.service, message.content)
    else:
        services.send(message.service, message.content.event)


_FLUSH_SECONDS: Final = 300.0
_PATIENCE_SECONDS: Final = 90.0
"""How long a backlog may stand still before a wait gives up; then the verdict says what is missing."""

_AHEAD: Final = 4_000
"""Most events that the homes may be ahead of the readers: a call on a queue of the emulated cloud takes the
longer the more messages it holds."""

_PARALLEL: Final = 8
"""Homes that are started at a time: their start is mostly waiting."""

MAX_HOMES: Final = 70
"""Homes of one run. Their services live in one process, at about 13 file descriptors a home, and the MQTT
library's select() takes descriptors below 1,024 only."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of a run and where its results go; `label` and `seed` are shown in the summary."""

    input: Input
    label: str
    seed: int
    output: Path


def run(options: DemoOptions, console: Console) -> dict[str, Any]:
    """Play the input, write the summary and the page to `output`, and return the summary."""
    began = monotonic()
    run_dir = options.output / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    with Supervisor(run_dir) as supervisor, _bars(console) as progress:
        waits = Waits(progress, _PATIENCE_SECONDS)
        plane = _start_plane(supervisor, progress)
        sent = SentLog(plane.contract)
        played = _play(options.input, supervisor, plane, sent, waits)
        snapshot_fleet(plane)
        archive = _fetch_archive(plane, run_dir, progress)
        with _step(progress, "audit, and again with one object deleted"):
            audits = audit_twice(supervisor, archive, run_dir / "audit")
        steps = _seconds(progress)
    summary = summarise(
        run={
            "homes": len(options.input.homes),
            "input": options.label,
            "seed": options.seed,
            "contract_version": plane.contract.version,
        },
        sent=sent.counts(),
        dead_lettered=played.dead_lettered,
        verdicts=played.verdicts,
        faults=[asdict(fault) for fault in played.faults],
        audit=audits.report,
        deletion=audits.noticed,
        wall_seconds=monotonic() - began,
        gave_up_waiting_for=waits.gave_up,
        otherwise_wrong={
            "notices missing": missing(played.notices, notified_services(plane.contract)),
            "alarms without a receipt": unproven(played.verdicts, audits.report),
        },
    )
    summary["alarms"] = [asdict(alarm) for alarm in alarms(played.kept, played.faults)]
    summary["notices"] = [asdict(notice) for notice in played.notices]
    summary["payload_letters"] = _payload_letters(played.kept)
    summary["steps"] = steps
    (options.output / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    page = audits.page.relative_to(options.output)
    write_page(summary, options.output / "report.html", str(page))
    print_table(summary, console)
    return summary


@dataclass(frozen=True, slots=True)
class Played:
    """The results of a run; `kept` are the events that the report shows."""

    verdicts: list[ServiceResult]
    faults: list[RepairedFault]
    dead_lettered: int
    notices: list[Notice]
    kept: list[ReceivedEvent]


def _is_shown(service: str, event: Mapping[str, Any]) -> bool:
    """Whether the report shows an event: alarms, connections and notices, dead letters of wrong payloads."""
    is_letter = event["type"] == DEAD_LETTER_TYPE and event["data"]["reason"] == Reason.PAYLOAD_INVALID
    return service == ALARM_CENTRE or event["type"] in (CONNECTED, NOTICE) or is_letter


def _payload_letters(kept: list[ReceivedEvent]) -> list[dict[str, str]]:
    """Return sender, reason and detail of the dead letters of wrong payloads."""
    letters = [each.event["data"] for each in kept if each.event["type"] == DEAD_LETTER_TYPE]
    return [
        {"sender": str(Sender(**each["sender"])), "reason": each["reason"], "detail": each["detail"]}
        for each in letters
    ]


def _start_plane(supervisor: Supervisor, progress: Progress) -> Plane:
    synthesis = start_synthesis(supervisor, ACCOUNT, REGION)
    with _step(progress, "emulated cloud"):
        cloud = start_emulator(supervisor)
    with _step(progress, "cdk bootstrap and deploy"):
        return deploy_plane(supervisor, cloud, synthesis)


def _play(
    source: Input,
    supervisor: Supervisor,
    plane: Plane,
    sent: SentLog,
    waits: Waits,
) -> Played:
    progress = waits.progress
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        title = f"functions, {len(source.homes)} homes with Mosquitto and forwarder"
        with _step(progress, title), ThreadPoolExecutor(1) as worker:
            warming = worker.submit(warm_up, plane.cloud)
            starting = running_homes(supervisor, network, plane, sent, source.homes)
            homes, services = stack.enter_context(starting)
            warming.result()
        stack.enter_context(DownlinkSchedule(plane.cloud))
        consumers = stack.enter_context(
            Consumers(plane.inboxes, lambda: plane.cloud.client("sqs"), _is_shown)
        )
        with _step(progress, "carers tell each home, one of which is cut off"):
            send_as_carers(plane, sent, homes)
        with _step(progress, "a device without forwarder sends"):
            send_without_forwarder(supervisor, plane, sent)
        with Faults(homes, source.total) as faults:
            _send_all(source, services, faults, progress, consumers)
        injected = faults.injected()

        def unsent() -> int:
            waiting = sum(each.waiting for each in services.values())
            return waiting + sum(home.backlog for home in homes.values())

        def wait_for_queues(*outputs: str) -> None:
            waits.until_none_remain("queues empty", lambda: plane.count_messages(outputs))

        waits.until_none_remain("homes drain", unsent)
        notices = _lose_home(plane, homes, consumers, waits)
        # The notices that are due are sent, and read, before anything is counted.
        timers = ["PresenceTimersUrl"]
        waits.until_none_remain("queues empty", lambda: plane.count_messages(timers, in_flight_only=True))
        wait_for_queues(url_output(MONITOR, "Outbox"))
        expected = expected_by_service(plane.contract, sent.events, sent.malformed, devices=homes)
        for_cloud = sum(len(keys) for service, keys in expected.items() if service not in ON_DEVICE)
        for_homes = sum(len(expected[service]) for service in LISTENERS)

        def unread() -> int:
            consumers.raise_failure()
            return max(0, for_cloud - consumers.received_total)

        def unheard() -> int:
            return for_homes - sum(
                len(each.received[name]) for each in services.values() for name in LISTENERS
            )

        waits.until_none_remain("services read", unread)
        waits.until_none_remain("homes hear the carers", unheard)
        waits.until_none_remain("homes drain", unsent)
        wait_for_queues(*plane.queue_outputs)
        with _step(progress, "homes stop, each with a last manifest"):
            for home in homes.values():
                home.forwarder.terminate()
            for home in homes.values():
                home.stop_forwarder()
        wait_for_queues(*plane.queue_outputs)
        arrived = {**consumers.arrived, **arrived_on_device(list(services.values()))}
    return Played(
        verdicts=judge(expected, arrived),
        faults=injected,
        dead_lettered=dead_lettered(sent.malformed, arrived),
        notices=notices,
        kept=consumers.kept,
    )


def _lose_home(plane: Plane, homes: Mapping[str, Home], consumers: Consumers, waits: Waits) -> list[Notice]:
    """Cut off a home, other than the one that was cut off while carers sent, and bring it back."""
    name, home = list(homes.items())[-1]
    with judging(plane.cloud):
        return cut_off(name, home.link, notified_services(plane.contract), lambda: consumers.kept, waits)


class TooManyHomesError(LocalError):
    """One process cannot hold the connections of so many homes."""

    def __init__(self, homes: int) -> None:
        self.homes = homes
        super().__init__(f"{homes} homes are more than one run can hold; give HOMES up to {MAX_HOMES}")


@contextmanager
def running_homes(
    supervisor: Supervisor, network: Network, plane: Plane, sent: SentLog, homes: tuple[HomeInput, ...]
) -> Iterator[tuple[dict[str, Home], dict[str, HomeServices]]]:
    """Provision and start all `homes`, and connect their services, while the `with` block runs.

    Raises `TooManyHomesError`, and what keeps a part from starting.
    """
    if len(homes) > MAX_HOMES:
        raise TooManyHomesError(len(homes))

    def start(home: HomeInput) -> tuple[Home, HomeServices]:
        started = plane.start_home(supervisor, network, home.name)
        return started, HomeServices(home.name, home.services, started.broker.port, plane.contract, sent)

    with ExitStack() as stack, ThreadPoolExecutor(_PARALLEL) as workers:
        running, connected = {}, {}
        for home, services in workers.map(start, homes):
            running[home.name] = home
            connected[home.name] = stack.enter_context(services)
        yield running, connected


def _send_all(
    source: Input,
    services: Mapping[str, HomeServices],
    faults: Faults,
    progress: Progress,
    consumers: Consumers,
) -> None:
    task = progress.add_task("homes send", total=source.total)

    def dealt(events: int, home: str) -> None:
        progress.update(task, completed=events)
        faults.passed(events, home)
        if events - consumers.received_total > _AHEAD:
            consumers.wait_until(lambda: events - consumers.received_total <= _AHEAD // 2, _PATIENCE_SECONDS)

    players = Players(services)
    players.play(source, source.total, dealt)
    players.flush(_FLUSH_SECONDS)


def _fetch_archive(plane: Plane, run_dir: Path, progress: Progress) -> Path:
    archive = run_dir / "archive"
    task = progress.add_task("archive fetched", total=None)
    plane.fetch_archive(archive, lambda done, total: progress.update(task, completed=done, total=total))
    return archive


def _seconds(progress: Progress) -> list[dict[str, Any]]:
    """Return how long each step took, in their order."""
    return [
        {"step": each.description, "seconds": round(each.finished_time or 0.0, 1)} for each in progress.tasks
    ]


def _bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description:<42}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


@contextmanager
def _step(progress: Progress, title: str) -> Iterator[None]:
    """Show a step without a known length."""
    task = progress.add_task(title, total=None)
    yield
    progress.update(task, total=1, completed=1)
