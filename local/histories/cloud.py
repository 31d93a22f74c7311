"""The cloud: IoT Core, queues, tables, the archive, and the real functions that work on them."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

from eventplane import presence
from eventplane.contract import Contract, ParticipantKind, Priority, subscription_table
from eventplane.contract import publication as publications
from eventplane.contract.publication import ContractTable, cloud_destinations
from eventplane.downlink import table as downlink_table
from eventplane.downlink.desired import Desired, State
from eventplane.endpoints import ENDPOINT
from eventplane.fleet import REGISTRY, LifecycleState, in_service, made
from eventplane.function_settings import PresenceLimits, SubscribersSettings
from eventplane.interest import table as interest_table
from eventplane.names import DOWNLINK, SUBSCRIBERS
from eventplane.records import Records, Tables
from eventplane.replay import MAX_ORDER_RECEIVES, REPLAY
from eventplane.resource_names import dead_letter_queue, queue_name
from eventplane.topics import urgent_rule
from eventplane.traffic import Quota
from eventplane.webhooks import SinkReach, SinkScope
from eventplane_aws.tables import DynamoDbTables
from lambdas.api.subscription_service import Consents, SubscriptionService
from lambdas.api.subscriptions import SubscriptionsApi
from lambdas.archive.ledger import LedgerWriter
from lambdas.archive.tap import TapWriter
from lambdas.common.archive import Archive
from lambdas.common.backoff import Wait, wait_s
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.ledger import Ledger
from lambdas.common.log import log_foreign
from lambdas.common.queue import Invocation, QueueMessage, read_messages
from lambdas.common.redelivery import Redelivery
from lambdas.common.sqs import SqsSender
from lambdas.downlink import parts as downlink_parts
from lambdas.downlink.answers import Answers
from lambdas.downlink.desired import DesiredStateWriter
from lambdas.downlink.devices import Fleet, Presence
from lambdas.downlink.due import DueWork
from lambdas.downlink.items import Items, WorkQueue
from lambdas.downlink.reconciler import Reconciler as DownlinkReconciler
from lambdas.fleet.snapshot import FleetSnapshot
from lambdas.http_sink.parts import Machine, Parts
from lambdas.http_sink.subscribers import SubscriberService, SubscriptionEndpoints
from lambdas.presence import parts as presence_parts
from lambdas.presence.judge import Judge
from lambdas.presence.reconciler import Reconciler as PresenceReconciler
from lambdas.presence.recorder import Recorder, read_heartbeat, read_presence
from lambdas.presence.reports import Notices
from lambdas.presence.table import PresenceTable
from lambdas.presence.timer_queue import TimerQueue
from lambdas.presence.timers import TimerReader
from lambdas.presence.watch import Watch
from lambdas.replay.handler import ReplayService
from lambdas.replay.orders import Orders, Planners, TapFiles
from lambdas.router.active_contract import ActiveContract, BoundedLook
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import Engine as RoutingEngine
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from local.histories.broker import Broker, Message
from local.histories.endpoints import EndpointConnection, EndpointModel
from local.histories.engine import START_S, Engine, Killed, Task
from local.histories.story import ENDPOINTS
from local.histories.threads import TaskThreads
from local.histories.wires import Weather, Wire
from tests.dynamodb import create_table
from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.s3 import FakeS3
from tests.fakes.secrets import FakeSecrets
from tests.fakes.sqs import FakeQueue, FakeSqs

BUCKET: Final = "archive"
ENVIRONMENT: Final = "histories"
API: Final = "subscriptions-api"
ORIGIN: Final = "eventplane-histories"
KEYS: Final = "webhook"
REACH: Final = SinkReach(SinkScope.INTERNET)
RULE: Final = "ingest"
TIMEOUT_S: Final = 60
VISIBILITY_S: Final = 120
INBOX_VISIBILITY_S: Final = 60
CONCURRENCY: Final = 3
LIMITS: Final = PresenceLimits(
    disconnected_after_s=90,
    connected_after_s=60,
    quiet_after_heartbeats=3,
    oldest_urgent_s=60,
    oldest_normal_s=900,
    quota=Quota(window_s=300, frames=100_000, events=1_000_000, bytes=100_000_000),
)

Process = Callable[[Sequence[QueueMessage], Invocation], Collection[str]]


def inbox_arn(participant: str) -> str:
    """Return the ARN of a participant's inbox, as the API knows it."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue_name(ENVIRONMENT, f'{participant}-inbox')}"


