"""The canary: a synthetic alarm that goes the way of a person's alarm, so that its absence is noticed."""

from __future__ import annotations

from typing import Final

CANARY: Final = "canary"
"""The participant whose inbox takes the canary's alarms. Without it a contract has no canary."""

CANARY_ALARM: Final = "org.eventplane.device.canary.v1"
"""The type of the canary's alarms."""

CANARY_CLIENT: Final = "+canary"
"""The canary's MQTT client id, and so the `senderdevice` of its alarms. No thing can have this name (AWS IoT
allows letters, digits, ":", "_" and "-"), so no device sends in its name or ends its connection. IoT Core
publishes no lifecycle events for client ids with a "+", so presence never learns of it."""

CANARY_SOURCE: Final = "/eventplane/cloud/canary"
"""The `source` of the canary's alarms."""
