"""The names that the plane defines: its own participants, their events, attributes, and extension points."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eventplane.contract.model import Participant

# The participants that are functions or jobs of this plane: nobody else reads their inboxes.

AUDITOR: Final = "audit"
"""The delivery audit: its outbox carries verdicts; nothing is routed to its inbox."""

CANARY: Final = "canary"
"""The canary, a synthetic alarm that takes the way of a person's alarm, so that its absence is noticed. The
inbox takes its alarms; a contract without the participant has no canary."""

DOWNLINK: Final = "downlink"
"""The functions that bring events to devices: the inbox takes what devices answer, the outbox has the dead
letters of what they rejected. A contract without the participant has no downlink."""

MONITOR: Final = "presence-monitor"
"""The functions that monitor presence: the inbox takes heartbeats, the outbox carries the presence events."""

SUBSCRIBERS: Final = "subscribers"
"""The participant that stands for all HTTPS endpoints: its inbox takes the events of their subscriptions."""

OWN_SERVICES: Final = frozenset({AUDITOR, CANARY, DOWNLINK, MONITOR, SUBSCRIBERS})


def leads_down(participants: Mapping[str, Participant]) -> bool:
    """Return whether events go down to devices in a contract with these `participants`."""
    downlink = participants.get(DOWNLINK)
    return downlink is not None and not downlink.retired


# The events that they send.

VERDICT: Final = "org.eventplane.audit.verdict.v1"
"""The audit's verdict on a window, with its totals."""

CANARY_ALARM: Final = "org.eventplane.device.canary.v1"
"""The type of the canary's alarms."""

CANARY_CLIENT: Final = "+canary"
"""The canary's MQTT client id, and so the `senderdevice` of its alarms. No thing can have this name (AWS IoT
allows letters, digits, ":", "_" and "-"), so no device sends in its name or ends its connection. IoT Core
publishes no lifecycle events for client ids with a "+", so presence never learns of it."""

CANARY_SOURCE: Final = "/eventplane/cloud/canary"
"""The `source` of the canary's alarms."""

CONNECTED: Final = "org.eventplane.device.connected.v1"
DISCONNECTED: Final = "org.eventplane.device.disconnected.v1"
QUIET: Final = "org.eventplane.device.quiet.v1"
RECOVERED: Final = "org.eventplane.device.recovered.v1"
FLOODING: Final = "org.eventplane.device.flooding.v1"
NOTICE: Final = "org.eventplane.notice.carer.v1"
"""The types of the presence events."""

# What each attribute of an event is for; the rules of their values are `eventplane.attributes.RULES`, and
# `eventplane.downlink.addressing` for those of events for devices.


class SetBy(StrEnum):
    """Who sets an attribute. One that a hop of the plane sets is refused where somebody else has set it."""

    SENDER = "the sender"
    ASKER = "who asks, who replies"
    DEVICE = "the device"
    COUNTER = "the device; the client library of a cloud service"
    ROUTER = "the cloud's router"
    FIRST_HOP = "the first hop of the plane"
    REPLAY = "the replay"
    DOWNLINK = "the downlink"
    DEAD_LETTER = "who writes a dead letter"


