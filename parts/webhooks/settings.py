"""The settings of the functions that post events."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from eventplane.fields import whole
from eventplane.settings import Settings
from eventplane.sinks import SinkReach


@dataclass(frozen=True, kw_only=True)
class HttpSinkSettings(Settings):
    """Settings of every function that posts to HTTPS endpoints."""

    reach: SinkReach
    webhook_secret: str
    """The name of the secret with the signing keys."""
    webhook_origin: str
    """The name of the sender, in the header `WebHook-Request-Origin`."""
    outbox_queue: str
    """The queue for dead letters."""
    dead_letter_queue: str
    """The queue for dead letters about dead letters."""
    concurrency: int = whole(MISSING, 1, 1_000_000, "processes")
    """How many processes share the rate of an endpoint."""
    endpoints_table: str
    """The table of what is known of endpoints that fail."""
    archive_bucket: str
    """The archive's bucket."""


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(HttpSinkSettings):
    """Settings of a webhook."""

    source: str
    """The address of the channel that feeds the function."""
    webhook_url: str
    """The endpoint."""


@dataclass(frozen=True, kw_only=True)
class SubscribersSettings(HttpSinkSettings):
    """Settings of the function that posts to subscribed endpoints."""

    subscriptions_table: str
    """The table of subscriptions."""
