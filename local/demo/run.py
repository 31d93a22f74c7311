"""One run from an empty machine to the verdict. Every step is somebody else's; this says in which order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from cloudevents.core.base import BaseCloudEvent
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
from eventplane.fleet import FleetTable
from eventplane.names import CONNECTED, MONITOR, NOTICE
from eventplane.reasons import Reason
from eventplane.sender import Sender
from local.audits import AuditProcess
from local.consumers import Consumers, Kept
from local.demo.alarms import ALARM_CENTRE, Alarm, alarms
from local.demo.archive import fetch
from local.demo.auditing import audit_twice
from local.demo.carers import CARERS, CARERS_SOURCE, Carers
from local.demo.faults import Fault, Faults
from local.demo.homes import RunningHome, running_homes
from local.demo.plane import DownlinkSchedule, Plane, deploy_plane, snapshot_fleet, warm_up
from local.demo.presence import Notice, cut_off, judging, missing, told
from local.demo.report import print_table, write_page
from local.demo.simple_client import publish_all
from local.demo.summary import summarise
from local.demo.waiting import Waits
from local.deploy import start_synthesis
from local.emulator import ACCOUNT, REGION, start_emulator
from local.input import Input, InputEvent
from local.network import Network
from local.oracle import Arrived, Verdict, dead_lettered, expected_by_service, judge
from local.players import Players
from local.poison import cloud_payloads
from local.process import Supervisor
from local.sent import SentLog
from local.services import (
    CALL_SERVICE,
    LISTENERS,
    ON_DEVICE,
    arrived_at_call_services,
    arrived_in_homes,
)
from local.things import provision
from stacks.names import outbox_url_output

SIMPLE_CLIENT: Final = "simple-client"
_FLUSH_SECONDS: Final = 300.0
_PATIENCE_SECONDS: Final = 90.0
"""How long nothing may move before a wait is given up and the verdict is drawn from what is there."""

_AHEAD: Final = 4_000
"""Events that the homes may be ahead of the readers. Each call on a queue of the emulated cloud takes longer
the more messages it holds, so a run of all data would otherwise spend its time on that."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run plays and where its results go; `label` and `seed` are told in the summary."""

    input: Input
    label: str
    seed: int
    output: Path


