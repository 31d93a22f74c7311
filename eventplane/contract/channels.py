"""The settings of channels and webhooks: what each may be, its default, and what no transport can promise.

The compiler, the compiled form and the docs follow `SETTINGS` and `WEBHOOK_SETTINGS`.
Where a webhook's endpoint is belongs to an environment, not to the contract.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eventplane.contract import (
    ALL_PERCENT,
    Channel,
    DeliveryGuarantee,
    Downlink,
    Forward,
    Ordering,
    ParticipantKind,
    Priority,
    Transport,
    Webhook,
    WebhookMode,
    WhenFull,
)
from eventplane.contract.reader import Flag, Number, Only, Section, Word
from eventplane.limits import DAY_S, MAX_BATCH_EVENTS, MAX_BATCHING_DELAY_MS, MAX_RECEIVES, UNSETTLED
from eventplane.names import OWN_SERVICES

TRANSPORTS = {
    ParticipantKind.DEVICE: (Transport.IOT_CORE,),
    ParticipantKind.DEVICE_SERVICE: (Transport.MQTT,),
    ParticipantKind.CLOUD_SERVICE: (Transport.SQS, Transport.SQS_FIFO),
}
"""The transports of the channels of each kind; the first is the default.

The channels of a cloud service may also use a protocol that a package adds. Whether it is installed is
checked where people compile a contract (contract/loader.py): the reader of a compiled one need not have it.
"""

ADDED_PROTOCOL: Final = re.compile(r"[a-z][a-z0-9]{1,19}")
"""The name of a protocol that a package adds. It is the scheme of its URLs as well (RFC 3986)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee(Word):
    """The guarantee of a channel, a type or a route, one word of `DeliveryGuarantee`."""

    options: type[StrEnum] = DeliveryGuarantee

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        if section.raw(name) != "exactly_once":
            return Word.read(self, name, section, default)
        section.fault(
            name,
            "no transport delivers exactly once",
            "write `at_least_once`; a reader that drops repeated `source` and `id` handles each event once",
        )
        return self.default


SETTINGS: Final[dict[str, Word | Number]] = {
    "delivery_guarantee": Guarantee(
        default=DeliveryGuarantee.AT_LEAST_ONCE,
        meaning="how reliable the channel is at most ([guarantees](#guarantees))",
        is_always_written=True,
    ),
    "priority": Word(
        options=Priority,
        default=Priority.NORMAL,
        meaning="the order of delivery, for types that declare none",
        is_always_written=True,
    ),
    "ordering": Word(
        options=Ordering,
        default=Ordering.NONE,
        meaning="`source` keeps the order of sending: within a group in a FIFO queue, in a standard inbox "
        "among events of one sender and one priority, which the reader's client library sorts "
        "([client.md](client.md#order))",
        is_always_written=True,
    ),
    "when_full": Word(
        options=WhenFull,
        default=WhenFull.REFUSE,
        meaning="what happens to new events of this channel when the device's store has no room for their "
        "priority",
        only=Only(
            (ParticipantKind.DEVICE, ParticipantKind.DEVICE_SERVICE),
            "outbox",
            "only an event that enters the device's store can find it full",
            "set it on the outbox of a device or a device_service",
        ),
        is_always_written=True,
    ),
    "downlink": Word(
        options=Downlink,
        default=Downlink.COMMAND,
        meaning="of a device's inbox, for types that declare nothing: of a `state` only the newest counts, "
        "each `command` is delivered ([downlink.md](../explanation/downlink.md))",
        only=Only(
            (ParticipantKind.DEVICE,),
            "inbox",
            "only what goes to a device has a downlink",
            "set it on the inbox of the device, or on an event type",
        ),
    ),
    "forward": Word(
        options=Forward,
        default=Forward.ALL,
        meaning="of the device's outbox: `wanted` keeps on the device what no reader in the cloud wants "
        "([interest.md](../explanation/interest.md))",
        only=Only(
            (ParticipantKind.DEVICE,),
            "outbox",
            "only devices ask what the cloud wants",
            "set it on the device's outbox",
        ),
    ),
    "expiry_s": Number(
        default=None,
        low=1,
        high=365 * DAY_S,
        unit="seconds",
        meaning="how long an event is worth delivering",
        is_always_written=True,
    ),
    "batching_delay_ms": Number(
        default=0,
        low=0,
        high=MAX_BATCHING_DELAY_MS,
        unit="milliseconds",
        meaning="of an outbox on a device: how long an event that is not urgent may wait in the device's "
        "store, so that one frame carries several ([device.md](device.md#gathering))",
        is_always_written=True,
    ),
    "events_per_message": Number(
        default=1,
        low=1,
        high=MAX_BATCH_EVENTS,
        unit="events",
        meaning="of a cloud service's inbox: how many events that are not urgent one message may carry "
        "([packed inboxes](#packed-inboxes))",
    ),
    "receipts_percent": Number(
        default=ALL_PERCENT,
        low=1,
        high=ALL_PERCENT,
        unit="percent",
        meaning="of a cloud service's inbox with `receipts`: the share of its events of which a receipt is "
        "kept",
    ),
    # SQS keeps a message for 60 s to 14 days. The reader of an outbox is the plane, and its events are
    # nowhere else.
    "retention_s": Number(
        default=7 * DAY_S,
        outbox_default=14 * DAY_S,
        low=60,
        high=14 * DAY_S,
        unit="seconds",
        meaning="how long a queue keeps an event; an outbox's 1,209,600",
        is_always_written=True,
    ),
    # Within a day every schedule stays below the receives that SQS counts (eventplane/retries.py).
    "give_up_after_s": Number(
        default=None,
        low=60,
        high=DAY_S,
        unit="seconds",
        meaning="how long after its first failed attempt an event is tried, before it becomes a dead letter",
        unset="see [giving up](#giving-up)",
    ),
    # Below five, throttled invocations alone can spend the receives (AWS Lambda guide for SQS). Routers
    # dead-letter bad events; only messages in flight in a function that dies spend an outbox's. Ours: at
    # 180 s each, two and a half hours of a function that dies every time.
    "max_receives": Number(
        default=UNSETTLED,
        outbox_default=50,
        low=5,
        high=MAX_RECEIVES,
        unit="receives",
        meaning="those that end without a settlement (crash, out of memory, timeout) before a dead letter",
        is_always_written=True,
    ),
}
"""The settings that are words or numbers, by name."""

