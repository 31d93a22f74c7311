"""Names that stacks, CloudFormation and others have to agree on."""

from __future__ import annotations

from typing import Final

from eventplane.downlink.table import WORK_QUEUE
from eventplane.resource_names import PROJECT

ROUTER: Final = "router"
"""The metrics' service of routers."""

ARCHIVE: Final = "archive"
"""That of the archive's writers."""

HTTP_SINK: Final = "http_sink"
"""That of functions that post events."""

URGENT_HTTP_SINK: Final = f"{HTTP_SINK}-urgent"
"""That of webhooks of urgent inboxes: their figures page."""

API: Final = "api"
"""That of the HTTP APIs."""

TAP: Final = "tap"
"""The queue from the IoT rules to the archive writer."""

INGEST_ERRORS: Final = "ingest-errors"
"""The queue for what an IoT rule could not hand to the others."""

LIFECYCLE: Final = "presence"
"""The queue from IoT Core's lifecycle messages to the presence monitor."""

TIMERS: Final = "presence-timers"
"""The queue of timers: a delayed message for each moment at which a device has to be judged."""

CONNECTIONS: Final = "connections"
"""The queue of devices' connections, and of ends of grace periods, to the rotation of certificates."""

WORK: Final = WORK_QUEUE
"""The queue of checks after a transmission, of devices that have just subscribed, and of resets."""


def rule_name(environment: str, purpose: str) -> str:
    """Return the name of an IoT rule; AWS IoT allows letters, digits and underscores only."""
    return f"{PROJECT}_{environment}_{purpose}"


def ingest_rule_name(environment: str) -> str:
    """Return the rule that devices publish to, all but urgent events; `urgent_rule` names the other."""
    return rule_name(environment, "ingest")


def pascal(name: str) -> str:
    """Return a participant's `name` as a construct id: `family-app` becomes `FamilyApp`.

    Logical ids start with it, for which CloudFormation allows letters and digits only.
    """
    return "".join(word.capitalize() for word in name.split("-"))


def url_output(participant: str, box: str) -> str:
    """Return the stack output that holds the URL of the queue of a cloud service's `box` (`Inbox`)."""
    return f"{pascal(participant)}{box}Url"
