"""The filter for many readers of one inbox: an item for each event in DynamoDB.

Two writes an event, one to claim it and one when it is done; nothing else unless a handler is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from eventplane.records import ATTEMPTS, NEW, ConflictError, RecordKind, Records
from eventplane_client.aws import no_state
from eventplane_client.dynamodb_table import KEY, DynamoDbState
from eventplane_client.ports import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
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


CLAIM: Final = RecordKind(type=Claim, key=KEY)
"""How the table keeps claims."""


class DynamoDbFilter(DynamoDbState):
    """Remembers events one by one, in an item each."""

    def _open(self) -> None:
        self._claims = Records(self._tables, self._table, CLAIM)
        self._in_hand: dict[bytes, Claim] = {}

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

    def _key(self, key: bytes) -> tuple[str, str]:
        # By two digits of the digest, so that no partition has to bear all of a busy inbox.
        return f"{self._participant}/{key[:1].hex()}", key.hex()

    def _claim(self, key: bytes, *, force: bool) -> tuple[Verdict, Claim | None]:
        """Return whose `key` is, and our claim if it has become ours now."""
        reader, event = self._key(key)
        wanted = Claim(
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

    def _verdict(self, key: bytes, claim: Claim) -> Verdict:
        now = self._clock()
        if claim.expires < now:
            return Verdict.NEW
        if claim.is_done:
            return Verdict.DONE
        if claim.session_id == self._session:
            # A claim that is not in hand is one whose answer was lost; nobody got the event.
            return Verdict.MINE if key in self._in_hand else Verdict.NEW
        return Verdict.BUSY if claim.lease_until >= now else Verdict.DOUBT

    def _stored(self, key: bytes) -> Claim | None:
        """Return our claim of `key` as it is stored, if it is not done."""
        found = self._claims.read(*self._key(key))
        return found if found and found.session_id == self._session and not found.is_done else None

    def _finish(self, key: bytes) -> None:
        def done(claim: Claim) -> Claim:
            return replace(claim, is_done=True, expires=self._expiry())

        mine = self._in_hand.get(key)
        if mine is None or not self._claims.write(done(mine)):
            reader, event = self._key(key)
            self._claims.change(lambda found: done(found or Claim(reader=reader, event=event)), reader, event)
