"""What the function of the Subscriptions API is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text, text_mapping


@dataclass(frozen=True, slots=True)
class SubscriptionsApiSettings:
    """`table` is called so; `inboxes` has the ARN of the inbox queue of each participant in use."""

    table: str
    inboxes: Mapping[str, str]


def read_settings(environment: Mapping[str, str]) -> SubscriptionsApiSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return SubscriptionsApiSettings(
        table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        inboxes=text_mapping(environment, "EVENTPLANE_INBOXES"),
    )
