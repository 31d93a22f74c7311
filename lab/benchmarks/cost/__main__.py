"""`python -m lab.benchmarks.cost [SCALE]`: prices regimes and idle months; writes build/bench/cost.json."""

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, Final

from edge.settings import Settings
from eventplane.archive_layout import COMPACTED, compacted_folders
from eventplane_aws.prices import Units, billed, dollars, listed, scaled
from glue_jobs.common.session import local_session
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main as audit
from lab.benchmarks.audit.accesses import Accesses, watched
from lab.benchmarks.cloud.plane import PREFIX, BenchDevice, Deployed, Invocations, Readers, deployed_plane
from lab.benchmarks.cost.deployment import MONTH_S, EventSource, PricedPlane
from lab.benchmarks.cost.metered import (
    RECEIVED,
    Mark,
    Meter,
    MeteredBatch,
    MeteredPlane,
    compute,
    frame_bytes,
    log_bytes,
    polled,
    series,
    way_in,
)
from lab.benchmarks.cost.months import (
    Key,
    Reads,
    Regime,
    StorageUsage,
    WrittenBytes,
    idle,
    jobs,
    regimes,
    requests,
    storage,
    traces,
)
from lab.benchmarks.results import Benchmark, Figure
from lab.plane import Plane

INGEST: Final = ("ingest", "tap")
"""The queues that the rule writes to, of what is not urgent."""
INGEST_URGENT: Final = ("ingest-urgent", "tap")
LEDGER: Final = "ledger"
"""The queue that routers write the ledger to."""

