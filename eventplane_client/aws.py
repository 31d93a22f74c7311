"""What the backends in AWS share: boto3 clients, and the client's errors in the place of botocore's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from eventplane_client.errors import StateError, UnavailableError

_CONFIG: Final = Config(connect_timeout=3, retries={"mode": "standard", "total_max_attempts": 3})


def aws_client(service: str) -> Any:
    """A boto3 client of `service` with the program's own credentials, region and endpoint."""
    return boto3.client(service, config=_CONFIG)


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
    """Raise `StateError` for what AWS or the network refuse."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise StateError(
            table, str(error), "see that the table exists and that this program may use it"
        ) from error
