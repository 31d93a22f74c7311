"""AWS clients that give up in time: a function that waits for a timeout returns no partial response."""

from __future__ import annotations

from typing import Any, Final

import boto3
from botocore.config import Config

_CONNECT_SECONDS: Final = 1
_READ_SECONDS: Final = 2
_ATTEMPTS: Final = 2

WORST_CALL_MS: Final = 1_000 * _ATTEMPTS * (_CONNECT_SECONDS + _READ_SECONDS)
"""Longest that one call can take, milliseconds. Further attempts are the queue's business."""


def client(service: str) -> Any:
    """A boto3 client of `service` with the function's own role, region and endpoint."""
    return boto3.client(
        service,
        config=Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        ),
    )
