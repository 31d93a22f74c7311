"""What a replay reads in the archive: files of the tap, and the contracts that deliveries are owed by."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.contract import load_compiled
from eventplane.envelope import EventKey
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from eventplane.sender import sender_in_frame
from lambdas.common.log import logger
from lambdas.router.planner import Planner

MAX_KEPT: Final = 10
"""Most planners that are kept. Ours: subscriptions and interest make many contracts a day, and a file of the
tap is owed by few of them."""


class TapFileGoneError(EventPlaneError):
    """The archive has no `file` of this name any more."""

    def __init__(self, file: str) -> None:
        super().__init__(f"{file} is not in the archive any more; restore an older version of it")
        self.file = file


@dataclass(frozen=True, slots=True)
class Tapped:
    """An event as the tap has it; `accepted_at_ms` in Unix milliseconds."""

    key: EventKey
    text: str
    topic: str
    client_id: str
    accepted_at_ms: int


class TapFiles:
    """Reads the archive in `bucket` through a boto3 S3 client. What S3 refuses is raised as botocore does."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def events(self, file: str) -> Iterator[Tapped]:
        """The events of `file`, each once, in its order. Raises `TapFileGoneError`, and OSError, EOFError or
        zlib.error for a file that is damaged."""
        seen: set[EventKey] = set()
        # The packed file is read at once: S3 does not wait while what was read is being sent.
        with gzip.GzipFile(fileobj=io.BytesIO(self._packed(file))) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    event = _event(line)
                except (ValueError, LookupError, TypeError, RecursionError) as error:
                    # The audit has it in its quarantine: nothing is owed of it.
                    logger.warning("a line is no record", file=file, line=number, error=str(error))
                    continue
                if event is not None and event.key not in seen:
                    seen.add(event.key)
                    yield event

    def _packed(self, file: str) -> bytes:
        try:
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=file)["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                raise TapFileGoneError(file) from error
            raise
        return body


def _event(line: bytes) -> Tapped | None:
    record = json.loads(line)
    text = record["event"]
    if text is None:
        return None
    members = json.loads(text)
    return Tapped(
        key=(str(sender_in_frame(record["client_id"], members)), members["source"], members["id"]),
        text=text,
        topic=record["topic"],
        client_id=record["client_id"],
        accepted_at_ms=record["accepted_at_ms"],
    )


class UnknownContractError(EventPlaneError):
    """The archive has no contract of this `version`."""

    def __init__(self, version: str) -> None:
        super().__init__(f"the archive has no contract {version}; put it there as {CONTRACTS}/{version}.json")
        self.version = version


class Planners:
    """Planners for what comes over the channel `source`, by the contracts in the archive `bucket`."""

    def __init__(self, client: Any, bucket: str, source: str) -> None:
        self._client = client
        self._bucket = bucket
        self._source = source
        self._kept = lru_cache(MAX_KEPT)(self._made)

    def of(self, version: str) -> Planner:
        """Raises `UnknownContractError`, `ContractError`, and what botocore raises."""
        return self._kept(version)

    def _made(self, version: str) -> Planner:
        name = f"{CONTRACTS}/{version}.json"
        try:
            compiled = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                raise UnknownContractError(version) from error
            raise
        contract = load_compiled(compiled, name)
        if contract.version != version:
            raise UnknownContractError(version)
        return Planner(contract, self._source)
