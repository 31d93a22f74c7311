"""Who still owes whom a PUBACK: packet ids in both directions; and who waits for a PINGRESP."""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_ID: Final = 65_535


class Sent:
    """Ids of what we sent and the broker has not answered yet."""

    def __init__(self) -> None:
        self.receive_maximum = MAX_ID
        self._last = 0
        self._in_use: set[int] = set()
        self._held_back: deque[bytes] = deque()

    def new_id(self) -> int:
        """An id that is not in use, or 0 when all are."""
        if len(self._in_use) == MAX_ID:
            return 0
        last = self._last
        while True:
            last = last % MAX_ID + 1
            if last not in self._in_use:
                break
        self._last = last
        self._in_use.add(last)
        return last

    def may_go(self, packet: bytes) -> bool:
        """Whether the PUBLISH with the newest id may be sent now; if not, it waits here.

        MQTT 5's receive maximum: a broker may hang up on who exceeds it.
        """
        if len(self._in_use) <= self.receive_maximum:
            return True
        self._held_back.append(packet)
        return False

    def release(self, mid: int) -> bool:
        """The answer came; False when nobody waits for it (a repetition, or nonsense)."""
        if mid not in self._in_use:
            return False
        self._in_use.remove(mid)
        return True

    def next_held_back(self) -> bytes | None:
        """What may go in the place of one that was released."""
        return self._held_back.popleft() if self._held_back else None


class Pings:
    """Who waits for which PINGRESP: they have no ids, but come in order."""

    def __init__(self) -> None:
        self._last = MAX_ID
        self._waiting: deque[int] = deque()

    def keepalive(self) -> None:
        """PINGREQ is sent, for nobody but the keepalive."""
        self._waiting.append(0)

    def new_id(self) -> int:
        """PINGREQ is sent for somebody; the number is no packet id."""
        self._last += 1
        self._waiting.append(self._last)
        return self._last

    def answered(self) -> int:
        """The number of the oldest that waits; 0 for the keepalive's, and for an answer to nothing."""
        return self._waiting.popleft() if self._waiting else 0


class Received:
    """Ids of what the broker sent and we have not acknowledged yet."""

    def __init__(self) -> None:
        self._owed: dict[int, int] = {}

    def is_news(self, mid: int, *, duplicate: bool) -> bool:
        """Whether to report the message: not when it is one that we already have in hand, sent again."""
        owed = self._owed.get(mid, 0)
        if owed and duplicate:
            return False
        # Mosquitto counts ids round and round, and can use one again that is still with us.
        self._owed[mid] = owed + 1
        return True

    def settle(self, mid: int) -> bool:
        """Whether PUBACK may be sent: once only, and not before all messages with this id are done with.

        A second PUBACK would acknowledge whatever gets the id next.
        """
        owed = self._owed.pop(mid, 0)
        if owed > 1:
            self._owed[mid] = owed - 1
        return owed == 1
