"""What the webhook function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, whole_number
from lambdas.common.sink_reach import SinkReach, read_sink_reach


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """`source` is the address of the inbox, `source_queue` the URL of its queue; `url` is the endpoint.

    `reach` bounds where the endpoint may be. `secret` names the signing keys, `origin` who sends; `outbox`
    and `last_resort` are the URLs of the queues for dead letters. `concurrency` is how many processes deliver
    at a time.
    """

    source: str
    source_queue: str
    url: str
    reach: SinkReach
    secret: str
    origin: str
    outbox: str
    last_resort: str
    concurrency: int
    archive_bucket: str
    root: Path


def read_settings(environment: Mapping[str, str]) -> WebhookSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return WebhookSettings(
        source=text(environment, "EVENTPLANE_SOURCE"),
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        url=text(environment, "EVENTPLANE_WEBHOOK_URL"),
        reach=read_sink_reach(environment),
        secret=text(environment, "EVENTPLANE_WEBHOOK_SECRET"),
        origin=text(environment, "EVENTPLANE_WEBHOOK_ORIGIN"),
        outbox=text(environment, "EVENTPLANE_OUTBOX_QUEUE"),
        last_resort=text(environment, "EVENTPLANE_DEAD_LETTER_QUEUE"),
        concurrency=whole_number(environment, "EVENTPLANE_CONCURRENCY"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        root=bundle_root(environment),
    )
