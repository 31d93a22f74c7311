"""The function that confirms the certificate a device connects with, and retires those it replaced."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from eventplane.device_record import REGISTRY, Device, LifecycleState
from eventplane.function_settings import QueueSettings
from eventplane.records import Records
from lambdas.common.aws import WORST_CALL_MS, client, tables
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.queue import Invocation, QueueMessage, read_rule_message
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from parts.fleet.lifecycle import (
    HANDOVER_MS,
    MOST_TAKEOVERS,
    ending,
    has_two_holders,
    locked_out,
    retired,
    seen,
    taken_over,
)
from parts.fleet.messages import EndLater, Report, Suspicion, ender, reporter
from parts.fleet.settings import CertificateSettings


class Certificates:
    """Through a boto3 IoT client. `arn_prefix` is what certificates' ARNs start with (`arn:...:cert/`)."""

    def __init__(self, client: Any, arn_prefix: str) -> None:
        self._client = client
        self._arn_prefix = arn_prefix

    def suspend(self, certificate: str) -> None:
        """Deactivate `certificate`, which can be activated again, unless it is revoked.

        Repeating it changes nothing, and one that is gone is skipped. Raises botocore's errors.
        """
        self._set(certificate, "INACTIVE")

    def retire(self, thing: str, certificate: str, *, is_condemned: bool = False) -> None:
        """Deactivate `certificate`, which ends its connections within minutes, and detach it from `thing`.

        A condemned one is revoked: nothing of ours activates it again, whatever the registry says later.
        Repeating it changes nothing; one that is gone is retired. Raises botocore's errors.
        """
        # First: only this locks out whoever has the key.
        self._set(certificate, "REVOKED" if is_condemned else "INACTIVE")
        with suppress(self._client.exceptions.ResourceNotFoundException):
            self._client.detach_thing_principal(thingName=thing, principal=self._arn_prefix + certificate)

    def _set(self, certificate: str, status: str) -> None:
        with suppress(self._client.exceptions.ResourceNotFoundException):
            found = self._client.describe_certificate(certificateId=certificate)["certificateDescription"]
            if found["status"] != "REVOKED":
                self._client.update_certificate(certificateId=certificate, newStatus=status)


