"""The table of the filters in DynamoDB. Items expire with their window."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from eventplane.ordering import Stream
from eventplane.records import RecordKind, Records
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.aws import no_state
from eventplane_client.ports import Lease
from eventplane_client.system import SYSTEM, System

PARTITION: Final = "reader"
"""Starts with the participant's name and `/`, so that a role can be kept to its own items."""

SORT: Final = "event"

EXPIRES: Final = "expires"
"""When an item may go, Unix seconds: the table's time to live."""

WINDOW_S: Final = 1_209_600
"""How long an event is remembered by default, seconds: the longest that a queue keeps one."""

TABLE: Final = "filter"
"""What the environment's table is called, before `resource_name`."""

KEY: Final = (PARTITION, SORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The last `epoch` of a source."""

    reader: str
    event: str
    epoch: str
    expires: int
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The first number of a stream that is not done."""

    reader: str
    event: str
    reached: int
    expires: int | None = None
    revision: int = 0


EPOCH: Final = RecordKind(type=Epoch, key=KEY)
POSITION: Final = RecordKind(type=Position, key=KEY)
"""How the table keeps them."""


class DynamoDbState:
    """What both filters in DynamoDB share: their settings, and how far each stream has come.

    They remember for `window_s` seconds what readers of `participant` had, in `table`. An event whose reader
    has neither settled it nor renewed its claim within the `lease` is in doubt; `clock` returns Unix seconds.
    Failures raise `StateError`.
    """

    is_lasting = True

    def __init__(
        self,
        dynamodb: Any,
        table: str,
        participant: str,
        *,
        lease: Lease,
        window_s: float = WINDOW_S,
        clock: Callable[[], float] | None = None,
        system: System = SYSTEM,
    ) -> None:
        self._tables = DynamoDbTables(dynamodb, system.random_bytes)
        self._table = table
        self._epochs = Records(self._tables, table, EPOCH)
        self._positions = Records(self._tables, table, POSITION)
        self._participant = participant
        self._lease = lease
        self._window_s = window_s
        self._clock = clock or system.now_s
        self._random_bytes = system.random_bytes
        self._lock = system.lock()  # claims are renewed in a thread of its own
        self._open()

    def _open(self) -> None:
        """Prepare what the filter keeps besides."""

    @cached_property
    def _session(self) -> str:
        # With its first use: clones of a function's snapshot would share what is drawn before it.
        return self._random_bytes(8).hex()

    def epoch(self, source: str, epoch: str) -> str | None:
        """Store the `epoch` of `source`; return the one before if that was another."""
        reader, event = self._hashed_key("epochs", source)
        with no_state(self._table):
            before = self._epochs.read(reader, event)
            if before and before.epoch == epoch:
                return None
            self._epochs.force(Epoch(reader=reader, event=event, epoch=epoch, expires=self._expiry()))
        return before.epoch if before else None

    def position(self, stream: Stream) -> int | None:
        """Return the first number of `stream` that is not done, None where none was stored."""
        with no_state(self._table):
            found = self._positions.read(*self._hashed_key("positions", stream.text))
        return found.reached if found else None

    def advance(self, stream: Stream, position: int) -> None:
        """Store the `position` of `stream` unless a later one is stored.

        Those of a device do not expire: it counts as long as its store lives, and may send one alarm a year.
        """
        reader, event = self._hashed_key("positions", stream.text)
        expires = None if stream.is_of_device else self._expiry()

        def later(found: Position | None) -> Position:
            if found is None:
                return Position(reader=reader, event=event, reached=position, expires=expires)
            return replace(found, reached=position, expires=expires) if found.reached < position else found

        with no_state(self._table):
            self._positions.change(later, reader, event)

    def close(self) -> None:
        """Do nothing: the client is the caller's."""

    def _lease_end(self) -> int:
        return int(self._clock() + self._lease())

    def _expiry(self) -> int:
        return int(self._clock() + self._window_s)

    def _hashed_key(self, kind: str, name: str) -> tuple[str, str]:
        return f"{self._participant}/{kind}", hashlib.sha256(name.encode()).hexdigest()
