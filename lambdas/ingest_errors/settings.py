"""What the ingest-errors function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text, text_list


@dataclass(frozen=True, slots=True)
class IngestErrorsSettings:
    """`ways_in` are the URLs of the queues that rules write to, `letters_to` those for a dead letter."""

    source_queue: str
    ways_in: tuple[str, ...]
    letters_to: tuple[str, ...]
    channel: str
    contract_version: str


def read_settings(environment: Mapping[str, str]) -> IngestErrorsSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return IngestErrorsSettings(
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        ways_in=text_list(environment, "EVENTPLANE_WAYS_IN"),
        letters_to=text_list(environment, "EVENTPLANE_LETTERS_TO"),
        channel=text(environment, "EVENTPLANE_SOURCE"),
        contract_version=text(environment, "EVENTPLANE_CONTRACT"),
    )
