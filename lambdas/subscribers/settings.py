"""What the subscribers' function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, whole_number
from lambdas.common.sink_reach import SinkReach, read_sink_reach


@dataclass(frozen=True, slots=True)
class SubscribersSettings:
    """`source_queue`, `outbox` and `last_resort` are URLs of queues, `secret` names the plane's signing keys.

    `origin` says who sends, `sinks` where endpoints may be; `concurrency` is how many processes deliver at a
    time.
    """

    source_queue: str
    table: str
    secret: str
    origin: str
    sinks: SinkReach
    outbox: str
    last_resort: str
    concurrency: int
    archive_bucket: str
    root: Path


def read_settings(environment: Mapping[str, str]) -> SubscribersSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return SubscribersSettings(
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        secret=text(environment, "EVENTPLANE_WEBHOOK_SECRET"),
        origin=text(environment, "EVENTPLANE_WEBHOOK_ORIGIN"),
        sinks=read_sink_reach(environment),
        outbox=text(environment, "EVENTPLANE_OUTBOX_QUEUE"),
        last_resort=text(environment, "EVENTPLANE_DEAD_LETTER_QUEUE"),
        concurrency=whole_number(environment, "EVENTPLANE_CONCURRENCY"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        root=bundle_root(environment),
    )