class CloudClock:
    """The clock of AWS: called, it gives Unix milliseconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self) -> int:
        return self._engine.now_ms

    @property
    def now_ms(self) -> int:
        return self._engine.now_ms


class Function:
    """A Lambda function that SQS feeds: batches, processes, timeouts and partial responses."""

    def __init__(
        self,
        cloud: Cloud,
        name: str,
        queue: str,
        wire: Callable[[str], Any],
        *,
        batch: int = 10,
        wait: Wait = wait_s,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._timeout_s = timeout_s
        self.name = name
        self._cloud = cloud
        self._queue = queue
        self._wire = wire
        self._batch = batch
        self._wait = wait
        self._idle: list[Any] = []
        self._running = 0
        self._looks_at: float | None = None
        cloud.sqs.readers[queue.rpartition("/")[2]] = self.look_soon
        self.look_soon(0.0)

    def look_soon(self, seconds: float) -> None:
        """Look at the queue in so many seconds, at the latest."""
        engine = self._cloud.engine
        at = engine.now_s + seconds
        if self._looks_at is None or at < self._looks_at:
            self._looks_at = at
            engine.at(at, lambda: self._look(at))

    def _look(self, at: float) -> None:
        if self._looks_at != at:
            return
        self._looks_at = None
        cloud = self._cloud
        if "sqs" in cloud.weather.down or self._running >= CONCURRENCY:
            self.look_soon(1.0)
            return
        answer = cloud.sqs.receive_message(
            QueueUrl=self._queue,
            MaxNumberOfMessages=self._batch,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        if messages := answer.get("Messages"):
            self._running += 1
            cloud.engine.spawn(self.name, lambda: self._invoke(messages))
            self.look_soon(0.0)
        elif (next_ms := cloud.sqs.next_ms(self._queue)) is not None:
            self.look_soon(max(0.05, (next_ms - cloud.engine.now_ms) / 1_000))

    def _invoke(self, messages: list[dict[str, Any]]) -> None:
        cloud, engine = self._cloud, self._cloud.engine
        process = self._idle.pop() if self._idle else self._wire(self.name)
        deadline_s = engine.now_s + self._timeout_s
        task = engine.task
        watchdog = engine.at(deadline_s, task.kill) if task else None
        records = [
            {
                "messageId": each["MessageId"],
                "receiptHandle": each["ReceiptHandle"],
                "body": each["Body"],
                "attributes": each["Attributes"],
                "messageAttributes": {
                    name: {"stringValue": value.get("StringValue")}
                    for name, value in each.get("MessageAttributes", {}).items()
                },
            }
            for each in messages
        ]
        remaining_ms = lambda: max(0, round(1_000 * (deadline_s - engine.now_s)))  # noqa: E731
        is_well = False
        try:
            attempt = max(int(each["Attributes"]["ApproximateReceiveCount"]) for each in messages)
            engine.note(self.name, f"{len(messages)} message(s), attempt {attempt}")
            answer = self._answer(process, {"Records": records}, remaining_ms)
            again = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
            is_well = True
            for each in messages:
                if each["MessageId"] not in again:
                    cloud.sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=each["ReceiptHandle"])
        except Killed:
            engine.note(self.name, "ends half-way", is_fault=True)
            raise
        finally:
            self._running -= 1
            if watchdog is not None:
                watchdog.is_off = True
            if is_well:
                self._idle.append(process)
            self.look_soon(0.0)

    def _answer(self, process: Any, event: dict[str, Any], remaining_ms: Callable[[], int]) -> Any:
        """Run what was wired; its answer to SQS."""
        cloud, batch = self._cloud, read_messages(event)
        failed = process(batch, Invocation(f"{self.name}-{next(cloud.numbers)}", remaining_ms))
        redelivery = Redelivery(cloud.client(self.name, "sqs"), self._queue, cloud.weather.share, self._wait)
        return redelivery.answer(batch, failed, remaining_ms)


class Queues(FakeSqs):
    """SQS, which tells a queue's reader that something is there. `sent` has all bodies that a queue took."""

    def __init__(self, engine: Engine, clock: Any) -> None:
        super().__init__(clock)
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self._engine = engine
        self.sleepers: dict[str, list[Task]] = {}
        self.readers: dict[str, Callable[[float], None]] = {}

    def _added(self, queue: FakeQueue, sent: Mapping[str, Any]) -> dict[str, str]:
        self.sent[queue.url].append(sent["MessageBody"])
        return super()._added(queue, sent)

    def changed(self, queue: FakeQueue, at_ms: int) -> None:
        if (look := self.readers.get(queue.name)) is not None:
            look(max(0.0, (at_ms - self.clock()) / 1_000))
        for task in self.sleepers.get(queue.name, ()):
            task.wake_at(at_ms / 1_000 - START_S)

    def wait(self, url: str, seconds: float) -> None:
        """Let the running task wait until something is there, for so long at most."""
        engine = self._engine
        queue = self.queue(url)
        until = engine.now_s + seconds
        due = self.next_ms(url)
        if due is not None:
            until = min(until, max(engine.now_s + 0.001, due / 1_000 - START_S))
        task = engine.task
        if task is None:
            return
        self.sleepers.setdefault(queue.name, []).append(task)
        try:
            task.wait_s(max(0.001, until - engine.now_s))
        finally:
            self.sleepers[queue.name].remove(task)

    def next_ms(self, url: str) -> int | None:
        """When the next message is to be seen."""
        return min((each.visible_ms for each in self.queue(url).messages), default=None)


