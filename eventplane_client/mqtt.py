"""The transport of a service on a device: the home's broker, and the forwarder's receipts behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from eventplane.conversation.open_requests import Circuit, Replies
from eventplane.envelope import Envelope
from eventplane.interest.announcement import Announcement
from eventplane_client.device.service_client import Confirm, ServiceClient, has_expired
from eventplane_client.errors import ClientSettingsError, ClosedError
from eventplane_client.ports import Message

DEFAULT_PORT = 1883


@dataclass(eq=False, slots=True)
class _Held:
    """One message of the inbox that is not confirmed; each time it came gave one of `confirms`."""

    payload: bytes
    confirms: list[Confirm] = field(default_factory=list)
    attempt: int = 0
    is_in_hand: bool = False
    visible_at: float = 0.0


class MqttInterest:
    """What the service announces to the forwarder, which learns it again over each connection."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    def announce(self, announcement: Announcement) -> None:
        self._service.announce(map(json.loads, announcement.filters))

    def withdraw(self) -> None:
        self._service.withdraw()

    def close(self) -> None:
        pass  # the session stays, and with it what it handles: nothing else shall wait for the service


class MqttTransport:
    """Takes part as the service `participant` over the broker at `host` and `port`.

    Nothing is confirmed before it is acknowledged here, so what is in hand at a crash comes again: from the
    broker, and from the forwarder where the inbox has `receipts`. What is released waits in this process.
    `options` go to `eventplane_client.device.ServiceClient`.
    """

    visibility_s = None
    has_expired = staticmethod(has_expired)

    def __init__(self, participant: str, host: str, port: int, *, max_receives: int, **options: Any) -> None:
        self.max_receives = max_receives
        self._participant = participant
        self._changed = threading.Condition()
        self._held: dict[bytes, _Held] = {}
        self._closed = False
        try:
            self._service = ServiceClient(participant, host, port, on_delivery=self._deliver, **options)
        except ClientSettingsError as error:
            raise ClientSettingsError("transport", error.problem, "or name the broker's address") from error
        self.interest = MqttInterest(self._service)

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        if durable:
            self._service.put(event, timeout_s)
        else:
            self._service.send(event, timeout_s)

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        return self._service.request(event, timeout_s, durable=durable, expires=expires)

    def peers(self) -> dict[str, Circuit]:
        return self._service.peers()

    @property
    def ignored_replies(self) -> int:
        return self._service.ignored_replies

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        give_up = monotonic() + timeout_s
        with self._changed:
            while not self._closed:
                now = monotonic()
                waiting = [each for each in self._held.values() if not each.is_in_hand]
                ready = [each for each in waiting if each.visible_at <= now][:most]
                if ready or now >= give_up:
                    return [self._hand_over(each) for each in ready]
                self._changed.wait(min([give_up, *(each.visible_at for each in waiting)]) - now)
        raise ClosedError(self._participant)

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        with self._changed:
            for message in messages:
                if held := self._held.pop(message.body, None):
                    for confirm in held.confirms:
                        confirm(refused)
        return []

    def release(self, message: Message, wait_s: float) -> None:
        with self._changed:
            if held := self._held.get(message.body):
                held.is_in_hand = False
                held.visible_at = monotonic() + wait_s
                self._changed.notify_all()

    def extend(self, messages: Sequence[Message]) -> None:
        pass  # what is not confirmed may come again, and is known then

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._service.close()

    def _deliver(self, payload: bytes, confirm: Confirm) -> None:
        """Called by the service client's thread with each message of the inbox."""
        with self._changed:
            held = self._held.setdefault(payload, _Held(payload))
            held.confirms.append(confirm)
            self._changed.notify_all()

    def _hand_over(self, held: _Held) -> Message:
        held.is_in_hand = True
        held.attempt += 1
        return Message(held.payload, held.attempt, None)
