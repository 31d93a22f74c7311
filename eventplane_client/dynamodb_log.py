"""The cheap filter: one write for each batch. Its readers append to one log in DynamoDB, and all know it.

An entry says what was claimed, done and given back. It is written only behind the last entry that its writer
has read, so two readers never claim the same event: whoever comes second reads on, and decides again.

Entries expire. Who knows of none that is sure to be there still reads the log from its beginning, and an
empty one begins with the same number for all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.records import RecordKind, Records
from eventplane_client.aws import no_state
from eventplane_client.dynamodb_table import KEY, DynamoDbState
from eventplane_client.ports import Verdict

MOST: Final = 1_000_000
"""Events that are kept in memory, about 200 bytes each; the oldest are forgotten first."""

_FIRST: Final = 1
_DIGITS: Final = 16
_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the reader `session_id` claimed, finished and gave back, and how long its claims hold.

    Keys of events stand one behind the other. Times are Unix seconds.
    """

    reader: str
    event: str
    session_id: str
    lease_until: int
    expires: int
    claimed: bytes = b""
    done: bytes = b""
    released: bytes = b""
    revision: int = 0


ENTRY: Final = RecordKind(type=Entry, key=KEY)
"""How the table keeps the log: by the number of the entry."""


@dataclass(slots=True)
class _Seen:
    session: str
    is_done: bool
    tries: int = 0


class DynamoDbLogFilter(DynamoDbState):
    """Remembers events in a log, and in memory: each reader knows all, and reads the log when it starts.

    For one reader or a few.
    """

    def _open(self) -> None:
        self._partition = f"{self._participant}/log"
        self._log = Records(self._tables, self._table, ENTRY)
        self._in_hand: set[bytes] = set()
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._leases: dict[str, float] = {}
        self._next = _FIRST
        self._last_s = 0.0  # when the last entry that is known was written
        with no_state(self._table):
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

    def tries(self, key: bytes) -> int:
        seen = self._seen.get(key)
        return seen.tries if seen else 0

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
        entry = Entry(
            reader=self._partition,
            event=_number(self._next),
            session_id=self._session,
            lease_until=self._lease_end(),
            expires=self._expiry(),
            claimed=b"".join(claimed),
            done=b"".join(done),
            released=b"".join(released),
        )
        if not self._log.write(entry):
            self._read_on()
            return False
        self._fold(entry)
        return True

    def _is_lost(self) -> bool:
        """Whether the last entry that is known may have expired, and another reader have begun anew."""
        return self._clock() - self._last_s > self._window_s / 2

    def _read_on(self) -> None:
        """Read what others wrote behind the last entry that is known, or all that there is."""
        began_s = self._clock()
        if self._is_lost():
            self._next = _FIRST
        for entry in self._log.of(self._partition, _number(self._next)):
            self._fold(entry)
        if self._next == _FIRST:
            # Whoever finds nothing races for the first entry with all others who do.
            self._last_s = began_s

    def _fold(self, entry: Entry) -> None:
        session = entry.session_id
        self._leases[session] = entry.lease_until
        self._next = int(entry.event) + 1
        self._last_s = entry.expires - self._window_s
        for key in _keys(entry.claimed):
            self._seen[key] = _Seen(session, is_done=False, tries=self.tries(key) + 1)
            if session != self._session:
                self._in_hand.discard(key)  # it was in doubt, and its new reader answers for it
        for key in _keys(entry.done):
            self._seen[key] = _Seen(session, is_done=True)
        for key in _keys(entry.released):
            self._seen.pop(key, None)
        while len(self._seen) > MOST:
            self._seen.popitem(last=False)


def _number(number: int) -> str:
    return f"{number:0{_DIGITS}d}"


def _keys(keys: bytes) -> Iterator[bytes]:
    for start in range(0, len(keys), _KEY_BYTES):
        yield keys[start : start + _KEY_BYTES]
