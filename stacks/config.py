"""The environments that there are: what an operator edits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs

from eventplane.errors import EventPlaneError
from eventplane.presence import OutageLimits
from eventplane.traffic import Quota
from stacks.environment import Environment
from stacks.settings import (
    AlarmSettings,
    DownlinkSettings,
    FunctionSize,
    JobSize,
    PresenceSettings,
    Retention,
)


class UnknownEnvironmentError(EventPlaneError):
    """There is no environment called `name`; `known` are those there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"environment {name!r} is unknown; use ENV=NAME (make) or --context env=NAME (cdk) with one of: "
            f"{', '.join(known)}"
        )
        self.name = name
        self.known = known


# A record carries a frame of up to 1,000 events, so that ten are a large batch already; without a window an
# alarm is never held back.
_ROUTER = FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, max_concurrency=10)

# What is not urgent waits up to five seconds for company: an invocation of many frames sends packed messages
# and writes one ledger message. The router itself bounds the events that it takes up at a time.
_DEVICE_ROUTER = replace(_ROUTER, batch_size=100, batch_window_s=5)

# What a killed function had in hand comes again after 24 s. A receive that Lambda spends on throttling costs
# an urgent message one of 1,000.
_URGENT_ROUTER = FunctionSize(
    memory_mib=512, timeout_s=12, batch_size=10, max_concurrency=10, visibility_factor=2
)

_AUDIT_SCHEDULE = "cron(30 2 * * ? *)"
"""Late enough for what devices sent, and routers wrote down, around midnight."""

_NIGHTLY = "cron(0 2 * * ? *)"
_HOURLY = "cron(40 * * * ? *)"
"""The compaction leaves an hour alone for half of the next one (glue_jobs/common/hours.py)."""

# The tap is in no hurry: the longer it gathers, the fewer objects the audit has to open.
_ARCHIVE_WRITER = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=500, batch_window_s=60, max_concurrency=5
)

_LOCAL_WRITER = FunctionSize(
    memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=1, max_concurrency=2
)

# An attempt mostly waits for the other side: memory buys it nothing but a shorter cold start.
_WEBHOOK = FunctionSize(memory_mib=512, timeout_s=60, batch_size=10, max_concurrency=2)
# Half a minute covers a lost connection that the device makes anew, and its own restart; without power or
# router a home has no help over the internet. A heartbeat comes every five minutes (edge/settings.py).
_PRESENCE = PresenceSettings(
    disconnected_after_s=30,
    connected_after_s=60,
    quiet_after_heartbeats=3,
    oldest_urgent_s=60,
    oldest_normal_s=900,
    # Of what IoT Core lets a connection send (100 publishes and 512 KiB a second) a fifth and a half; a
    # forwarder publishes four times a second. A device that catches up after days offline comes near it.
    quota=Quota(window_s=300, frames=6_000, events=1_000_000, bytes=75_000_000),
    # Of many heartbeats of one device the newest counts, and of many devices a hundred are read at once.
    recorder=FunctionSize(memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=2, max_concurrency=5),
    # A notice never waits for company; what a killed invocation held comes again after six timeouts.
    timers=FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, max_concurrency=5),
    reconciler=FunctionSize(memory_mib=512, timeout_s=55),
)

# Nothing waits for company: what a carer sends should be there now. A page of devices takes some seconds.
_DOWNLINK = DownlinkSettings(
    reader=FunctionSize(memory_mib=512, timeout_s=60, batch_size=10, max_concurrency=5),
    reconciler=FunctionSize(memory_mib=512, timeout_s=55),
)

