"""Makes the forwarder's parts from the settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edge.link import Backoff, Link
from edge.local_bus import local_topics
from edge.messages import LinkName, Message
from edge.mqtt import Connection, Endpoint
from edge.options import ForwarderOptions, Topics, UplinkLimits
from edge.settings import Settings
from eventplane.contract import Contract
from eventplane.topics import urgent_rule

Emit = Callable[[Message], None]


def forwarder_options(settings: Settings) -> ForwarderOptions:
    """What the loop is told."""
    cloud = settings.cloud
    return ForwarderOptions(
        thing=settings.thing,
        topics=_topics(settings),
        uplink=UplinkLimits(
            window=cloud.max_unacknowledged,
            payload_bytes=cloud.payload_bytes,
            batch_events=cloud.batch_events,
            puback_timeout_s=cloud.puback_timeout_s,
            publishes_per_s=cloud.publishes_per_s,
            bytes_per_s=cloud.bytes_per_s,
            probe_interval_s=cloud.probe_interval_s,
            single=cloud.mode == "single",
        ),
        inbox_window=settings.local.inbox_window,
        receipt_timeout_s=settings.local.receipt_timeout_s,
        stop_grace_s=settings.stop_grace_s,
        heartbeat_s=settings.heartbeat_s,
        manifest_interval_s=settings.manifest_interval_s,
    )


def _topics(settings: Settings) -> Topics:
    cloud = settings.cloud
    template, rule = cloud.topic.replace("{thing}", settings.thing), cloud.rule or ""
    return Topics(template.replace("{rule}", rule), template.replace("{rule}", urgent_rule(rule)))


def local_link(settings: Settings, contract: Callable[[], Contract], emit: Emit) -> Link:
    """The line to the home's broker; each connection subscribes to what the `contract` says then."""
    local = settings.local

    def endpoint() -> Endpoint:
        return Endpoint(
            host=local.host,
            port=local.port,
            client_id=local.client_id,
            # A lasting session: the broker keeps our messages while we restart.
            clean_session=False,
            keepalive_s=local.keepalive_s,
            connect_timeout_s=local.connect_timeout_s,
            subscriptions=tuple(local_topics(contract())),
            login=local.login,
        )

    backoff = Backoff(local.reconnect_min_s, local.reconnect_max_s)
    return Link(
        LinkName.LOCAL, partial(_dial, endpoint, LinkName.LOCAL, emit), backoff, local.connect_timeout_s
    )


def cloud_link(settings: Settings, emit: Emit) -> Link:
    """The line to IoT Core."""
    cloud = settings.cloud
    inbox = cloud.inbox_topic.replace("{thing}", settings.thing)

    def endpoint() -> Endpoint:
        return Endpoint(
            host=cloud.host,
            port=cloud.port,
            client_id=settings.thing,
            # The spool remembers what was sent, and the cloud what was not answered: no session to keep. One
            # that is kept would bring states that newer ones have followed.
            clean_session=True,
            keepalive_s=cloud.keepalive_s,
            connect_timeout_s=cloud.connect_timeout_s,
            subscriptions=(inbox,) if cloud.subscribes else (),
            # An alarm must get through also where the cloud has not been told of the downlink.
            needs_subscriptions=False,
            tls=cloud.identity,
            protocol=cloud.protocol,
        )

    backoff = Backoff(cloud.reconnect_min_s, cloud.reconnect_max_s)
    return Link(
        LinkName.CLOUD, partial(_dial, endpoint, LinkName.CLOUD, emit), backoff, cloud.connect_timeout_s
    )


def _dial(endpoint: Callable[[], Endpoint], name: LinkName, emit: Emit, generation: int) -> Connection:
    return Connection(endpoint(), name, generation, emit)
