"""The filter for many readers of one inbox: an item for each event in DynamoDB.

Two writes an event, one to claim it and one when it is done; nothing else unless a handler is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane_client.aws import code_of, no_state
from eventplane_client.dynamodb_table import CONDITION_FAILED, DynamoDbState, Item, key_of, number, text
from eventplane_client.ports import Verdict

_CLAIM: Final = "SET session_id = :session, lease_until = :until, is_done = :no, expires = :expires"
_FREE: Final = "attribute_not_exists(event) OR expires < :now"
_FREE_OR_ABANDONED: Final = f"{_FREE} OR (is_done = :no AND (lease_until < :now OR session_id = :session))"


class DynamoDbFilter(DynamoDbState):
    """Remembers events one by one, in an item each."""

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        with no_state(self._table):
            for key in done:
                self._finish(key)
            self._in_hand.difference_update(done)
            verdicts = [self._claim(key, force=force) for key in keys]
        taken = (Verdict.NEW, Verdict.DOUBT) if force else (Verdict.NEW,)
        self._in_hand.update(key for key, each in zip(keys, verdicts, strict=True) if each in taken)
        return verdicts

    def release(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._if_mine("delete_item", key)
        self._in_hand.difference_update(keys)

    def renew(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if key in self._in_hand:
                self._if_mine(
                    "update_item",
                    key,
                    {":until": number(self._clock() + self._lease())},
                    UpdateExpression="SET lease_until = :until",
                )

    def _key(self, key: bytes) -> Item:
        # By two digits of the digest, so that no partition has to bear all of a busy inbox.
        return key_of(f"{self._participant}/{key[:1].hex()}", key.hex())

    def _claim(self, key: bytes, *, force: bool) -> Verdict:
        now = self._clock()
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key=self._key(key),
                UpdateExpression=_CLAIM,
                ConditionExpression=_FREE_OR_ABANDONED if force else _FREE,
                ExpressionAttributeValues={
                    ":session": text(self._session),
                    ":until": number(now + self._lease()),
                    ":expires": number(now + self._window_s),
                    ":now": number(now),
                    ":no": {"BOOL": False},
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if code_of(error) != CONDITION_FAILED:
                raise
            return self._verdict(key, error.response.get("Item", {}), now)
        return Verdict.DOUBT if force else Verdict.NEW

    def _verdict(self, key: bytes, item: Item, now: float) -> Verdict:
        if item.get("is_done", {}).get("BOOL"):
            return Verdict.DONE
        if item.get("session_id", {}).get("S") == self._session:
            if key in self._in_hand:
                return Verdict.MINE
            # A claim whose answer was lost; nobody got the event.
            return Verdict.NEW
        return Verdict.BUSY if int(item.get("lease_until", {"N": "0"})["N"]) >= now else Verdict.DOUBT

    def _finish(self, key: bytes) -> None:
        self._dynamodb.update_item(
            TableName=self._table,
            Key=self._key(key),
            UpdateExpression="SET is_done = :yes, expires = :expires",
            ExpressionAttributeValues={
                ":yes": {"BOOL": True},
                ":expires": self._expiry(),
            },
        )

    def _if_mine(self, operation: str, key: bytes, values: Item | None = None, **more: Any) -> None:
        with no_state(self._table):
            try:
                getattr(self._dynamodb, operation)(
                    TableName=self._table,
                    Key=self._key(key),
                    ConditionExpression="session_id = :session AND is_done = :no",
                    ExpressionAttributeValues={
                        ":session": text(self._session),
                        ":no": {"BOOL": False},
                        **(values or {}),
                    },
                    **more,
                )
            except ClientError as error:
                if code_of(error) != CONDITION_FAILED:
                    raise
