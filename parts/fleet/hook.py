"""The hook that AWS IoT calls before it registers a device.

Source of its input and output: AWS IoT developer guide, "Pre-provisioning hooks", payload 2020-04-01.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from eventplane.device_record import REGISTRY, Device
from eventplane.records import Records
from eventplane.topics import is_device_name
from lambdas.common.aws import client, tables
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.system import Clock, system_clock
from parts.fleet.lifecycle import (
    HANDOVER_MS,
    DeniedError,
    RegistrationRefusal,
    RegistrationRequest,
    is_early,
    registered,
)
from parts.fleet.messages import EndLater, Report, Suspicion, ender, reporter
from parts.fleet.settings import HookSettings

_DAY_MS: Final = 86_400_000

_LONGEST: Final = 256
"""Characters of anything that a device may say here: it is logged."""


class ProvisioningHook:
    """Allows or refuses registrations of the devices in `store`, and records them.

    A renewal in the first half of `due_ms`, the milliseconds that a certificate is used for, is reported.
    `end_later` ends what the claim registered beyond what may wait.
    """

    def __init__(
        self, *, store: Records[Device], clock: Clock, report: Report, due_ms: int, end_later: EndLater
    ) -> None:
        self._store = store
        self._clock = clock
        self._report = report
        self._due_ms = due_ms
        self._end_later = end_later

    def decide(self, event: Mapping[str, Any]) -> bool:
        """Return whether the registration in `event` may go on.

        It is recorded before it is allowed. Errors of the registry's table and of SQS are raised: AWS IoT
        takes them for a refusal, and the device asks again.
        """
        application, now_ms = _application(event), self._clock()
        try:
            device = self._register(application, now_ms)
        except DeniedError as error:
            logger.warning(
                "registration refused", reason=error.refusal, detail=str(error), extra=_facts(application)
            )
            mark("RegistrationRefused", reason=error.refusal)
            if error.refusal is RegistrationRefusal.CONDEMNED:
                self._report(application.thing, Suspicion.CONDEMNED_CERTIFICATE, application.asking)
            return False
        if device.surplus:
            # All of it: an earlier request may have been lost.
            self._end_later(device.thing, device.surplus)
        logger.info("registration allowed", registrations=device.registrations, extra=_facts(application))
        mark("RegistrationAllowed")
        if is_early(device, application, now_ms, self._due_ms):
            self._report(device.thing, Suspicion.EARLY_RENEWAL, application.asking)
        return True

    def _register(self, application: RegistrationRequest, now_ms: int) -> Device:
        """Raises `DeniedError`, `ConflictError`."""
        if not is_device_name(application.thing):
            raise DeniedError(application.thing, RegistrationRefusal.UNKNOWN)
        return self._store.change(lambda found: registered(found, application, now_ms), application.thing)


def _application(event: Mapping[str, Any]) -> RegistrationRequest:
    """Absent or strange members become empty texts, which are nobody's."""
    parameters = event.get("parameters")
    serial = parameters.get("SerialNumber") if isinstance(parameters, Mapping) else None
    return RegistrationRequest(
        thing=_text(serial),
        client_id=_text(event.get("clientId")),
        asking=_text(event.get("claimCertificateId")),
        offered=_text(event.get("certificateId")),
    )


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _facts(application: RegistrationRequest) -> dict[str, str]:
    return {
        "thing": application.thing,
        "client_id": application.client_id,
        "asking_certificate": application.asking,
        "offered_certificate": application.offered,
    }


@at_init
def service() -> ProvisioningHook:
    """Return the hook that the environment describes. Raises `SettingsError`."""
    settings = HookSettings.read(os.environ)
    queue = settings.connections_queue
    return ProvisioningHook(
        store=Records(tables(), settings.fleet_table, REGISTRY),
        clock=system_clock,
        report=reporter(settings.outbox_queue),
        due_ms=settings.certificate_max_age_days * _DAY_MS,
        end_later=ender(client("sqs"), queue, HANDOVER_MS // 1_000) if queue else lambda *_: None,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, bool]:  # noqa: ARG001 - Lambda passes it
    """Return whether one registration may go on."""
    return {"allowProvisioning": service().decide(event)}
