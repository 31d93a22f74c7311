"""What the function of the Subscriptions API is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text, text_mapping
from lambdas.common.sink_reach import SinkReach, read_sink_reach


@dataclass(frozen=True, slots=True)
class SubscriptionsApiSettings:
    """`table` is called so; `inboxes` has the ARN of the inbox queue of each participant in use.

    `origin` says who sends, `secret` names the plane's signing keys, `sinks` says where endpoints may be.
    """

    table: str
    inboxes: Mapping[str, str]
    origin: str
    secret: str
    sinks: SinkReach


def read_settings(environment: Mapping[str, str]) -> SubscriptionsApiSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return SubscriptionsApiSettings(
        table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        inboxes=text_mapping(environment, "EVENTPLANE_INBOXES"),
        origin=text(environment, "EVENTPLANE_WEBHOOK_ORIGIN"),
        secret=text(environment, "EVENTPLANE_WEBHOOK_SECRET"),
        sinks=read_sink_reach(environment),
    )