RECEIPTS: Final = Flag(
    default=False,
    meaning="of a device service: the inbox's reader confirms each event after handling it, not at "
    "reception; the outbox's sender repeats each event until the forwarder has stored it, as the "
    "client library does. Of a cloud service's inbox: its reader, by the client library, leaves a "
    "receipt of each event that it handled or gave up, and the audit expects it "
    "([receipts](client.md#receipts))",
)


def read_channel(participant: str, kind: ParticipantKind, section: Section) -> Channel:
    """Return the channel of `section`, `participant.box`; faults go to the section."""
    box = section.path.rsplit(".", 1)[-1]
    transport = _transport(participant, kind, section)
    values: dict[str, Any] = {name: each.read_of(name, section, kind, box) for name, each in SETTINGS.items()}
    is_urgent_service = kind is ParticipantKind.DEVICE_SERVICE and values["priority"] is Priority.URGENT
    # Until the forwarder has stored an event, only its sender is sure to have it.
    values["receipts"] = RECEIPTS.read("receipts", section, box == "outbox" and is_urgent_service)
    hook = None if section.raw("webhook") is None else section.section("webhook")
    values["give_up_after_s"] = _give_up(values["ordering"], values["retention_s"], section, hook)
    webhook = read_webhook(kind, box, section, hook) if hook else None
    channel = Channel(participant, box, transport, webhook=webhook, **values)
    if channel.ordering is Ordering.SOURCE:
        _check_ordering(channel, section)
    if channel.events_per_message > 1:
        _check_packing(channel, section)
    _check_receipts(kind, channel, section)
    section.finish()
    return channel


def is_default(channel: Channel, kind: ParticipantKind) -> bool:
    """Return whether `channel`, of a participant of `kind`, is as without any setting."""
    return channel == read_channel(channel.participant, kind, Section(channel.box, {}, []))


def _give_up(ordering: Ordering, retention_s: int, channel: Section, webhook: Section | None) -> int | None:
    """Return `give_up_after_s` of a channel: that of a webhook's inbox is always written out.

    Before format 9 it was a setting of the webhook, where the compiled form of a webhook still has it.
    """
    number, name, section = SETTINGS["give_up_after_s"], "give_up_after_s", channel
    given: int | None = number.read(name, channel)
    if webhook is not None:
        former = webhook.raw(name)
        if given is None:
            from eventplane.retries import default_give_up_s  # which only webhooks need

            section, is_ordered = webhook, ordering is Ordering.SOURCE
            default_s = default_give_up_s(retention_s, is_urgent=True, is_ordered=is_ordered)
            given = number.read(name, webhook, default_s)
        elif former is not None:
            webhook.fault(name, "the inbox has this setting too", "remove it here")
    if given is not None and given >= retention_s:
        section.fault(
            name,
            f"the queue deletes an event after {retention_s} s, before it can become a dead letter",
            "make it less than the channel's `retention_s`",
        )
    return given


def _transport(participant: str, kind: ParticipantKind, section: Section) -> Transport | str:
    known = TRANSPORTS[kind]
    named = section.raw("transport")
    if kind is ParticipantKind.CLOUD_SERVICE and isinstance(named, str) and named not in set(Transport):
        return _added_protocol(participant, named, section)
    transport = section.choice("transport", Transport, known[0]) or known[0]
    if transport in known:
        return transport
    if kind is ParticipantKind.DEVICE and transport is Transport.SQS_FIFO:
        section.fault(
            "transport",
            "an IoT rule cannot write to a FIFO queue",
            "leave `transport` out; for the order of a device's events use `ordering: source` on the inbox",
        )
    else:
        section.fault(
            "transport", f"a {kind} has no {transport} channel", f"choose one of: {', '.join(known)}"
        )
    return known[0]