_PAYLOAD_BYTES: Final = 5 * 1024 * 1024
"""Bytes of messages in one invocation: AWS Lambda takes 6 MB of JSON, which has more than the bodies."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Observed:
    """The use of an average event: `units` by who causes them, what is `written` to the archive. `fill` is
    the messages of a router's batch, `usage` what an event uses in the plane.
    """

    units: dict[str, Units]
    written: WrittenBytes
    fill: float
    usage: StorageUsage


class Site(MeteredPlane):
    """The plane of a run; `meter` is in the functions' calls, `consumers` in those of who reads."""

    def __init__(
        self, plane: Plane, production: PricedPlane, meter: Meter, consumers: Meter, log: Path
    ) -> None:
        super().__init__(plane, production, meter, log)
        self._consumers = consumers
        self._s3 = plane.cloud.client("s3")
        self._sqs = plane.cloud.client("sqs")
        self._bucket = plane.outputs["ArchiveBucket"]
        self._by_queue = {each.queue: each for each in production.mappings}
        self._played: dict[str, EventSource] = {}

    def connect(self) -> None:
        """Route the functions' calls through their meter; take over the mappings with a batching window."""
        for queue in dict.fromkeys((*INGEST, *INGEST_URGENT, LEDGER)):
            source = self._by_queue.get(queue)
            if source is None:
                continue
            self.meter_calls(source.function)
            if source.window_s:
                mappings = self._lambda.list_event_source_mappings(FunctionName=PREFIX + source.function)
                for mapping in mappings["EventSourceMappings"]:
                    self._lambda.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
                self._played[queue] = source

    def run(self, regime: Regime, device: BenchDevice) -> Observed:
        """Play `regime`, and count what the plane, its consumers and what watches it use."""
        cloud = self.plane.cloud
        log, objects = log_bytes(cloud), self._objects()
        self._consumers.take()
        mark = self.mark()
        queue, tap = INGEST_URGENT if regime.is_urgent else INGEST
        with Readers(self.plane, regime.inboxes, client=self._client) as readers:
            payloads = regime.play(device, at_once=queue in self._played)
            batches = self._drained(queue, len(payloads), regime.per_s)
            batches = batches or self._settled(self._by_queue[queue], mark, payloads)
            readers.wait_for(regime.events)
        routed = len(batches)
        batches += self._drained(tap, len(payloads), regime.per_s)
        batches += self._drained(LEDGER, None, routed / regime.seconds)
        used = self.invoked(mark)
        plane = way_in(payloads) + polled(batches) + compute(used, self.production.functions)
        plane += self.meter.take()
        watching = Units()
        watching["log_gb"] = (log_bytes(cloud) - log) / 1e9
        watching["xray_trace"] = self._traces(used, regime.seconds)
        groups = {"plane": plane, "consumers": self._consumers.take(), "watching": watching}
        each = {name: scaled(units, 1 / regime.events) for name, units in groups.items()}
        usage = StorageUsage(each["plane"] + each["watching"], series(cloud, used))
        return Observed(each, self._written(objects, regime.events), len(payloads) / routed, usage)

    def scheduled(self, deployments: Iterable[PricedPlane]) -> dict[Key, StorageUsage]:
        """Return the use of scheduled functions of `deployments`, each called warm, as its schedule does."""
        keys = {each.key for of in deployments for each in of.schedules}
        return {key: self._call(*key) for key in sorted(keys)}

    def archive(self) -> Iterator[tuple[str, bytes]]:
        """Key and content of each object of the archive."""
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket):
            for each in page.get("Contents", []):
                body = self._s3.get_object(Bucket=self._bucket, Key=each["Key"])["Body"]
                yield each["Key"], body.read()

    def _call(self, function: str, payload: str) -> StorageUsage:
        self.meter_calls(function)
        self.invoke(function, payload)
        log = log_bytes(self.plane.cloud)
        mark = self.mark()
        self.invoke(function, payload)
        used = {function: self.invoked(mark)[function]}
        units = self.meter.take() + compute(used, self.production.functions)
        units["log_gb"] = (log_bytes(self.plane.cloud) - log) / 1e9
        return StorageUsage(units, series(self.plane.cloud, used))

    def _drained(self, queue: str, messages: int | None, per_s: float) -> list[MeteredBatch]:
        """What production makes of the messages of `queue`, if its mapping is ours; waits for so many."""
        source = self._played.get(queue)
        if source is None:
            return []
        found = self._drain(source, per_s)

        def is_done() -> bool:
            if messages is None or sum(each.taken for each in found) >= messages:
                return True
            found.extend(self._drain(source, per_s))
            return False

        self.wait(is_done, f"{messages} messages of {queue}")
        return found

    def _settled(self, source: EventSource, mark: Mark, payloads: list[bytes]) -> list[MeteredBatch]:
        """The batches since `mark` of the emulator's own mapping, once it has worked on every publish."""
        frame = sum(map(frame_bytes, payloads)) // len(payloads)

        def batches() -> list[MeteredBatch]:
            return [each for each in self.batches(mark, frame) if each.function == source.function]

        self.wait(lambda: sum(each.taken for each in batches()) >= len(payloads), source.function)
        return batches()

    def _drain(self, source: EventSource, messages_per_s: float) -> list[MeteredBatch]:
        """Invoke the function with all messages, in batches as if so many came a second.

        Messages that the function gives back come again at once.
        """
        url = self._sqs.get_queue_url(QueueName=PREFIX + source.queue)["QueueUrl"]
        most = max(1, min(source.batch_size, ceil(messages_per_s * source.window_s)))
        found = []
        for batch in self._received(url, most):
            event = {"Records": [_record(each, source.queue) for each in batch]}
            result = self.invoke(source.function, json.dumps(event))
            failed = {each["itemIdentifier"] for each in result.get("batchItemFailures", ())}
            done = [each for each in batch if each["MessageId"] not in failed]
            self._settle(url, done, [each for each in batch if each["MessageId"] in failed])
            size = sum(len(each["Body"]) for each in batch)
            found.append(MeteredBatch(source.function, len(batch), size, len(done)))
        return found

    def _received(self, url: str, most: int) -> Iterator[Messages]:
        batch: Messages = []
        while True:
            received = self._sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=min(RECEIVED, most - len(batch)),
                VisibilityTimeout=600,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            if not received:
                break
            batch += received
            if len(batch) == most or sum(len(each["Body"]) for each in batch) >= _PAYLOAD_BYTES:
                yield batch
                batch = []
        if batch:
            yield batch

    def _settle(self, url: str, done: Messages, failed: Messages) -> None:
        for start in range(0, len(done), RECEIVED):
            entries = [
                {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]}
                for at, each in enumerate(done[start : start + RECEIVED])
            ]
            self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        for each in failed:
            handle = each["ReceiptHandle"]
            self._sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)

    def _traces(self, used: dict[str, Invocations], seconds: float) -> float:
        functions = self.production.functions
        return sum(traces(each.number, seconds) for name, each in used.items() if functions[name].is_traced)

    def _written(self, before: dict[str, int], events: int) -> WrittenBytes:
        objects: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for name, length in self._objects().items():
            if name not in before:
                folder = name.partition("/")[0]
                objects[folder] += 1
                size[folder] += length
        return WrittenBytes(scaled(objects, 1 / events), scaled(size, 1 / events))

    def _objects(self) -> dict[str, int]:
        return {
            each["Key"]: each["Size"]
            for folder, _ in compacted_folders()
            for page in self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder.name}/"
            )
            for each in page.get("Contents", [])
        }

    def _client(self) -> Any:
        return replace(self.plane.cloud, url=self._consumers.url).client("sqs")