ATTRIBUTES: Final[Mapping[str, tuple[SetBy, str]]] = {
    "specversion": (SetBy.SENDER, "The version of CloudEvents."),
    "id": (SetBy.SENDER, "Identifies the event, together with its sender and its `source`."),
    "source": (SetBy.SENDER, "The context of the event. A claim: the sender is what the transport says."),
    "type": (SetBy.SENDER, "What happened; routes, `sends` and priorities go by it."),
    "subject": (SetBy.SENDER, "What of the source the event is about."),
    "time": (SetBy.SENDER, "When it happened."),
    "datacontenttype": (SetBy.SENDER, "The media type of the data; absent: JSON."),
    "dataschema": (SetBy.SENDER, "The schema of the data, checked where the contract has a `schema_check`."),
    "severitynumber": (SetBy.SENDER, "Gives the priority that the contract leaves open."),
    "severitytext": (SetBy.SENDER, "Carried."),
    "expirytime": (SetBy.SENDER, "From then on the event is not delivered."),
    "deliveryguarantee": (SetBy.SENDER, "Delivers the event at best effort, wherever it goes."),
    "partitionkey": (SetBy.SENDER, "The message group of a FIFO queue."),
    "sequence": (SetBy.SENDER, "Carried."),
    "traceparent": (SetBy.SENDER, "The span in which the event began (W3C Trace Context)."),
    "tracestate": (SetBy.SENDER, "Carried."),
    "recordedtime": (SetBy.SENDER, "When the event was recorded; the audit measures latency from it."),
    "replyto": (SetBy.ASKER, "The participant that asks."),
    "replydevice": (SetBy.ASKER, "The device that asks; a reply from the cloud goes down to it."),
    "correlationid": (SetBy.ASKER, "Identifies the request."),
    "causationid": (SetBy.ASKER, "Of a reply: the `id` of the request."),
    "todevice": (SetBy.SENDER, "The device that an event is for; `*` is every device."),
    "togroup": (SetBy.SENDER, "The group of devices that an event is for."),
    "statekey": (SetBy.SENDER, "The key of a state: `kind/namespace/name`."),
    "stateversion": (SetBy.SENDER, "Grows with every change of the state."),
    "stateuid": (SetBy.SENDER, "The incarnation of the state's object."),
    "statedelete": (SetBy.SENDER, "Whether the state's object is gone."),
    "senderdevice": (
        SetBy.FIRST_HOP,
        "The sending device: the MQTT client id of its certificate.",
    ),
    "senderservice": (SetBy.FIRST_HOP, "The sending participant: the owner of the outbox."),
    "deviceepoch": (SetBy.DEVICE, "One life of the device's spool."),
    "devicesequence": (SetBy.DEVICE, "The event's number within the epoch, from 1 without gaps."),
    "orderin": (SetBy.COUNTER, "The event's positions in inboxes that keep an order."),
    "orderepoch": (SetBy.COUNTER, "Of a cloud service: the epoch in which positions count."),
    "routerhops": (SetBy.ROUTER, "How often the event was sent on; stops loops."),
    "replayedtime": (SetBy.REPLAY, "Marks a copy that was sent again, and when."),
    "deadletterreason": (SetBy.DEAD_LETTER, "The reason of a dead letter, for filters."),
    "downkind": (SetBy.DOWNLINK, "Whether it is a state or a command."),
    "downkey": (SetBy.DOWNLINK, "The key, within which the newest wins or the order holds."),
    "downuid": (SetBy.DOWNLINK, "The incarnation of the key."),
    "downreset": (SetBy.DOWNLINK, "The number of the key's last reset; compared before the version."),
    "downversion": (SetBy.DOWNLINK, "The version of the state."),
    "downdelete": (SetBy.DOWNLINK, "Whether the state is a tombstone."),
    "downorder": (SetBy.DOWNLINK, "The position of a command within its key."),
    "downfence": (SetBy.DOWNLINK, "The fencing token: raised when a device has lost its state."),
}
"""By name: who sets it, and what it is for."""

# The attributes by which senders number events: devices for the audit, all for the order of inboxes.

EPOCH: Final = "deviceepoch"
"""Names one life of the spool: it changes only when the device's state was lost."""

SEQUENCE: Final = "devicesequence"
"""The event's number within the epoch, from 1 without gaps, zero-padded so that text sorts like numbers."""

SEQUENCE_DIGITS: Final = 12

ORDER: Final = "orderin"
"""The event's positions in inboxes that keep the order of senders (`eventplane.ordering`)."""

ORDER_EPOCH: Final = "orderepoch"
"""The epoch in which a cloud service counts positions: one life of its client. A device has `deviceepoch`."""

# The groups of entry points by which protocols are found; docs/protocols.md says how one is added. Those of
# the plane are registered like those of other packages: in the `*.dist-info` beside a package.

TRANSPORTS: Final = "eventplane.transports"
"""What connects a client. The name is what the client's setting `transport` begins with, before a colon; the
object is an `eventplane_client.connectors.Connector`."""

SENDERS: Final = "eventplane.senders"
"""What routers write to a channel with. The name is the scheme of the channel's URL; the object is a function
without arguments that returns a `lambdas.common.sender.Sender`."""
