"""The memory of what devices were told last."""

from __future__ import annotations

from typing import Any

from eventplane.uplink_told import Told, begin_request, done_request, read_told, told_key
from lambdas.common.conditional_write import is_done


class ToldTable:
    """Through a boto3 DynamoDB client. What AWS refuses is raised as botocore raises it."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> Told | None:
        """What was told last; None: nothing yet, or somebody asked to have it told again."""
        answer = self._client.get_item(TableName=self._name, Key=told_key(), ConsistentRead=True)
        return read_told(answer["Item"]) if "Item" in answer else None

    def begin(self, at_ms: int) -> bool:
        """Before telling: what was told is unknown from here on. False when somebody began later."""
        return is_done(self._client.put_item, begin_request(self._name, at_ms))

    def done(self, told: Told) -> bool:
        """After telling; False when somebody began meanwhile."""
        return is_done(self._client.put_item, done_request(self._name, told))