def _record(message: dict[str, Any], queue: str) -> dict[str, Any]:
    attributes = {
        name: {"stringValue": value.get("StringValue"), "dataType": value["DataType"]}
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": attributes,
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:{PREFIX}{queue}",
        "awsRegion": "us-east-1",
    }


MILLION: Final = 1e6
AIMS: Final = {"dev": 10.0, "prod": 60.0}
"""USD a month of an environment in which nothing happens, without its jobs on the archive."""

_EVENTBRIDGE: Final = Counter({"eventbridge_event": 1, "sqs_request": 2})
"""One event through an EventBridge bus to the queues of two inboxes; how it gets there is free here."""

HOW: Final = (
    "counted in a run through the local cloud: sizes of what was published, calls of functions and "
    "consumers by a meter in their way; event source mappings with a batching window are played in the "
    "batches of production; compaction and audit of a copy of the archive, each opening of an object "
    "counted; functions ran as long as on this machine, whose emulator answers more slowly than AWS; what an "
    "idle month has is counted in the synthesized templates"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts: by regime, by call of a scheduled function, and what jobs read."""

    regimes: Mapping[str, tuple[Regime, Observed]]
    calls: Mapping[Key, StorageUsage]
    reads: Reads
    lost: int


def costs(options: Namespace) -> Iterator[Figure]:
    """Count, and price what was counted."""
    deployments = {name: PricedPlane(name) for name in AIMS}
    with deployed_plane() as run:
        found = _count(run, deployments, options.scale)
    yield from _regimes(found, deployments["prod"])
    yield from _idle(found, deployments)
    yield from _overhead(found)


def _count(run: Deployed, deployments: Mapping[str, PricedPlane], scale: float) -> Counted:
    url = run.plane.cloud.url
    with (
        Meter(url) as functions,
        Meter(url) as consumers,
        BenchDevice(run.plane, "bench-home", run.directory) as device,
    ):
        site = Site(run.plane, deployments["prod"], functions, consumers, run.log)
        site.connect()
        for each in regimes(0.05):
            site.run(each, device)  # for the cold starts, which are not what an average event costs
        seen = {each.name: (each, site.run(each, device)) for each in regimes(scale)}
        calls = site.scheduled(deployments.values())
    archive = run.directory / "archive"
    for key, content in site.archive():
        (archive / key).parent.mkdir(parents=True, exist_ok=True)
        (archive / key).write_bytes(content)
    return Counted(seen, calls, *_read(archive))


def _read(archive: Path) -> tuple[Reads, int]:
    """Let the jobs read the `archive`; how often they opened its objects, and what the audit calls lost."""
    raw = [each for name, _ in compacted_folders() for each in (archive / name.name).rglob("*.json.gz")]
    raw_bytes = sum(each.stat().st_size for each in raw)

    def opens(accesses: Accesses) -> float:
        return sum(accesses.opens[each.relative_to(archive)] for each in raw) / len(raw)

    with local_session():
        with watched(archive) as compacting:
            compact(["--INPUT", str(archive), "--DATE", "all"], datetime.now(UTC) + timedelta(hours=3))
        with watched(archive) as auditing:
            report = audit(["--INPUT", str(archive), "--OUTPUT", str(archive.with_name("audit"))])
    compacted = sum(each.stat().st_size for each in (archive / COMPACTED).rglob("*.parquet"))
    return Reads(opens(compacting), opens(auditing), compacted / raw_bytes), report["totals"]["lost"]


def _regimes(found: Counted, production: PricedPlane) -> Iterator[Figure]:
    for name, (regime, seen) in found.regimes.items():
        parts = {
            **seen.units,
            "reading": requests(seen.written, found.reads, production),
            "storage": storage(seen.written, found.reads, production),
        }
        total = MILLION * dollars(sum(parts.values(), Counter()))
        bridge = MILLION * dollars(_EVENTBRIDGE + parts["consumers"])
        yield Figure(
            f"{name}_total", total, "USD/M", regime.aim, False, "EventBridge", bridge, note=regime.note
        )
        for part, units in parts.items():
            note = f"{regime.note}; units an event: {listed(units)}"
            yield Figure(f"{name}_{part}", MILLION * dollars(units), "USD/M", note=note)
        yield Figure(f"{name}_fill", seen.fill, "messages", note="of an invocation of the router")
        objects = MILLION * sum(seen.written.objects.values())
        yield Figure(f"{name}_objects", objects, "objects/M", note="in the archive")
    yield Figure("compaction_opens", found.reads.compaction, "opens", note="of a raw object")
    yield Figure("audit_opens", found.reads.audit, "opens", note="of a raw object, a run")
    yield Figure("compacted_size", found.reads.compacted_bytes, "of raw", note="bytes")
    yield Figure("lost", found.lost, "events", 0, note="by the audit of all of it")


def _idle(found: Counted, deployments: Mapping[str, PricedPlane]) -> Iterator[Figure]:
    alarm = found.regimes["alarm"][1].usage
    for name, deployment in deployments.items():
        parts = idle(deployment, found.calls, alarm)
        total = sum(parts.values(), Counter())
        note = "without jobs on the archive"
        yield Figure(f"idle_{name}", dollars(total), "USD/month", AIMS[name], note=note)
        note = "what an account with nothing else is billed: without the units that are always free"
        yield Figure(f"idle_{name}_billed", dollars(billed(total)), "USD/month", note=note)
        for part, units in {**parts, "jobs": jobs(deployment)}.items():
            yield Figure(f"idle_{name}_{part}", dollars(units), "USD/month", note=listed(units))


def _overhead(found: Counted) -> Iterator[Figure]:
    """What a device costs a month beside its events: modelled, as nobody waits that long."""
    default = {each.name: each.default for each in fields(Settings)}
    reports = MONTH_S / default["heartbeat_s"] + MONTH_S / default["manifest_interval_s"]
    units = found.regimes["trickle"][1].units
    # To operations only: half the deliveries; the plane's part is the same but for one write.
    usd = reports * (dollars(units["plane"]) + dollars(units["consumers"]) / 2)
    note = (
        f"{reports:,.0f} heartbeats and manifests by the default settings, each as one event of the trickle"
    )
    yield Figure("reports_of_a_device", usd, "USD/month", note=note)
    connected = dollars({"iot_minute": MONTH_S / 60})
    yield Figure("connection_of_a_device", connected, "USD/month", note="30 days")


if __name__ == "__main__":
    scale = {"type": float, "nargs": "?", "default": 1.0, "help": "of the number of events"}
    sys.exit(Benchmark("cost", {"costs": costs}, HOW, {"scale": scale}, notes_load=True).main())
