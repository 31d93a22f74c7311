"""AWS clients that give up in time: a function that waits for a timeout returns no partial response."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session, get_session

from eventplane_aws.tables import DynamoDbTables
from lambdas.common.system import random_bytes

ATTEMPTS: Final = 2
"""How often botocore tries a call."""

_PAUSE_S: Final = 1
"""Longest pause before the second attempt, seconds (botocore, `ExponentialBackoff`)."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts of one attempt of a call, for the connection and for each part of the answer, seconds."""

    connect_s: float
    read_s: float

    @property
    def worst_call_ms(self) -> int:
        """Longest that one call can take, milliseconds. Further attempts are the queue's business."""
        return round(1_000 * (ATTEMPTS * (self.connect_s + self.read_s) + _PAUSE_S))


PATIENT: Final = Timeouts(connect_s=0.5, read_s=2)

QUICK: Final = Timeouts(connect_s=0.3, read_s=0.9)
"""For urgent events. Ours: SQS answers within 0.1 s, and a connection within a region takes milliseconds."""

WORST_CALL_MS: Final = PATIENT.worst_call_ms


@cache
def _session() -> Session:
    return get_session()


def client(service: str, patience: Timeouts = PATIENT) -> Any:
    """Return a client of `service` with the function's own role, region and endpoint.

    It is one of botocore, which is a boto3 client without the helpers for files in S3 and their imports.
    """
    return _session().create_client(
        service,
        config=Config(
            connect_timeout=patience.connect_s,
            read_timeout=patience.read_s,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            # A sixth of what a call costs the CPU; AWS validates as well.
            parameter_validation=False,
        ),
    )


def tables(patience: Timeouts = PATIENT) -> DynamoDbTables:
    """Return the tables of the function's own account."""
    return DynamoDbTables(client("dynamodb", patience), random_bytes)


def error_code(error: Exception) -> str:
    """Return AWS's code of `error`; '' where it is none of AWS's answers."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


class OnDemand:
    """A client that its first call makes: for a service that an average invocation does not call."""

    def __init__(self, service: str, patience: Timeouts = PATIENT) -> None:
        self._make = cache(lambda: client(service, patience))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)
