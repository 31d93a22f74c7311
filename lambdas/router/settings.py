"""What the router function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text, text_mapping
from lambdas.common.tracing_settings import TracingSettings, read_tracing
from lambdas.router.contract_settings import ContractSettings, read_contract_settings


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """`source` is the address of the channel whose queue feeds the function; `queues` has a URL an inbox;
    `tracing` is None where nobody shall be told of spans.
    """

    source: str
    source_queue: str
    queues: Mapping[str, str]
    archive_bucket: str
    contract: ContractSettings
    tracing: TracingSettings | None


def read_settings(environment: Mapping[str, str]) -> RouterSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return RouterSettings(
        source=text(environment, "EVENTPLANE_SOURCE"),
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        queues=text_mapping(environment, "EVENTPLANE_QUEUES"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        contract=read_contract_settings(environment),
        tracing=read_tracing(environment),
    )