def _added_protocol(participant: str, name: str, section: Section) -> str:
    if not ADDED_PROTOCOL.fullmatch(name):
        section.fault(
            "transport",
            f"{name!r} is not known",
            f"choose one of: {', '.join(TRANSPORTS[ParticipantKind.CLOUD_SERVICE])}, or a protocol that a "
            "package adds: 2 to 20 lower-case letters and digits, a letter first",
        )
    if participant in OWN_SERVICES or section.raw("webhook") is not None:
        section.fault(
            "transport",
            "a function of the plane reads or writes this channel, an SQS queue",
            "leave `transport` out, and `webhook` where another protocol is wanted",
        )
    return name


def _check_ordering(channel: Channel, section: Section) -> None:
    transport = channel.transport
    if channel.is_added_protocol:
        section.fault(
            "ordering",
            f"nothing keeps order over {transport}",
            "use `transport: sqs` for an inbox, `transport: sqs_fifo` or `ordering: none`",
        )
    if transport is Transport.IOT_CORE:
        section.fault(
            "ordering",
            "IoT Core and the standard queue behind its rule promise no order",
            "use `ordering: none` here, and `ordering: source` on the inboxes in the cloud that need it",
        )
    if transport is not Transport.SQS:
        return
    if channel.box != "inbox":
        section.fault(
            "ordering",
            "a standard queue promises no order",
            "use `transport: sqs_fifo` or `ordering: none`; an inbox with `ordering: source` needs neither",
        )
    elif channel.webhook:
        section.fault(
            "ordering",
            "a webhook posts what a standard queue gives, in any order",
            "use `ordering: none`, or let a program read the inbox by the client library, which sorts",
        )
    elif channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT:
        section.fault(
            "ordering",
            "senders do not number what may be lost",
            "use `delivery_guarantee: at_least_once` or `ordering: none`",
        )


def _check_packing(channel: Channel, section: Section) -> None:
    if channel.box != "inbox" or channel.transport is not Transport.SQS:
        problem = "only a cloud service's inbox in a standard queue carries several events in one message"
        remedy = "leave it out here, or use `transport: sqs`"
    elif channel.participant in OWN_SERVICES:
        problem = "a function of the plane reads this inbox, one event in one message"
        remedy = "leave it out here"
    elif channel.ordering is Ordering.SOURCE:
        problem = "the reader of an ordered inbox gives back single events to keep their order"
        remedy = "leave it out here, or use `ordering: none`"
    else:
        return
    section.fault("events_per_message", problem, remedy)


def _check_receipts(kind: ParticipantKind, channel: Channel, section: Section) -> None:
    if channel.receipts_percent < ALL_PERCENT and not channel.asks_for_receipts:
        section.fault(
            "receipts_percent",
            "only the reader of a cloud service's queue leaves receipts of a share",
            "set `receipts: true` on that inbox, or leave this out",
        )
    if kind is not ParticipantKind.CLOUD_SERVICE or channel.box != "inbox" or not channel.receipts:
        return
    if channel.participant in OWN_SERVICES:
        problem = "a function of the plane reads this inbox, and leaves no receipts"
    elif channel.webhook:
        problem = "what a webhook did with each event is recorded in any case"
    elif channel.is_added_protocol:
        problem = f"a reader over {channel.transport} leaves no receipts"
    else:
        return
    section.fault("receipts", problem, "leave it out here")


WEBHOOK_SETTINGS: Final[dict[str, Word | Number]] = {
    "mode": Word(
        options=WebhookMode,
        default=WebhookMode.STRUCTURED,
        meaning="the event as the body, or its attributes as headers",
    ),
    "timeout_s": Number(
        default=10, low=1, high=30, unit="seconds", meaning="how long one attempt may take in all"
    ),
    "requests_per_minute": Number(
        default=None, low=1, high=60_000, unit="requests", meaning="most requests to the endpoint in a minute"
    ),
}

_ELSEWHERE = {
    "url": "name it under `webhook_urls` of each environment in stacks/environments.toml",
    "secret": "leave it out: the stacks make one for each webhook, `aws secretsmanager` changes it",
}
"""Settings of an environment that people look for here, and where each is set instead."""


def read_webhook(kind: ParticipantKind, box: str, channel: Section, section: Section) -> Webhook:
    """Return the webhook in `section` of an inbox; faults go to the sections."""
    if kind is not ParticipantKind.CLOUD_SERVICE or box != "inbox":
        channel.fault(
            "webhook", "only the inbox of a cloud_service can lead to an HTTPS endpoint", "remove it here"
        )
    for name, remedy in _ELSEWHERE.items():
        if section.raw(name) is not None:
            section.fault(name, "it differs between environments, the contract does not", remedy)
    webhook = Webhook(**{name: each.read(name, section) for name, each in WEBHOOK_SETTINGS.items()})
    section.finish()
    return webhook