def run(options: Options, console: Console) -> dict[str, Any]:
    """Play the whole story and return its summary, which is also written, as is the page, to `output`."""
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
        with _step(progress, "Spark audits, with one object deleted too"):
            audits = audit_twice(played.spark, archive, run_dir / "audit")
        steps = _seconds(progress)
    summary = summarise(
        run={
            "homes": len(options.input.homes),
            "input": options.label,
            "seed": options.seed,
            "contract_version": plane.contract.version,
        },
        sent={
            "events_sent": sent.events_sent,
            "urgent_sent": sent.urgent_sent,
            "malformed_sent": sent.malformed_sent,
            "told": sum(each.source == CARERS_SOURCE for each in sent.events),
        },
        dead_lettered=played.dead_lettered,
        verdicts=played.verdicts,
        faults=[asdict(fault) for fault in played.faults],
        audit=audits.report,
        deletion=audits.noticed,
        wall_seconds=monotonic() - began,
        gave_up_waiting_for=waits.gave_up,
        otherwise_wrong={"notices missing": missing(played.notices, told(plane.contract))},
    )
    summary["alarms"] = [asdict(alarm) for alarm in played.alarms]
    summary["notices"] = [asdict(notice) for notice in played.notices]
    summary["payload_letters"] = played.payload_letters
    summary["steps"] = steps
    (options.output / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    page = audits.page.relative_to(options.output)
    write_page(summary, audits.report, options.output / "report.html", str(page))
    print_table(summary, console)
    return summary


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a run, and the process that audits it."""

    verdicts: list[Verdict]
    faults: list[Fault]
    dead_lettered: int
    notices: list[Notice]
    alarms: list[Alarm]
    payload_letters: list[dict[str, str]]
    spark: AuditProcess


def _is_shown(service: str, event: BaseCloudEvent) -> bool:
    """Whether an event is looked at as it arrived: alarms, notices, what they begin with, wrong payloads."""
    data: Any = event.get_data()
    is_letter = event.get_type() == DEAD_LETTER_TYPE and data["reason"] == Reason.PAYLOAD_INVALID
    return service == ALARM_CENTRE or event.get_type() in (CONNECTED, NOTICE) or is_letter


def _payload_letters(kept: list[Kept]) -> list[dict[str, str]]:
    """What the dead letters of wrong payloads say."""
    letters = [each.data for each in kept if each.type == DEAD_LETTER_TYPE]
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
    rule, policy = plane.outputs["IngestRule"], plane.outputs["DevicePolicy"]
    sqs = plane.cloud.client("sqs")
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        title = f"functions, {len(source.homes)} homes with Mosquitto and forwarder"
        with _step(progress, title), ThreadPoolExecutor(1) as worker:
            warming = worker.submit(warm_up, plane.cloud)
            homes = stack.enter_context(
                running_homes(
                    supervisor,
                    plane.cloud,
                    network,
                    plane.contract,
                    sent,
                    source.homes,
                    rule=rule,
                    policy=policy,
                )
            )
            warming.result()
        stack.enter_context(DownlinkSchedule(plane.cloud))
        consumers = stack.enter_context(Consumers(sqs, plane.inboxes, _is_shown))
        with _step(progress, "carers tell each home, one of which is cut off"):
            _tell(plane, sent, homes)
        with _step(progress, "a device without forwarder sends"):
            _send_simple(supervisor, plane, sent)
        with Faults(homes, source.total) as faults:
            _send(source, homes, faults, progress, consumers)
        injected = faults.injected()
        waits.until_none_remain("homes drain", lambda: _backlog(homes))
        # Its start takes a processor for seconds, in which the next steps wait for timers.
        spark = AuditProcess(supervisor)
        notices = _lose_home(plane, homes, consumers, waits)
        expected = expected_by_service(plane.contract, sent.events, sent.malformed, devices=homes)
        to_cloud = sum(len(keys) for service, keys in expected.items() if service not in ON_DEVICE)

        def unread() -> int:
            consumers.raise_failure()
            return max(0, to_cloud - consumers.received_total)

        waits.until_none_remain("services read", unread)
        services = [home.services for home in homes.values()]

        def untold() -> int:
            heard = sum(len(keys) for home in services for keys in home.told.values())
            return sum(len(expected[service]) for service in LISTENERS) - heard

        waits.until_none_remain("homes hear the carers", untold)
        waits.until_none_remain("homes drain", lambda: _backlog(homes))
        ways = ["IngestUrl", "UrgentIngestUrl", "TapUrl", *plane.inbox_outputs.values(), "LedgerUrl"]
        _wait_for_queues(plane, waits, ways)
        with _step(progress, "homes stop, each with a last manifest"):
            _stop(homes)
        _wait_for_queues(plane, waits, ways)
        arrived: dict[str, Arrived] = {
            **consumers.arrived,
            CALL_SERVICE: arrived_at_call_services(services),
            **{service: arrived_in_homes(home.told[service] for home in services) for service in LISTENERS},
        }
    letters = dead_lettered(sent.malformed, arrived)
    verdicts = judge(expected, arrived)
    kept = consumers.kept
    return Played(verdicts, injected, letters, notices, alarms(kept, injected), _payload_letters(kept), spark)


def _lose_home(
    plane: Plane, homes: Mapping[str, RunningHome], consumers: Consumers, waits: Waits
) -> list[Notice]:
    """Cut off a home, other than the one that was while carers told it something, and bring it back."""
    name, home = list(homes.items())[-1]
    with judging(plane.cloud):
        notices = cut_off(name, home, told(plane.contract), lambda: consumers.kept, waits)
    # What is judged already is said, and read, before anything is counted.
    _wait_for_queues(plane, waits, ["PresenceTimersUrl"], ["ApproximateNumberOfMessagesNotVisible"])
    _wait_for_queues(plane, waits, [outbox_url_output(MONITOR)])
    return notices


def _send(
    source: Input,
    homes: Mapping[str, RunningHome],
    faults: Faults,
    progress: Progress,
    consumers: Consumers,
) -> None:
    task = progress.add_task("homes send", total=source.total)
    sender = ""

    def watched() -> Iterator[InputEvent]:
        nonlocal sender
        for event in source:
            sender = event.home
            yield event

    def dealt(events: int) -> None:
        progress.update(task, completed=events)
        faults.passed(events, sender)
        if events - consumers.received_total > _AHEAD:
            consumers.wait_until(lambda: events - consumers.received_total <= _AHEAD // 2, _PATIENCE_SECONDS)

    players = Players({name: home.services for name, home in homes.items()})
    players.play(watched(), source.total, dealt)
    players.flush(_FLUSH_SECONDS)


def _send_simple(supervisor: Supervisor, plane: Plane, sent: SentLog) -> None:
    """What a device without a forwarder sends, past every spool and router of a home."""
    directory = supervisor.run_dir / SIMPLE_CLIENT
    thing = provision(plane.cloud, SIMPLE_CLIENT, policy=plane.outputs["DevicePolicy"], directory=directory)
    payloads = cloud_payloads(f"/homes/{SIMPLE_CLIENT}/health-service")
    for payload in payloads:
        sent.cloud_payload(payload)
    publish_all(thing, plane.outputs["IngestRule"], [each.payload for each in payloads])


def _tell(plane: Plane, sent: SentLog, homes: Mapping[str, RunningHome]) -> None:
    """What carers say to each home."""
    registry = FleetTable(plane.cloud.client("dynamodb"), plane.outputs["FleetTable"])
    sqs, outbox = plane.cloud.client("sqs"), plane.outputs[outbox_url_output(CARERS)]
    carers = Carers(
        plane.contract, registry, lambda text: sqs.send_message(QueueUrl=outbox, MessageBody=text), sent
    )
    carers.tell(homes)


def _stop(homes: Mapping[str, RunningHome]) -> None:
    """End the forwarders as a device that is switched off does: what they sent is attested to the end."""
    for home in homes.values():
        home.terminate_forwarder()
    for home in homes.values():
        home.stop_forwarder()


def _backlog(homes: Mapping[str, RunningHome]) -> int:
    return sum(home.services.waiting + home.backlog for home in homes.values())


_IN_QUEUE: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


def _wait_for_queues(
    plane: Plane, waits: Waits, outputs: list[str], counts: Sequence[str] = _IN_QUEUE
) -> None:
    sqs = plane.cloud.client("sqs")

    def messages() -> int:
        answers = (
            sqs.get_queue_attributes(QueueUrl=plane.outputs[name], AttributeNames=list(counts))
            for name in outputs
        )
        return sum(int(answer["Attributes"][count]) for answer in answers for count in counts)

    waits.until_none_remain("queues empty", messages)


def _fetch_archive(plane: Plane, run_dir: Path, progress: Progress) -> Path:
    archive = run_dir / "archive"
    task = progress.add_task("archive fetched", total=None)
    fetch(
        plane.cloud.client("s3"),
        plane.outputs["ArchiveBucket"],
        archive,
        lambda done, total: progress.update(task, completed=done, total=total),
    )
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
    """A step that cannot say how far it is."""
    task = progress.add_task(title, total=None)
    yield
    progress.update(task, total=1, completed=1)
