"""The filter for the readers of one inbox in the cloud: an item for each event in DynamoDB, which expires.

Two writes an event, one to claim it and one when it is done; nothing else unless a handler is slow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from eventplane.ordering import Stream
from eventplane.records import ATTEMPTS, NEW, ConflictError, RecordKind, Records
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.aws import no_state
from eventplane_client.ports import Lease, Verdict
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
class EventLease:
    """An event that the reader `session_id` has until `lease_until`, or that is done.

    `tries` is how often it was claimed without an end; `expires` is when it may be forgotten. Times are Unix
    seconds.
    """

    reader: str
    event: str
    session_id: str = ""
    lease_until: int = 0
    is_done: bool = False
    tries: int | None = None
    expires: int = 0
    revision: int = 0


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


CLAIM: Final = RecordKind(type=EventLease, key=KEY)
EPOCH: Final = RecordKind(type=Epoch, key=KEY)
POSITION: Final = RecordKind(type=Position, key=KEY)
"""How the table keeps them."""


class DynamoDbFilter:
    """Remember events in an item each, and how far each stream has come.

    They are kept for `window_s` seconds after readers of `participant` had them, in `table`. An event whose
    reader has neither settled it nor renewed its claim within the `lease` is in doubt; `clock` returns Unix
    seconds. Failures raise `StateError`.
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
        tables = DynamoDbTables(dynamodb, system.random_bytes)
        self._table = table
        self._epochs = Records(tables, table, EPOCH)
        self._positions = Records(tables, table, POSITION)
        self._participant = participant
        self._lease = lease
        self._window_s = window_s
        self._clock = clock or system.now_s
        self._random_bytes = system.random_bytes
        self._lock = system.lock()  # claims are renewed in a thread of its own
        self._claims = Records(tables, table, CLAIM)
        self._in_hand: dict[bytes, EventLease] = {}

    @cached_property
    def _session(self) -> str:
        # With its first use: clones of a function's snapshot would share what is drawn before it.
        return self._random_bytes(8).hex()

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        with self._lock, no_state(self._table):
            for key in done:
                self._finish(key)
                self._in_hand.pop(key, None)
            found = [self._claim(key, force=force) for key in keys]
            self._in_hand.update({key: mine for key, (_, mine) in zip(keys, found, strict=True) if mine})
        return [verdict for verdict, _ in found]

    def release(self, keys: Sequence[bytes]) -> None:
        with self._lock, no_state(self._table):
            for key in keys:
                mine = self._in_hand.get(key) or self._stored(key)
                # Where the answer of a renewal was lost, the claim has another revision.
                if mine and not self._claims.remove(mine) and (mine := self._stored(key)):
                    self._claims.remove(mine)
                self._in_hand.pop(key, None)

    def renew(self, keys: Sequence[bytes]) -> None:
        with self._lock, no_state(self._table):
            for key in keys:
                if mine := self._in_hand.get(key):
                    renewed = self._claims.write(replace(mine, lease_until=self._lease_end()))
                    # Another reader may have taken it over, or the last renewal's answer was lost.
                    self._in_hand[key] = renewed or self._stored(key) or mine

    def tries(self, key: bytes) -> int:
        with self._lock, no_state(self._table):
            found = self._claims.read(*self._key(key))
        is_open = found and not found.is_done and found.expires >= self._clock()
        return (found.tries or 0) if found and is_open else 0

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

    def _key(self, key: bytes) -> tuple[str, str]:
        # By two digits of the digest, so that no partition has to bear all of a busy inbox.
        return f"{self._participant}/{key[:1].hex()}", key.hex()

    def _claim(self, key: bytes, *, force: bool) -> tuple[Verdict, EventLease | None]:
        """Return whose `key` is, and our claim if it has become ours now."""
        reader, event = self._key(key)
        wanted = EventLease(
            reader=reader,
            event=event,
            session_id=self._session,
            lease_until=self._lease_end(),
            tries=1,
            expires=self._expiry(),
        )
        taken = Verdict.DOUBT if force else Verdict.NEW
        for _ in range(ATTEMPTS):
            # Most are not claimed: only the others have to be read.
            if stored := self._claims.write(wanted):
                return taken, stored
            found = self._claims.read(reader, event)
            verdict = self._verdict(key, found) if found else Verdict.NEW
            is_ours = found and found.session_id == self._session and found.expires >= self._clock()
            if found and is_ours and verdict is Verdict.NEW and not force:
                return verdict, found
            if verdict is not Verdict.NEW and not (force and verdict in (Verdict.DOUBT, Verdict.MINE)):
                return verdict, None
            before = (found.tries or 0) if found and verdict is not Verdict.NEW else 0
            wanted = replace(wanted, revision=found.revision if found else NEW, tries=1 + before)
        raise ConflictError(self._table, (reader, event))

    def _verdict(self, key: bytes, claim: EventLease) -> Verdict:
        now = self._clock()
        if claim.expires < now:
            return Verdict.NEW
        if claim.is_done:
            return Verdict.DONE
        if claim.session_id == self._session:
            # A claim that is not in hand is one whose answer was lost; nobody got the event.
            return Verdict.MINE if key in self._in_hand else Verdict.NEW
        return Verdict.BUSY if claim.lease_until >= now else Verdict.DOUBT

    def _stored(self, key: bytes) -> EventLease | None:
        """Return our claim of `key` as it is stored, if it is not done."""
        found = self._claims.read(*self._key(key))
        return found if found and found.session_id == self._session and not found.is_done else None

    def _finish(self, key: bytes) -> None:
        def done(claim: EventLease) -> EventLease:
            return replace(claim, is_done=True, expires=self._expiry())

        mine = self._in_hand.get(key)
        if mine is None or not self._claims.write(done(mine)):
            reader, event = self._key(key)
            self._claims.change(
                lambda found: done(found or EventLease(reader=reader, event=event)), reader, event
            )

    def _lease_end(self) -> int:
        return int(self._clock() + self._lease())

    def _expiry(self) -> int:
        return int(self._clock() + self._window_s)

    def _hashed_key(self, kind: str, name: str) -> tuple[str, str]:
        return f"{self._participant}/{kind}", hashlib.sha256(name.encode()).hexdigest()