ENVIRONMENTS: Final = {
    environment.name: environment
    for environment in (
        Environment(
            name="local",
            is_emulated=True,
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_DAY,
            # One machine plays everything: more would only wait for each other.
            router=replace(_ROUTER, max_concurrency=2),
            device_router=replace(_ROUTER, max_concurrency=2),
            urgent_router=replace(_URGENT_ROUTER, max_concurrency=2),
            archive_writer=_LOCAL_WRITER,
            ledger_writer=_LOCAL_WRITER,
            webhook=_WEBHOOK,
            contract_refresh_s=1,
            # Nobody wants to wait on one machine.
            presence=replace(
                _PRESENCE,
                disconnected_after_s=5,
                connected_after_s=2,
                quota=Quota(window_s=60, frames=600, events=100_000, bytes=15_000_000),
                # Tests end homes by the dozen, and no schedule sends what an outage holds back.
                outage=OutageLimits(least=1_000),
                is_active=False,
                recorder=FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, max_concurrency=2),
            ),
            downlink=replace(
                _DOWNLINK,
                is_scheduled=False,
                reader=replace(_DOWNLINK.reader, max_concurrency=2),
            ),
            inbox_visibility_s=30,
            audit=JobSize(workers=2, timeout_min=15),
            compaction=JobSize(workers=2, timeout_min=15),
            erasure=JobSize(workers=2, timeout_min=15),
            retention=Retention(raw_days=21, compacted_days=30, replaced_days=1),
            certificate_grace_s=1,
            # Whoever wants the canary's word invokes it.
            alarms=AlarmSettings(is_canary_scheduled=False),
        ),
        Environment(
            name="dev",
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_WEEK,
            router=_ROUTER,
            device_router=_DEVICE_ROUTER,
            urgent_router=_URGENT_ROUTER,
            archive_writer=_ARCHIVE_WRITER,
            webhook=_WEBHOOK,
            presence=_PRESENCE,
            downlink=_DOWNLINK,
            inbox_visibility_s=60,
            audit=JobSize(workers=2, timeout_min=30, schedule=_AUDIT_SCHEDULE),
            compaction=JobSize(workers=2, timeout_min=60, schedule=_NIGHTLY, is_flexible=True),
            erasure=JobSize(workers=2, timeout_min=60),
            retention=Retention(raw_days=21, compacted_days=90, replaced_days=7),
            # Idle, it should cost less than what it tests.
            alarms=AlarmSettings(is_detailed=False, canary_every_min=360),
        ),
        Environment(
            name="prod",
            # A first deployment that fails removes what it made; with RETAIN the names would stay taken.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            rollout_minutes=10,
            devices=10_000,
            # Yours, as texts ("123456789012", "eu-central-1"): it is not synthesized without them.
            account=None,
            region=None,
            # At least one page subscriber, e-mail address or HTTPS endpoint of a pager.
            alarms=AlarmSettings(page_subscribers=(), ticket_subscribers=()),
            log_retention=logs.RetentionDays.THREE_MONTHS,
            router=replace(_ROUTER, max_concurrency=100),
            device_router=replace(_DEVICE_ROUTER, max_concurrency=100),
            # Whatever else uses up the account's concurrency, alarms have their share.
            urgent_router=replace(
                _URGENT_ROUTER,
                max_concurrency=50,
                reserved_concurrency=50,
                # A home's first alarm of the night does not wait for a cold start: about $9 a month.
                provisioned_concurrency=2,
            ),
            archive_writer=replace(_ARCHIVE_WRITER, max_concurrency=20),
            webhook=replace(_WEBHOOK, max_concurrency=10),
            presence=replace(
                _PRESENCE,
                recorder=replace(_PRESENCE.recorder, max_concurrency=50),
                timers=replace(_PRESENCE.timers, max_concurrency=50),
            ),
            downlink=replace(_DOWNLINK, reader=replace(_DOWNLINK.reader, max_concurrency=50)),
            inbox_visibility_s=60,
            audit=JobSize(workers=5, timeout_min=120, schedule=_AUDIT_SCHEDULE),
            audit_today="cron(10 1-23 * * ? *)",
            compaction=JobSize(workers=5, timeout_min=120, schedule=_HOURLY, is_flexible=True),
            erasure=JobSize(workers=10, timeout_min=720),
            retention=Retention(raw_days=35, compacted_days=400, replaced_days=30),
        ),
    )
}
"""All environments by name."""


def environment(name: str) -> Environment:
    """The environment called `name`. Raises `UnknownEnvironmentError`."""
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise UnknownEnvironmentError(name, tuple(ENVIRONMENTS)) from None
