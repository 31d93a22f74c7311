"""Shared by the backends in AWS: boto3 clients, and the client's errors in the place of botocore's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from eventplane.records import ConflictError, RecordError
from eventplane_client.errors import ClientSettingsError, StateError, UnavailableError, extras

with extras():
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoRegionError, ProfileNotFound

_READ_S: Final = 3
"""How long one attempt waits for an answer, seconds: an event whose answer is lost is late by that."""


def aws_client(service: str, *, poll_s: float = 0) -> Any:
    """Return a boto3 client of `service` with the program's own credentials, region and endpoint.

    Its calls may be long polls of up to `poll_s` seconds. Raises `ClientSettingsError` without a region, or
    for a profile that does not exist.
    """
    config = Config(
        connect_timeout=3,
        read_timeout=poll_s + _READ_S,
        retries={"mode": "standard", "total_max_attempts": 3},
    )
    try:
        return boto3.client(service, region_name=region(), config=config)
    except NoRegionError as error:
        raise ClientSettingsError("AWS_REGION", "it is missing", "set it, or name a profile's") from error
    except ProfileNotFound as error:
        raise ClientSettingsError("AWS_PROFILE", str(error), "name one that exists") from error
    except ValueError as error:
        raise ClientSettingsError("AWS_ENDPOINT_URL or AWS_REGION", str(error), "correct it") from error


def region() -> str | None:
    """Return the region of the environment, None for the profile's. boto3 itself does not read AWS_REGION."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def code_of(error: Exception) -> str:
    """AWS's word for the error, '' when there is none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


@contextmanager
def unavailable(participant: str) -> Iterator[None]:
    """Raise `UnavailableError` for what AWS or the network refuse."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise UnavailableError(participant, str(error)) from error


@contextmanager
def no_state(table: str) -> Iterator[None]:
    """Raise `StateError` for what AWS or the network refuse, and for items that cannot be read."""
    try:
        yield
    except (ClientError, BotoCoreError, ConflictError, RecordError) as error:
        raise StateError(
            table, str(error), "see that the table exists and that this program may use it"
        ) from error
