"""A connection stood with a certificate: it is the device's from now on, and what it replaced has an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from eventplane.fleet import Device, State, locked_out, retired, seen
from eventplane.fleet_registry import Store, change
from lambdas.certificate_keeper.certificates import Certificates
from lambdas.certificate_keeper.grace import Grace
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.queue import QueueMessage
from lambdas.common.redelivery import handle_each
from lambdas.common.rule_messages import read_rule_message

_RESERVE_MS: Final = 5 * WORST_CALL_MS
"""No message is begun with less time left: a timeout would bring back the whole batch."""


class KeeperService:
    """Handles connections, as the IoT rule tells them, and ends of grace; any order, any number of times."""

    def __init__(self, *, store: Store, certificates: Certificates, grace: Grace, clock: Clock) -> None:
        self._store = store
        self._certificates = certificates
        self._grace = grace
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage], *, remaining_ms: Callable[[], int]) -> frozenset[str]:
        """Handle `messages`; the ids of those that have to come again."""
        return handle_each(messages, self._do, lambda: remaining_ms() >= _RESERVE_MS)

    def _do(self, message: QueueMessage) -> bool:
        match read_rule_message(message.body):
            case {"thing": str(thing), "retire": list(certificates)}:
                self._retire(thing, frozenset(map(str, certificates)))
            case {"thing": str(thing), "certificate": str(certificate)} | {
                "clientId": str(thing),
                "principalIdentifier": str(certificate),
            }:
                self._connected(thing, certificate)
            case _:
                logger.error("no work of ours", message_id=message.id)
                return False
        return True

    def _connected(self, thing: str, certificate: str) -> None:
        device = self._store.read(thing)
        if device is None:
            return  # a claim, a renewal, or what somebody registered by hand
        if device.state is State.DECOMMISSIONED:
            # Its registration was under way when it was decommissioned.
            self._certificates.retire(thing, certificate)
            logger.warning("a decommissioned device was locked out", thing=thing, certificate=certificate)
            mark("DecommissionedDevice")
            return
        if device.state is State.QUARANTINED:
            self._lock_out(device, certificate)
            return
        if certificate == device.pending:
            # At once: from here on the claim has no power over this device.
            device = self._confirm(device, certificate)
            logger.info("certificate in use", thing=thing, certificate=certificate)
        if device.replaced:
            self._grace.begin(thing, device.replaced)

    def _lock_out(self, quarantined: Device, certificate: str) -> None:
        """Deactivate what a quarantined device connected with: its registration was in flight."""
        device = change(
            self._store, quarantined.thing, lambda found: locked_out(found or quarantined, certificate)
        )
        if device.state is State.QUARANTINED:
            self._certificates.suspend(certificate)
            logger.warning("a quarantined device was locked out", thing=device.thing, certificate=certificate)

    def _confirm(self, device: Device, certificate: str) -> Device:
        now_ms = self._clock()
        return change(self._store, device.thing, lambda found: seen(found or device, certificate, now_ms))

    def _retire(self, thing: str, certificates: frozenset[str]) -> None:
        device = self._store.read(thing)
        # Never what is in use or about to be: neither stands in `replaced`.
        done = device.replaced & certificates if device else frozenset()
        if device is None or not done:
            return
        for certificate in sorted(done):
            self._certificates.retire(thing, certificate)
            logger.info("certificate retired", thing=thing, certificate=certificate)
            mark("CertificateRetired")
        known = device
        change(self._store, thing, lambda found: retired(found or known, done))
