"""Measure a run through the deployed plane, with meters in the calls of functions and consumers.

Event source mappings that have a batching window in production are played: the emulator has none, and hands
out ten messages at most.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Final

from eventplane.archive_layout import compacted_folders
from eventplane_aws.prices import Units, scaled
from lab.benchmarks.cloud.plane import PREFIX, BenchDevice, Invocations, Readers
from lab.benchmarks.cost.deployment import EventSource, PricedPlane
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
from lab.benchmarks.cost.months import Key, Regime, StorageUsage, WrittenBytes, traces
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
