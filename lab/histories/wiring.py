"""The real functions of the plane, wired to the simulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, Final

from eventplane import presence
from eventplane.contract import Channel, Contract, Priority, subscription_table
from eventplane.contract.publication import ContractTable
from eventplane.contract.schedules import schedule_of
from eventplane.device_record import REGISTRY
from eventplane.downlink import table as downlink_table
from eventplane.function_settings import DownlinkFunctionSettings
from eventplane.interest import table as interest_table
from eventplane.names import CONNECTED, DISCONNECTED, DOWNLINK, MONITOR, SUBSCRIBERS
from eventplane.presence import PresenceLimits
from eventplane.reasons import REPLAY
from eventplane.records import Records, Tables
from eventplane.sinks import SinkReach, SinkScope
from lab.histories.cloud import BUCKET, KEYS, PLANE, CloudModel, inbox_arn
from lab.histories.endpoints import EndpointConnection
from lab.histories.function import FunctionModel
from lab.histories.story import SERVICES_ROUTER as SERVICES
from lab.histories.threads import TaskThreads
from lambdas.archive.ledger import LedgerWriter
from lambdas.archive.receipts import ReceiptWriter
from lambdas.archive.tap import TapWriter
from lambdas.common.archive import Archiver
from lambdas.common.aws import PATIENT, Timeouts
from lambdas.common.ledger import Ledger
from lambdas.common.log import log_foreign
from lambdas.common.queue_function import QueueReader
from lambdas.common.sqs import SqsSender
from lambdas.downlink import parts as downlink_parts
from lambdas.downlink.answers import AckReader
from lambdas.downlink.desired import DesiredStateWriter
from lambdas.downlink.due import DueWork
from lambdas.downlink.reconciler import Reconciler as DownlinkReconciler
from lambdas.router.active_contract import ActiveContract, BoundedLook
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import RoutingEngine, build_engine
from lambdas.router.payload import MESSAGE_SECONDS
from lambdas.router.service import RouterService, TimeLimits
from lambdas.router.wiring import Channels, patience_of
from parts.fleet.hook import ProvisioningHook
from parts.fleet.lifecycle import HANDOVER_MS, in_service
from parts.fleet.messages import ender
from parts.fleet.rotation import CertificateRotation, Certificates
from parts.fleet.snapshot import FleetSnapshot
from parts.presence import wiring as presence_parts
from parts.presence.judge import PresenceJudge
from parts.presence.reconciler import Sweeper as PresenceReconciler
from parts.presence.recorder import Recorder, read_heartbeat, read_presence
from parts.presence.settings import PresenceFunctionSettings
from parts.presence.timers import TimerReader
from parts.replay.handler import ReplayService
from parts.replay.tap_files import Orders, Planners, TapFiles
from parts.subscriptions_api.handler import SubscriptionsApi
from parts.subscriptions_api.service import Consents, SubscriptionService
from parts.webhooks.settings import SubscribersSettings
from parts.webhooks.subscribers import SubscriberService, SubscriptionEndpoints
from parts.webhooks.wiring import Machine, Parts
from stacks.settings import ROTATION_SIZE

API: Final = "subscriptions-api"
ORIGIN: Final = "eventplane-histories"
REACH: Final = SinkReach(SinkScope.INTERNET)
LIMITS: Final = PresenceLimits(
    **{each.name: getattr(PLANE.presence, each.name) for each in fields(PresenceLimits)}
)


SETTLES_S: Final = {CONNECTED: LIMITS.connected_after_s, DISCONNECTED: LIMITS.disconnected_after_s}
"""How long a connection, or its absence, stands before it is reported, seconds, by the report's type."""


@lru_cache(maxsize=64)
def _engine(
    contract: Contract, sources: tuple[str, ...], inboxes: tuple[str, ...], payload_s: float
) -> RoutingEngine:
    """Build what the simulated processes share: its schemas alone take a fifth of a second."""
    return build_engine(contract, sources, inboxes, lambda: 0.0, payload_s)


