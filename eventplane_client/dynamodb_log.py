"""The cheap filter: one write for each batch. Its readers append to one log in DynamoDB, and all know it.

An entry says what was claimed, done and given back. It is written only behind the last entry that its writer
has read, so two readers never claim the same event: whoever comes second reads on, and decides again.

Entries expire. Who knows of none that is sure to be there still reads the log from its beginning, and an
empty one begins with the same number for all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane_client.aws import code_of, no_state
from eventplane_client.dynamodb_table import (
    CONDITION_FAILED,
    EXPIRES,
    PARTITION,
    SORT,
    WINDOW_S,
    DynamoDbState,
    Item,
    key_of,
    number,
    text,
)
from eventplane_client.ports import Lease, Verdict

MOST: Final = 1_000_000
"""Events that are kept in memory, about 200 bytes each; the oldest are forgotten first."""

_FIRST: Final = 1
_DIGITS: Final = 16
_KEY_BYTES: Final = 16


@dataclass(slots=True)
class _Seen:
    session: str
    is_done: bool


class DynamoDbLogFilter(DynamoDbState):
    """Remembers events in a log, and in memory: each reader knows all, and reads the log when it starts.

    For one reader or a few.
    """

    def __init__(
        self,
        dynamodb: Any,
        table: str,
        participant: str,
        *,
        lease: Lease,
        window_s: float = WINDOW_S,
        clock: Callable[[], float] = time,
    ) -> None:
        super().__init__(dynamodb, table, participant, lease=lease, window_s=window_s, clock=clock)
        self._partition = f"{participant}/log"
        self._lock = threading.RLock()
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._leases: dict[str, float] = {}
        self._next = _FIRST
        self._last_s = 0.0  # when the last entry that is known was written
        with no_state(table):
            self._read_on()

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        with self._lock, no_state(self._table):
            if self._is_lost() or any(self._verdict(key) in (Verdict.BUSY, Verdict.DOUBT) for key in keys):
                self._read_on()  # the other reader may have renewed or ended meanwhile
            while True:
                verdicts = [Verdict.DONE if key in done else self._verdict(key) for key in keys]
                wanted = (Verdict.NEW, Verdict.DOUBT) if force else (Verdict.NEW,)
                taken = [key for key, each in zip(keys, verdicts, strict=True) if each in wanted]
                if not (taken or done) or self._append(claimed=taken, done=done):
                    self._in_hand.difference_update(done)
                    self._in_hand.update(taken)
                    return verdicts

    def release(self, keys: Sequence[bytes]) -> None:
        with self._lock, no_state(self._table):
            if self._is_lost():
                self._read_on()
            while mine := self._in_hand.intersection(keys):
                if self._append(released=sorted(mine)):
                    self._in_hand -= mine

    def renew(self, keys: Sequence[bytes]) -> None:
        with self._lock, no_state(self._table):
            if self._is_lost():
                self._read_on()
            while self._in_hand.intersection(keys) and not self._append():
                pass

    def _verdict(self, key: bytes) -> Verdict:
        seen = self._seen.get(key)
        if seen is None:
            return Verdict.NEW
        if seen.is_done:
            return Verdict.DONE
        if seen.session == self._session:
            # A claim whose answer was lost is no claim; nobody got the event.
            return Verdict.MINE if key in self._in_hand else Verdict.NEW
        return Verdict.BUSY if self._leases.get(seen.session, 0) >= self._clock() else Verdict.DOUBT

    def _append(
        self, claimed: Sequence[bytes] = (), done: Sequence[bytes] = (), released: Sequence[bytes] = ()
    ) -> bool:
        """Write the next entry; False when another reader was first, whose entries are read then."""
        now = self._clock()
        item = {
            **key_of(self._partition, f"{self._next:0{_DIGITS}d}"),
            "session_id": text(self._session),
            "lease_until": number(now + self._lease()),
            EXPIRES: number(now + self._window_s),
        }
        for name, keys in (("claimed", claimed), ("done", done), ("released", released)):
            if keys:
                item[name] = {"B": b"".join(keys)}
        try:
            self._dynamodb.put_item(
                TableName=self._table, Item=item, ConditionExpression=f"attribute_not_exists({SORT})"
            )
        except ClientError as error:
            if code_of(error) != CONDITION_FAILED:
                raise
            self._read_on()
            return False
        self._fold(item)
        return True

    def _is_lost(self) -> bool:
        """Whether the last entry that is known may have expired, and another reader have begun anew."""
        return self._clock() - self._last_s > self._window_s / 2

    def _read_on(self) -> None:
        """Read what others wrote behind the last entry that is known, or all that there is."""
        began_s = self._clock()
        if self._is_lost():
            self._next = _FIRST
        pages = self._dynamodb.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression=f"{PARTITION} = :log AND {SORT} >= :next",
            ExpressionAttributeValues={
                ":log": text(self._partition),
                ":next": text(f"{self._next:0{_DIGITS}d}"),
            },
            ConsistentRead=True,
        )
        for page in pages:
            for item in page["Items"]:
                self._fold(item)
        if self._next == _FIRST:
            # Whoever finds nothing races for the first entry with all others who do.
            self._last_s = began_s

    def _fold(self, item: Item) -> None:
        session = item["session_id"]["S"]
        self._leases[session] = float(item["lease_until"]["N"])
        self._next = int(item[SORT]["S"]) + 1
        self._last_s = float(item[EXPIRES]["N"]) - self._window_s
        for key in _keys(item, "claimed"):
            self._seen[key] = _Seen(session, is_done=False)
            if session != self._session:
                self._in_hand.discard(key)  # it was in doubt, and its new reader answers for it
        for key in _keys(item, "done"):
            self._seen[key] = _Seen(session, is_done=True)
        for key in _keys(item, "released"):
            self._seen.pop(key, None)
        while len(self._seen) > MOST:
            self._seen.popitem(last=False)


def _keys(item: Item, name: str) -> Iterator[bytes]:
    keys = bytes(item.get(name, {"B": b""})["B"])
    for start in range(0, len(keys), _KEY_BYTES):
        yield keys[start : start + _KEY_BYTES]