class Cloud:
    """The plane of `contract` in one account."""

    def __init__(self, engine: Engine, contract: Contract, weather: Weather, devices: Sequence[str]) -> None:
        self.engine = engine
        self.contract = contract
        self.weather = weather
        self.clock = CloudClock(engine)
        self.sqs = Queues(engine, self.clock)
        self.dynamodb = FakeDynamoDb()
        self.s3 = FakeS3(self.clock)  # type: ignore[arg-type]
        self.numbers = count(1)
        self.broker = Broker(engine, self._published, self._connection)
        self._versions: dict[str, int] = {}
        self.secrets = FakeSecrets()
        clients: tuple[FakeClient, ...] = (self.sqs, self.dynamodb, self.s3, self.secrets)
        for each in clients:
            each.checks = False  # slow; the unit tests check the requests
        self.secrets.create_secret(Name=KEYS, SecretString=base64.b64encode(bytes(32)).decode())
        self.endpoints = {each: EndpointModel(engine, weather, each) for each in ENDPOINTS}
        self._models = {
            "sqs": self.sqs,
            "dynamodb": self.dynamodb,
            "s3": self.s3,
            "secretsmanager": self.secrets,
            "iot-data": self,
        }
        self.s3.create_bucket(Bucket=BUCKET)
        self.exceptions = self.meta = None
        self._queues()
        self._tables(devices)
        self._functions()

    def queue(self, name: str) -> FakeQueue:
        """The queue that is called so in the environment."""
        return self.sqs.queues[queue_name(ENVIRONMENT, name)]

    def client(self, program: str, service: str) -> Any:
        """A client of `service` as `program` has it."""
        return Wire(self.weather, program, service, self._models[service])

    # What lies there.

    def _queue(
        self, name: str, *, receives: int = 5, visibility_s: int = VISIBILITY_S, fifo: bool = False
    ) -> str:
        more = {"FifoQueue": "true"} if fifo else {}
        name = queue_name(ENVIRONMENT, name, is_fifo=fifo)
        letters = dead_letter_queue(name)
        self.sqs.create_queue(QueueName=letters, Attributes=more)
        policy = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{letters}",
            "maxReceiveCount": receives,
        }
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(policy), **more}
        return str(self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _queues(self) -> None:
        contract = self.contract
        self.inboxes = {
            each.address: self._queue(
                each.address.replace(".", "-"),
                receives=each.max_receives,
                visibility_s=INBOX_VISIBILITY_S,
                fifo=bool(each.ordering and each.ordering.value != "none"),
            )
            for each in cloud_destinations(contract)
        }
        self.outboxes = {
            each.name: self._queue(
                f"{each.name}-outbox", receives=contract.channel(f"{each.name}.outbox").max_receives
            )
            for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
        }
        uplink = contract.device.outbox
        self.ingest, self.tap = (
            self._queue(each, receives=uplink.max_receives) for each in ("ingest", "tap")
        )
        self.urgent = self._queue("urgent", receives=uplink.receives_at(Priority.URGENT))
        self.ledger, self.lifecycle, self.timers, self.work = (
            self._queue(each) for each in ("ledger", "lifecycle", "timers", "work")
        )
        self.last_resort = str(
            self.sqs.create_queue(QueueName=queue_name(ENVIRONMENT, "last-resort"))["QueueUrl"]
        )

    def _tables(self, devices: Sequence[str]) -> None:
        db = self.dynamodb
        create_table(db, "contracts", publications.KEY)
        for name, of in {"subscriptions": subscription_table, "interest": interest_table}.items():
            create_table(db, name, of.PARTITION, of.SORT)
        create_table(
            db,
            "presence",
            "device",
            numbers=presence.INDEX_KEYS,
            global_indexes={presence.INDEX: presence.INDEX_KEYS},
        )
        create_table(
            db,
            "desired",
            downlink_table.PARTITION_KEY,
            downlink_table.SORT_KEY,
            numbers=(downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY),
            global_indexes={downlink_table.INDEX: (downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY)},
            local_indexes={
                downlink_table.PENDING_INDEX: (downlink_table.PARTITION_KEY, downlink_table.INDEX_SORT_KEY)
            },
        )
        create_table(db, "fleet", *REGISTRY.key)
        create_table(db, "claims", "reader", "event")
        create_table(db, "endpoints", *ENDPOINT.key)
        fleet = Records(DynamoDbTables(db, self.weather.draw), "fleet", REGISTRY)
        for each in devices:
            fleet.write(replace(made(each, self.engine.now_ms), state=LifecycleState.PROVISIONED))

    def tables(self, program: str) -> DynamoDbTables:
        return DynamoDbTables(self.client(program, "dynamodb"), self.weather.draw)

    def unacknowledged(self) -> list[Desired]:
        """What is desired of connected devices, and they have not acknowledged."""
        desired = Records(DynamoDbTables(self.dynamodb, self.weather.draw), "desired", downlink_table.DESIRED)
        return [each for each in desired.all() if each.state in (State.SENDING, State.PARKED)]

    # The functions.

    def _functions(self) -> None:
        contract = self.contract
        for name, queue in {"ingest": self.ingest, "urgent": self.urgent}.items():
            Function(self, f"router-{name}", queue, partial(self._router, source="device.outbox"))
        for name, queue in self.outboxes.items():
            Function(self, f"router-{name}", queue, partial(self._router, source=f"{name}.outbox"))
        Function(self, "tap", self.tap, self._tap, batch=10)
        Function(self, "ledger", self.ledger, self._ledger_writer)
        Function(self, "recorder", self.lifecycle, partial(self._recorder, read=read_presence))
        heard = self.inboxes["presence-monitor.inbox"]
        Function(self, "heartbeats", heard, partial(self._recorder, read=read_heartbeat))
        Function(self, "timers", self.timers, self._timer_reader)
        Function(self, "desired", self.inboxes[contract.device.inbox.address], self._desired)
        Function(
            self,
            "answers",
            self.inboxes[f"{DOWNLINK}.inbox"],
            lambda program: Answers(self._downlink(program)).process,
        )
        Function(self, "due", self.work, lambda program: DueWork(self._downlink(program)).process)
        Function(self, REPLAY, self._queue(REPLAY, receives=MAX_ORDER_RECEIVES), self._replay)
        Function(self, SUBSCRIBERS, self.inboxes[f"{SUBSCRIBERS}.inbox"], self._subscribers)
        self._schedule("presence-reconciler", self._reconcile_presence)
        self._schedule("downlink-reconciler", self._reconcile_downlink)
        self.engine.spawn("fleet-snapshot", self._snapshot)

    def _schedule(self, name: str, work: Callable[[str], Any]) -> None:
        self.engine.every(60.0, lambda: self.engine.spawn(name, partial(work, name)), first_s=60.0)

    def _look(self, program: str, source: str) -> BoundedLook[RoutingEngine]:
        """A router's look at the contract in force."""
        tables = self.tables(program)
        in_force = ActiveContract(
            bundled=self.contract,
            build=lambda contract: build_engine(contract, source, self.inboxes, lambda: 0.0),
            table=ContractTable(tables, "contracts"),
            subscriptions=self._subscriptions(tables),
            interest=interest_table.InterestTable(tables, "interest", log_foreign),
            refresh_ms=10_000,
            clock=self.clock,
            queues=self.inboxes,
        )
        return BoundedLook(in_force, TaskThreads(self.engine, program), lambda: self.engine.now_s)

    def _sending(self, program: str) -> tuple[Dispatch, Ledger]:
        sender = SqsSender(self.client(program, "sqs"))
        ledger = Ledger(sender=sender, queue_url=self.ledger, archive=self._archive(program))
        return Dispatch(sender, self.inboxes, TaskThreads(self.engine, program)), ledger

    def _router(self, program: str, source: str) -> Process:
        dispatch, ledger = self._sending(program)
        engine = self._look(program, source).engine
        return RouterService(engine=engine, dispatch=dispatch, ledger=ledger, clock=self.clock).process

    def _replay(self, program: str) -> Process:
        s3, source = self.client(program, "s3"), self.contract.device.outbox.address
        dispatch, ledger = self._sending(program)
        return ReplayService(
            engine=self._look(program, source).engine,
            orders=Orders(TapFiles(s3, BUCKET), Planners(s3, BUCKET, source, lambda: 0.0)),
            dispatch=dispatch,
            inboxes=self.inboxes,
            ledger=ledger,
            clock=self.clock,
        ).process

    def _subscriptions(self, tables: Tables) -> subscription_table.SubscriptionTable:
        return subscription_table.SubscriptionTable(tables, "subscriptions", log_foreign)

    def _connect(self, url: str, timeout_s: float) -> EndpointConnection:
        return EndpointConnection(self.endpoints[url], timeout_s)

    def _subscribers(self, program: str) -> Process:
        settings = SubscribersSettings(
            reach=REACH,
            webhook_secret=KEYS,
            webhook_origin=ORIGIN,
            outbox_queue=self.outboxes[SUBSCRIBERS],
            dead_letter_queue=self.last_resort,
            concurrency=CONCURRENCY,
            endpoints_table="endpoints",
            archive_bucket=BUCKET,
            subscriptions_table="subscriptions",
        )
        share = self.weather.share
        machine = Machine(
            partial(self.client, program),
            self.tables(program),
            self._connect,
            self.clock,
            self.weather.draw,
            lambda low, high: low + (high - low) * share(),
            self.engine.sleep,
        )
        endpoints = SubscriptionEndpoints(
            parts=Parts(settings, self.contract, self.contract.channel(f"{SUBSCRIBERS}.inbox"), machine),
            table=self._subscriptions(machine.tables),
            reach=REACH,
            clock=self.clock,
        )
        threads = TaskThreads(self.engine, program)
        return SubscriberService(endpoints, threads, lambda: self.engine.now_s).process

    def subscriptions_api(self, program: str) -> SubscriptionsApi:
        """Return the API as a new process of its function has it."""
        service = SubscriptionService(
            table=self._subscriptions(self.tables(program)),
            inboxes={name: inbox_arn(name) for name in self.outboxes},
            contract=lambda: self.contract,
            consent=Consents(ORIGIN, self._connect).ask,
            reach=REACH,
            clock=self.clock,
            random_bytes=self.weather.draw,
        )
        return SubscriptionsApi(service, tuple)

    def _archive(self, program: str) -> Archive:
        return Archive(self.client(program, "s3"), BUCKET, self.weather.draw)

    def _tap(self, program: str) -> Process:
        return TapWriter(archive=self._archive(program), clock=self.clock, traffic=None).process

    def _ledger_writer(self, program: str) -> Process:
        return LedgerWriter(archive=self._archive(program), clock=self.clock).process

    def _presence(self, program: str) -> presence_parts.Parts:
        sender = SqsSender(self.client(program, "sqs"))
        return presence_parts.Parts(
            table=PresenceTable(Records(self.tables(program), "presence", presence.PRESENCE)),
            watch=Watch(LIMITS, Notices()),
            timers=TimerQueue(sender, self.timers),
            sender=sender,
            clock=self.clock,
        )

    def _recorder(self, program: str, read: Any) -> Process:
        return Recorder(read, self._presence(program)).process

    def _timer_reader(self, program: str) -> Process:
        parts = self._presence(program)
        return TimerReader(parts, Judge(parts, self.outboxes["presence-monitor"])).process

    def _downlink(self, program: str) -> downlink_parts.Parts:
        sqs, store, contract = self.client(program, "sqs"), self.tables(program), self.contract

        def letters(channel: Any) -> DeadLetterWriter:
            return DeadLetterWriter(
                source=downlink_parts.LETTER_SOURCE,
                contract=contract,
                channel=channel,
                sender=SqsSender(sqs),
                outbox=self.outboxes[DOWNLINK],
                last_resort=self.last_resort,
                clock=self.clock,
            )

        table = Records(store, "desired", downlink_table.DESIRED)
        work = WorkQueue(sqs, self.work)
        return downlink_parts.Parts(
            contract=contract,
            table=table,
            items=Items(
                table=table,
                data=self.client(program, "iot-data"),
                work=work,
                letters=letters(contract.device.inbox),
                clock=self.clock,
            ),
            presence=Presence(Records(store, "presence", presence.PRESENCE)),
            fleet=Fleet(Records(store, "fleet", REGISTRY)),
            work=work,
            letters=letters,
            clock=self.clock,
            sqs=sqs,
        )

    def _desired(self, program: str) -> Process:
        return DesiredStateWriter(
            self._downlink(program), self.inboxes[self.contract.device.inbox.address]
        ).process

    def _reconcile_presence(self, program: str) -> None:
        if buckets := self._buckets("presence", presence.INDEX_KEYS[0]):
            parts = self._presence(program)
            judge = Judge(parts, self.outboxes["presence-monitor"])
            PresenceReconciler(parts, judge).reconcile(buckets, 30_000, lambda: 60_000)

    def _reconcile_downlink(self, program: str) -> None:
        if buckets := self._buckets("desired", downlink_table.INDEX_KEY):
            DownlinkReconciler(self._downlink(program)).reconcile(buckets, lambda: 60_000)

    def _snapshot(self) -> None:
        devices = Records(self.tables("fleet-snapshot"), "fleet", REGISTRY)
        archive = self._archive("fleet-snapshot")
        FleetSnapshot(read=lambda: in_service(devices.all()), archive=archive, clock=self.clock).write()

    def _buckets(self, table: str, key: str) -> list[int]:
        """The buckets of an index that have something in them: looking at others changes nothing."""
        items = self.dynamodb.peek(table)
        return sorted({int(each[key]["N"]) for each in items if key in each})

    # IoT Core.

    def publish(self, *, topic: str, qos: int, payload: bytes) -> None:
        """IoT Core's data plane, for functions."""
        self.engine.note("IoT Core", f"sends down to {topic}")
        self.broker.publish(Message(topic, payload, qos))

    def _published(self, client: str, message: Message) -> bool:
        """Basic Ingest: the rule writes to the router's queue and the tap's, whoever else fails."""
        prefix, _, rest = message.topic.partition("/devices/")
        rule = prefix.removeprefix("$aws/rules/")
        frame = json.dumps(
            {
                "data": base64.b64encode(message.payload).decode(),
                "topic": f"devices/{rest}",
                "clientid": client,
                "principal": "a" * 64,
                "timestamp": self.engine.now_ms,
            }
        )
        self.engine.note("IoT Core", f"{len(message.payload)} bytes of {client}")
        into = self.urgent if rule == urgent_rule(RULE) else self.ingest
        for url in (into, self.tap):
            self._rule_writes(url, frame)
        return True

    def _rule_writes(self, url: str, body: str) -> None:
        """A rule's action, which AWS repeats while SQS is away."""
        if "sqs" in self.weather.down:
            self.engine.after(5.0, lambda: self._rule_writes(url, body))
        else:
            self.sqs.send_message(QueueUrl=url, MessageBody=body)

    def _connection(self, client: str, what: str) -> None:
        self.engine.note("IoT Core", f"{client} {what}")
        if what == "subscribed":
            self._rule_writes(self.work, json.dumps({"subscribed": client}))
            return
        if what == "connected":
            self._versions[client] = self._versions.get(client, -1) + 1
        version = self._versions[client]
        members = {
            "clientId": client,
            "timestamp": self.engine.now_ms,
            "eventType": what,
            "sessionIdentifier": f"session-{version}",
            "principalIdentifier": "a" * 64,
            "versionNumber": version,
        }
        if what == "disconnected":
            members |= {"clientInitiatedDisconnect": False, "disconnectReason": "CONNECTION_LOST"}
        self._rule_writes(self.lifecycle, json.dumps(members))
