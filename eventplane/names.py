"""The names of the plane's own participants, of the events that they send, and of its extension points."""

from __future__ import annotations

from collections.abc import Mapping
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
