"""What the router function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, text_mapping, whole_number
from lambdas.common.tracing_settings import TracingSettings, read_tracing


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """`source` is the address of the channel whose queue feeds the function; `queues` has a URL an inbox;
    `tracing` is None where nobody shall be told of spans.

    `contracts_table` has the published contracts, `subscriptions_table` the routes that participants added;
    both are looked at every `refresh_s` seconds.
    """

    source: str
    source_queue: str
    queues: Mapping[str, str]
    archive_bucket: str
    contracts_table: str
    subscriptions_table: str
    refresh_s: int
    tracing: TracingSettings | None
    root: Path


def read_settings(environment: Mapping[str, str]) -> RouterSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return RouterSettings(
        source=text(environment, "EVENTPLANE_SOURCE"),
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        queues=text_mapping(environment, "EVENTPLANE_QUEUES"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        contracts_table=text(environment, "EVENTPLANE_CONTRACTS_TABLE"),
        subscriptions_table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        refresh_s=whole_number(environment, "EVENTPLANE_CONTRACT_REFRESH_S"),
        tracing=read_tracing(environment),
        root=bundle_root(environment),
    )
