"""From a received message to what the spool keeps: checked, numbered, routed, or a dead letter. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from edge.recent import RecentKeys, key_digest
from edge.spool import Arrival
from edge.stamps import stamp
from eventplane.contract import Channel, Contract, Place
from eventplane.delivery import Refusal, dead_letter
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.router import Router

RECENT_EVENTS = 4096
"""Among how many stored events a repetition is recognised: more than brokers and services usually hold
unacknowledged. About half a megabyte."""

_ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a message: `arrival` to store (None: it is there already), `refused` reason or None."""

    arrival: Arrival | None
    refused: str | None = None


class Intake:
    """Decides for the device `thing`, under `contract`, in the spool's `epoch`.

    `now` tells the wall-clock time, only for the `time` of dead letters. `recent` are the keys of
    what was stored last, oldest first.
    """

    def __init__(
        self,
        contract: Contract,
        thing: str,
        epoch: str,
        now: Callable[[], datetime],
        recent: Iterable[bytes] = (),
    ) -> None:
        self._contract = contract
        self._router = Router(contract, Place.DEVICE)
        self._uplink = contract.device.outbox.address
        self._source = f"/devices/{thing}/router"
        self._epoch = epoch
        self._now = now
        self._recent = RecentKeys(RECENT_EVENTS, recent)

    def accept(self, payload: bytes, channel: Channel, sequence: int) -> Verdict:
        """The verdict on a message that came over `channel`; `sequence` is the number an event gets.

        The caller commits what it is told to store before it asks about another message, or all in one
        transaction: a repetition within it is recognised as well.
        """
        try:
            event = parse_event(payload)
            if key_digest(event.key) in self._recent:
                return Verdict(None)
            stamped = stamp(event, self._epoch, sequence)
        except EnvelopeError as error:
            return self.refuse(
                payload, channel.address, channel, Refusal(error.reason, error.detail), sequence
            )
        destinations = self._destinations(stamped)
        if not destinations:
            refusal = Refusal("unrouted", f"no route of the device takes type {event.type!r}")
            return self.refuse(payload, channel.address, channel, refusal, sequence)
        self._recent.add(key_digest(event.key))
        return Verdict(self._arrival(stamped, channel, sequence, destinations))

    def refuse(
        self, original: bytes, address: str, channel: Channel, refusal: Refusal, sequence: int
    ) -> Verdict:
        """The dead letter of `original`, which came over or was meant for `address`.

        `channel` gives its priority.
        """
        letter = dead_letter(
            # From the content, so that the same refusal after a crash is recognisably the same dead letter.
            id=hashlib.sha256(address.encode() + b"\n" + original).hexdigest()[:_ID_DIGITS],
            source=self._source,
            time=self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            refusal=refusal,
            channel=address,
            original=original,
            contract_version=self._contract.version,
        )
        if key_digest(letter.key) in self._recent:
            return Verdict(None, refusal.reason)
        self._recent.add(key_digest(letter.key))
        stamped = stamp(letter, self._epoch, sequence)
        # A contract that forgets dead letters does not make them vanish.
        destinations = self._destinations(stamped) or (self._uplink,)
        return Verdict(self._arrival(stamped, channel, sequence, destinations), refusal.reason)

    def _destinations(self, event: Envelope) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.destination for route in self._router.route(event)))

    def _arrival(
        self, event: Envelope, channel: Channel, sequence: int, destinations: tuple[str, ...]
    ) -> Arrival:
        rank = self._contract.priority(event, channel).rank
        return Arrival(sequence, rank, event.json, dict.fromkeys(destinations), key_digest(event.key))