class Wiring:
    """The functions of a `cloud`."""

    def __init__(self, cloud: CloudModel) -> None:
        self._cloud = cloud
        self._engine = cloud.engine
        self._contract = cloud.contract
        self._clock = cloud.clock

    def start(self) -> None:
        """Start the functions and their schedules."""
        contract = self._contract
        cloud, uplink = self._cloud, contract.device.outbox
        router = partial(self._router, sources={"": uplink}, priority=uplink.priority)
        urgent = partial(self._router, sources={"": uplink}, priority=Priority.URGENT)
        FunctionModel(cloud, "router-ingest", cloud.ingest, router, PLANE.device_router, may_recur=True)
        FunctionModel(cloud, "router-urgent", cloud.urgent, urgent, PLANE.urgent_router, may_recur=True)
        outboxes = {queue: contract.participants[name].outbox for name, queue in cloud.outboxes.items()}
        sources = {queue.rpartition("/")[2]: each for queue, each in outboxes.items()}
        shared = partial(self._router, sources=sources, priority=Priority.NORMAL)
        processes: list[tuple[int, QueueReader]] = []
        for queue in outboxes:
            FunctionModel(cloud, SERVICES, queue, shared, PLANE.router, may_recur=True, idle=processes)
        FunctionModel(cloud, "tap", cloud.tap, self._tap, PLANE.archive_writer)
        FunctionModel(cloud, "ledger", cloud.ledger, self._ledger_writer, PLANE.ledger_writer)
        for queue in cloud.receipts.values():
            FunctionModel(cloud, "receipts", queue, self._receipt_writer, PLANE.ledger_writer)
        presence, downlink = PLANE.presence, PLANE.downlink.reader
        FunctionModel(
            cloud, "recorder", cloud.lifecycle, partial(self._recorder, read=read_presence), presence.recorder
        )
        heard = cloud.inboxes[f"{MONITOR}.inbox"]
        FunctionModel(
            cloud, "heartbeats", heard, partial(self._recorder, read=read_heartbeat), presence.recorder
        )
        FunctionModel(cloud, "timers", cloud.timers, self._timer_reader, presence.timers, may_recur=True)
        FunctionModel(cloud, "desired", cloud.inboxes[contract.device.inbox.address], self._desired, downlink)
        FunctionModel(cloud, "answers", cloud.inboxes[f"{DOWNLINK}.inbox"], self._answers, downlink)
        FunctionModel(cloud, "due", cloud.work, self._due, downlink)
        FunctionModel(cloud, "certificate-keeper", cloud.connections, self._rotation, ROTATION_SIZE)
        FunctionModel(cloud, REPLAY, cloud.replay, self._replay, PLANE.replay)
        subscribed = cloud.inboxes[f"{SUBSCRIBERS}.inbox"]
        FunctionModel(cloud, SUBSCRIBERS, subscribed, self._subscribers, PLANE.webhook)
        self._schedule("presence-reconciler", self._reconcile_presence)
        self._schedule("downlink-reconciler", self._reconcile_downlink)
        self._engine.spawn("fleet-snapshot", self._snapshot)

    def _schedule(self, name: str, work: Callable[[str], Any]) -> None:
        def run() -> None:
            if name not in self._cloud.weather.paused:
                self._engine.spawn(name, partial(work, name))

        self._engine.every(60.0, run, first_s=60.0)

    def _in_force(
        self, program: str, sources: tuple[str, ...], payload_s: float
    ) -> ActiveContract[RoutingEngine]:
        """Return how a router reads the contract in force."""
        tables = self._cloud.tables(program)
        return ActiveContract(
            bundled=self._contract,
            build=partial(_engine, sources=sources, inboxes=(*self._cloud.inboxes,), payload_s=payload_s),
            table=ContractTable(tables, "contracts"),
            subscriptions=self._subscriptions(tables),
            interest=interest_table.InterestTable(tables, "interest", log_foreign),
            refresh_ms=1_000 * PLANE.contract_refresh_s,
            clock=self._clock,
            queues=self._cloud.inboxes,
            under=RoutingEngine.under,
        )

    def _sending(self, program: str, patience: Timeouts) -> tuple[Dispatch, Ledger]:
        sender = SqsSender(self._cloud.client(program, "sqs", patience))
        archive = self._archive(program, patience)
        ledger = Ledger(sender=sender, queue_url=self._cloud.ledger, archive=archive)
        return Dispatch(sender, self._cloud.inboxes, TaskThreads(self._engine, program)), ledger

    def _router(self, program: str, sources: Mapping[str, Channel], priority: Priority) -> QueueReader:
        channels = Channels(sources, self._cloud.inboxes)
        patience, payload_s = patience_of(priority)
        dispatch, ledger = self._sending(program, patience)
        in_force = self._in_force(program, tuple(each.address for each in sources.values()), payload_s)
        look = BoundedLook(in_force, TaskThreads(self._engine, program), lambda: self._engine.now_s)
        limits = TimeLimits.of(patience, payload_s)
        router = RouterService(
            engine=look.engine,
            dispatch=dispatch,
            ledger=ledger,
            clock=self._clock,
            source=lambda queue: channels.source(queue).address,
            limits=limits,
        )
        return QueueReader(
            router.process, lambda queue: schedule_of(channels.source(queue), priority), patience
        )

    def _replay(self, program: str) -> QueueReader:
        s3, source = self._cloud.client(program, "s3"), self._contract.device.outbox.address
        dispatch, ledger = self._sending(program, PATIENT)
        in_force = self._in_force(program, (source,), MESSAGE_SECONDS)
        replay = ReplayService(
            engine=in_force.engine,
            orders=Orders(TapFiles(s3, BUCKET), Planners(s3, BUCKET, source, lambda: 0.0)),
            dispatch=dispatch,
            inboxes=self._cloud.inboxes,
            ledger=ledger,
            clock=self._clock,
        )
        return QueueReader(replay.process)

    def _subscriptions(self, tables: Tables) -> subscription_table.SubscriptionTable:
        return subscription_table.SubscriptionTable(tables, "subscriptions", log_foreign)

    def _connect(self, url: str, timeout_s: float) -> EndpointConnection:
        return EndpointConnection(self._cloud.endpoints[url], timeout_s)

    def _subscribers(self, program: str) -> QueueReader:
        settings = SubscribersSettings(
            reach=REACH,
            webhook_secret=KEYS,
            webhook_origin=ORIGIN,
            outbox_queue=self._cloud.outboxes[SUBSCRIBERS],
            dead_letter_queue=self._cloud.last_resort,
            concurrency=PLANE.webhook.max_concurrency,
            endpoints_table="endpoints",
            archive_bucket=BUCKET,
            subscriptions_table="subscriptions",
        )
        share = self._cloud.weather.share
        machine = Machine(
            partial(self._cloud.client, program),
            self._cloud.tables(program),
            self._connect,
            self._clock,
            self._cloud.weather.draw,
            lambda low, high: low + (high - low) * share(),
            self._engine.sleep,
        )
        endpoints = SubscriptionEndpoints(
            parts=Parts(settings, self._contract, self._contract.channel(f"{SUBSCRIBERS}.inbox"), machine),
            table=self._subscriptions(machine.tables),
            reach=REACH,
            clock=self._clock,
        )
        threads = TaskThreads(self._engine, program)
        return QueueReader(SubscriberService(endpoints, threads, lambda: self._engine.now_s).process)

    def subscriptions_api(self, program: str) -> SubscriptionsApi:
        """Return the API of a new process of its function."""
        service = SubscriptionService(
            table=self._subscriptions(self._cloud.tables(program)),
            inboxes={name: inbox_arn(name) for name in self._cloud.outboxes},
            contract=lambda: self._contract,
            consent=Consents(ORIGIN, self._connect).ask,
            reach=REACH,
            clock=self._clock,
            random_bytes=self._cloud.weather.draw,
        )
        return SubscriptionsApi(service, tuple)

    def _archive(self, program: str, patience: Timeouts = PATIENT) -> Archiver:
        return Archiver(self._cloud.client(program, "s3", patience), BUCKET, self._cloud.weather.draw)

    def _tap(self, program: str) -> QueueReader:
        return QueueReader(TapWriter(archive=self._archive(program), clock=self._clock, traffic=None).process)

    def _ledger_writer(self, program: str) -> QueueReader:
        return QueueReader(LedgerWriter(archive=self._archive(program), clock=self._clock).process)

    def _receipt_writer(self, program: str) -> QueueReader:
        inboxes = {queue.rpartition("/")[2]: each for each, queue in self._cloud.receipts.items()}
        writer = ReceiptWriter(archive=self._archive(program), clock=self._clock, inboxes=inboxes)
        return QueueReader(writer.process)

    def _presence(self, program: str) -> presence_parts.PresenceParts:
        cloud = self._cloud
        settings = PresenceFunctionSettings(
            presence_table="presence", presence_limits=LIMITS, timer_queue=cloud.timers
        )
        sqs = cloud.client(program, "sqs")
        return presence_parts.parts_of(settings, sqs, cloud.tables(program), self._clock)

    def _recorder(self, program: str, read: Any) -> QueueReader:
        return QueueReader(Recorder(read, self._presence(program)).process)

    def _timer_reader(self, program: str) -> QueueReader:
        parts = self._presence(program)
        return QueueReader(TimerReader(parts, PresenceJudge(parts, self._cloud.outboxes[MONITOR])).process)

    def _downlink(self, program: str) -> downlink_parts.DownlinkParts:
        cloud = self._cloud
        settings = DownlinkFunctionSettings(
            desired_table="desired",
            presence_table="presence",
            fleet_table="fleet",
            work_queue=cloud.work,
            outbox_queue=cloud.outboxes[DOWNLINK],
            dead_letter_queue=cloud.last_resort,
        )
        client = partial(cloud.client, program)
        return downlink_parts.parts_of(settings, self._contract, client, cloud.tables(program), self._clock)

    def _desired(self, program: str) -> QueueReader:
        inbox = self._cloud.inboxes[self._contract.device.inbox.address]
        return QueueReader(DesiredStateWriter(self._downlink(program), inbox).process)

    def _answers(self, program: str) -> QueueReader:
        return QueueReader(AckReader(self._downlink(program)).process)

    def _due(self, program: str) -> QueueReader:
        return QueueReader(DueWork(self._downlink(program)).process)

    def _reconcile_presence(self, program: str) -> None:
        if buckets := self._buckets("presence", presence.INDEX_KEYS[0]):
            parts = self._presence(program)
            judge = PresenceJudge(parts, self._cloud.outboxes[MONITOR])
            PresenceReconciler(parts, judge).reconcile(buckets, 30_000, lambda: 60_000)

    def _reconcile_downlink(self, program: str) -> None:
        if buckets := self._buckets("desired", downlink_table.INDEX_KEY):
            DownlinkReconciler(self._downlink(program)).reconcile(buckets, lambda: 60_000)

    def _rotation(self, program: str) -> QueueReader:
        cloud = self._cloud
        end_in = partial(ender, cloud.client(program, "sqs"), cloud.connections)
        rotation = CertificateRotation(
            store=Records(cloud.tables(program), "fleet", REGISTRY),
            certificates=Certificates(cloud.client(program, "iot"), cloud.iot.certificates.arns + "cert/"),
            end_later=end_in(PLANE.certificate_grace_s),
            end_again=end_in(HANDOVER_MS // 1_000),
            report=self._suspect,
        )
        return QueueReader(rotation.process)

    def provisioning_hook(self, program: str) -> ProvisioningHook:
        """Return the hook of a new process of its function."""
        cloud = self._cloud
        return ProvisioningHook(
            store=Records(cloud.tables(program), "fleet", REGISTRY),
            clock=self._clock,
            report=self._suspect,
            due_ms=86_400_000 * PLANE.certificate_max_age_days,
            end_later=ender(cloud.client(program, "sqs"), cloud.connections, HANDOVER_MS // 1_000),
        )

    def _suspect(self, thing: str, suspicion: str, certificate: str) -> None:
        self._engine.note("operations", f"{thing} {suspicion} {certificate[-4:]}")

    def _snapshot(self) -> None:
        devices = Records(self._cloud.tables("fleet-snapshot"), "fleet", REGISTRY)
        archive = self._archive("fleet-snapshot")
        FleetSnapshot(read=lambda: in_service(devices.all()), archive=archive, clock=self._clock).write()

    def _buckets(self, table: str, key: str) -> list[int]:
        """Return the buckets of an index that have items: reconciling the others changes nothing."""
        items = self._cloud.dynamodb.peek(table)
        return sorted({int(each[key]["N"]) for each in items if key in each})
