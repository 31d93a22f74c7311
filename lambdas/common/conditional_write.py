"""Writes to DynamoDB on condition, of which somebody else may have been faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import ClientError

_CONFLICT: Final = "ConditionalCheckFailedException"


def is_done(operation: Callable[..., object], request: dict[str, Any]) -> bool:
    """Do `operation` of a boto3 client; False where its condition does not hold.

    What else AWS refuses is raised as botocore raises it.
    """
    try:
        operation(**request)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == _CONFLICT:
            return False
        raise
    return True