_RESERVE_MS: Final = 5 * WORST_CALL_MS
"""No message is begun with less time left: a timeout would bring back the whole batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRotation:
    """Handles connections and takeovers, as the IoT rule reports them, and ends of grace periods; idempotent,
    in any order.

    `end_later` ends certificates after the grace period, `end_again` those that were ended at once, once
    more after `HANDOVER_MS`.
    """

    store: Records[Device]
    certificates: Certificates
    end_later: EndLater
    end_again: EndLater
    report: Report

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Handle `messages`; return the ids of those that have to come again."""
        return handle_each(messages, self._do, lambda: invocation.remaining_ms() >= _RESERVE_MS)

    def _do(self, message: QueueMessage) -> bool:
        match read_rule_message(message.body):
            case {"thing": str(thing), "retire": list(certificates)}:
                self._retire(thing, frozenset(map(str, certificates)))
            case {"thing": str(thing), "cause": str(), **more} | {
                "clientId": str(thing),
                "disconnectReason": str(),
                **more,
            }:
                certificate = more.get("certificate") or more.get("principalIdentifier")
                self._taken_over(thing, certificate, message.sent_at_ms)
            case {"thing": str(thing), "certificate": str(certificate)} | {
                "clientId": str(thing),
                "principalIdentifier": str(certificate),
            }:
                self._connected(thing, certificate, message.sent_at_ms)
            case _:
                logger.error("malformed message", message_id=message.id)
                return False
        return True

    def _connected(self, thing: str, certificate: str, at_ms: int) -> None:
        known = self.store.read(thing)
        if known is None or not known.holds(certificate):
            return  # a claim, a renewal, or what somebody else registered
        device = known
        if device.state is LifecycleState.DECOMMISSIONED:
            # Its registration was in flight when it was decommissioned.
            self.certificates.retire(thing, certificate)
            self.report(thing, Suspicion.DECOMMISSIONED_DEVICE, certificate)
            return
        if certificate in device.condemned:
            # Its registration was in flight when it was condemned.
            self.certificates.retire(thing, certificate, is_condemned=True)
            self.report(thing, Suspicion.CONDEMNED_CERTIFICATE, certificate)
            return
        if device.state is LifecycleState.QUARANTINED:
            self._lock_out(device, certificate)
            return
        if has_two_holders(device, certificate, at_ms):
            self.report(thing, Suspicion.TWO_HOLDERS, certificate)
        if certificate in device.pending:
            # At once: from here on the claim has no power over this device.
            device = self.store.change(lambda found: seen(found or known, certificate, at_ms), thing)
            logger.info("certificate in use", thing=thing, certificate=certificate)
        if ended := device.replaced & device.condemned:
            # And once more: a registration in flight activates its certificate later.
            self._revoke_condemned(device, ended)
            self.end_again(thing, ended)
        if left := device.replaced - device.condemned:
            self.end_later(thing, left)

    def _taken_over(self, thing: str, certificate: object, at_ms: int) -> None:
        known = self.store.read(thing)
        if known is None or known.state is LifecycleState.DECOMMISSIONED:
            return
        if certificate is not None and not known.holds(certificate):  # messages of 0.3.0 name none
            return
        device = self.store.change(lambda found: taken_over(found or known, at_ms), thing)
        if device != known and device.takeovers == MOST_TAKEOVERS:
            self.report(thing, Suspicion.TWO_HOLDERS, device.certificate or "")

    def _lock_out(self, quarantined: Device, certificate: str) -> None:
        """Deactivate what a quarantined device connected with: its registration was in flight."""
        device = self.store.change(
            lambda found: locked_out(found or quarantined, certificate), quarantined.thing
        )
        if device.state is LifecycleState.QUARANTINED:
            self.certificates.suspend(certificate)
            self._revoke_condemned(self.store.read(device.thing) or device, {certificate})
            logger.warning("a quarantined device was locked out", thing=device.thing, certificate=certificate)

    def _retire(self, thing: str, certificates: frozenset[str]) -> None:
        known = self.store.read(thing)
        # A certificate in use is never in `replaced`.
        if known is None or not known.replaced & certificates:
            return
        # First: a candidate could come into use while it is deactivated.
        device = self.store.change(lambda found: ending(found or known, certificates), thing)
        done = device.replaced & certificates
        for certificate in sorted(done):
            self.certificates.retire(thing, certificate, is_condemned=certificate in device.condemned)
            logger.info("certificate retired", thing=thing, certificate=certificate)
            mark("CertificateRetired")
        device = self.store.change(lambda found: retired(found or known, done), thing)
        self._revoke_condemned(device, done)

    def _revoke_condemned(self, device: Device, certificates: Set[str]) -> None:
        """Revoke those of `certificates` that an operator condemned while they were deactivated."""
        for certificate in sorted(certificates & device.condemned):
            self.certificates.retire(device.thing, certificate, is_condemned=True)


def service() -> QueueReader:
    """Return the reader of the queue of connections. Raises `SettingsError`."""
    settings = CertificateSettings.read(os.environ)
    end_in = partial(ender, client("sqs"), QueueSettings.read(os.environ).source_queue)
    rotation = CertificateRotation(
        store=Records(tables(), settings.fleet_table, REGISTRY),
        certificates=Certificates(client("iot"), settings.certificate_arns),
        end_later=end_in(settings.certificate_grace_s),
        end_again=end_in(HANDOVER_MS // 1_000),
        report=reporter(settings.outbox_queue),
    )
    return QueueReader(rotation.process)


handle = queue_function(service)
