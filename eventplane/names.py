"""The names that the plane defines: its own participants, their events, attributes, and extension points."""

from __future__ import annotations

from typing import Final

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


# The events that they send.

VERDICT: Final = "org.eventplane.audit.verdict.v1"
"""The audit's verdict on a window, with its totals."""

CANARY_ALARM: Final = "org.eventplane.device.canary.v1"
"""The type of the canary's alarms."""

CANARY_CLIENT: Final = "eventplane-canary"
"""The canary's thing and MQTT client id, and so the `senderdevice` of its alarms. No device can be called so
(`topics.is_device_name`): the registry refuses it, and presence does not count it."""

CANARY_CLIENTS: Final = (CANARY_CLIENT, "+canary")
"""With the client id of 0.3.0, which archives have: neither is a device."""

CANARY_SOURCE: Final = "/eventplane/cloud/canary"
"""The `source` of the canary's alarms."""

CONNECTED: Final = "org.eventplane.device.connected.v1"
DISCONNECTED: Final = "org.eventplane.device.disconnected.v1"
QUIET: Final = "org.eventplane.device.quiet.v1"
RECOVERED: Final = "org.eventplane.device.recovered.v1"
FLOODING: Final = "org.eventplane.device.flooding.v1"
NOTICE: Final = "org.eventplane.notice.carer.v1"
NOTICE_OF_MANY: Final = "org.eventplane.notice.many.v1"
"""The types of the presence events."""

SUSPECTED: Final = "org.eventplane.device.suspected.v1"
"""The type of reports that a device's key may be stolen."""

REPLAYED_TIME: Final = "replayedtime"
"""The attribute that marks a copy: when it was sent again, RFC 3339."""

# The attributes by which senders number events: devices for the audit, all for the order of inboxes.

EPOCH: Final = "deviceepoch"
"""Names one life of the spool: it changes only when the device's state was lost."""

SEQUENCE: Final = "devicesequence"
"""The event's number within the epoch, from 1 without gaps, zero-padded so that text sorts like numbers."""

SEQUENCE_DIGITS: Final = 12

DOWN_KIND: Final = "downkind"
"""What an event is on its way down: a state or a command. Only the plane stamps it (`downlink.wire`)."""

FOLLOWED_CONTRACT: Final = "devicecontract"
"""The version of the contract that the cloud sent to the device, under which it accepted the event."""

ORDER: Final = "orderin"
"""The event's positions in inboxes that keep the order of senders (`eventplane.ordering`)."""

ORDER_EPOCH: Final = "orderepoch"
"""The epoch in which a cloud service counts positions: one life of its client. A device has `deviceepoch`."""

# The attributes that link a request and its replies, and the type of the replies.

REPLY_TO: Final = "replyto"
"""Of requests and replies: the participant that asks."""

REPLY_DEVICE: Final = "replydevice"
"""Of a request from a device: the device; a reply from the cloud is sent down to it."""

CORRELATION_ID: Final = "correlationid"
"""Of requests and replies: unique to the request."""

CAUSATION_ID: Final = "causationid"
"""Of a reply: the `id` of the request."""

EXPIRY_TIME: Final = "expirytime"
"""When the event expires by the sender's clock. Of requests and replies: when the asker stops waiting."""

# The attributes by which hops count the lifetime of an event (docs/adr/0046-lifetimes.md).

SENT_TIME: Final = "senttime"
"""On the way between device and cloud: the present by the clock of the event's `time`, when it was sent."""

UPTIME_LIMIT: Final = "uptimelimit"
"""In the inbox of a service on a device: the uptime at which it expires, and the boot: `<ms> <boot id>`."""

DELIVER_BY: Final = "deliverby"
"""In the cloud: when the event expires, by the clock of the cloud's queues."""

LIFETIME_ATTRIBUTES: Final = (SENT_TIME, UPTIME_LIMIT, DELIVER_BY)

REPLY_TYPE: Final = "org.eventplane.conversation.reply.v1"
"""The `type` of every reply."""

# The attributes by which hops stamp an event's sender, and what the plane itself is called there.

SENDER_DEVICE: Final = "senderdevice"
"""The thing name of the sending device: the MQTT client id, which the IoT policy binds to the certificate."""

SENDER_SERVICE: Final = "senderservice"
"""The sending participant: the one whose outbox the event lay in."""

SENDER_ATTRIBUTES: Final = frozenset({SENDER_DEVICE, SENDER_SERVICE})
"""The reserved attributes. An event that arrives with one that is not due there is refused."""

PLANE: Final = "eventplane"
"""The `senderservice` of what the cloud's routers write themselves. No participant can have this name."""

PLANE_CLIENT: Final = "/eventplane/cloud/ingest-errors"
"""The client id of frames that the plane puts into the devices' queue itself. No device can connect by it:
a thing's name has no slash."""

SENDERS: Final = "eventplane.senders"
"""The entry points of what writes to a channel (docs/how-to/protocols.md). The name is the scheme of its URL;
the object is a function without arguments that returns a `lambdas.common.sender.DestinationSender`."""
