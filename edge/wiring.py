"""Makes the forwarder's parts from the settings."""

from __future__ import annotations

from collections.abc import Callable

from edge.link import Backoff, Link, link_to_broker
from edge.local_bus import local_topics
from edge.mailbox import LinkName, Message
from edge.mqtt import Connection, Endpoint
from edge.mqtt.endpoint import BrokerAddress
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
            longest_delay_ms=cloud.longest_delay_ms,
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

    def dial(address: BrokerAddress, generation: int) -> Connection:
        endpoint = Endpoint(
            host=address.host,
            port=address.port,
            client_id=local.client_id,
            # A lasting session: the broker keeps our messages while we restart.
            clean_session=False,
            keepalive_s=local.keepalive_s,
            connect_timeout_s=local.connect_timeout_s,
            subscriptions=tuple(local_topics(contract())),
            tls=address.tls,
            login=local.login,
        )
        return Connection(endpoint, LinkName.LOCAL, generation, emit)

    return link_to_broker(
        BrokerAddress(local.host, local.port),
        local.profile,
        dial,
        Backoff(local.reconnect_min_s, local.reconnect_max_s),
        local.connect_timeout_s,
        has_login=local.login is not None,
    )


def cloud_link(settings: Settings, emit: Emit) -> Link:
    """The line to IoT Core."""
    cloud = settings.cloud
    inbox = cloud.inbox_topic.replace("{thing}", settings.thing)
    endpoint = Endpoint(
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

    def dial(generation: int) -> Connection:
        return Connection(endpoint, LinkName.CLOUD, generation, emit)

    backoff = Backoff(cloud.reconnect_min_s, cloud.reconnect_max_s)
    return Link(LinkName.CLOUD, dial, backoff, cloud.connect_timeout_s)
