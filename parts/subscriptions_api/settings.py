"""The settings of the Subscriptions API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventplane.function_settings import ContractSettings
from eventplane.sinks import SinkReach


@dataclass(frozen=True, kw_only=True)
class SubscriptionsApiSettings(ContractSettings):
    """Settings of the Subscriptions API."""

    inboxes: Mapping[str, str]
    """The ARN of the inbox queue of each participant that may use the API."""
    webhook_origin: str
    """The name of the sender, in the header `WebHook-Request-Origin`."""
    webhook_secret: str
    """The name of the secret with the signing keys."""
    reach: SinkReach
