"""Decides on one registration by the fleet's registry, and records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eventplane.fleet import Application, Device, Refusal, RefusedError, is_device_name, registered
from eventplane.fleet_registry import Store, change
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import mark

_LONGEST: Final = 256
"""Characters of anything that a device may say here: it is logged."""


class HookService:
    """Answers for the devices in `store`."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def decide(self, event: Mapping[str, Any]) -> bool:
        """Whether the registration that `event` tells of may go on.

        The record is written before the answer: a registration that nobody wrote down does not happen. What
        the registry's table refuses is raised, and AWS IoT takes that for a refusal; the device asks again.
        """
        application = _application(event)
        try:
            device = self._register(application)
        except RefusedError as error:
            logger.warning(
                "registration refused", reason=error.refusal, detail=str(error), extra=_facts(application)
            )
            mark("RegistrationRefused", reason=error.refusal)
            return False
        logger.info("registration allowed", registrations=device.registrations, extra=_facts(application))
        mark("RegistrationAllowed")
        return True

    def _register(self, application: Application) -> Device:
        """Raises `RefusedError`, `ConflictError`."""
        if not is_device_name(application.thing):
            raise RefusedError(application.thing, Refusal.UNKNOWN)
        now_ms = self._clock()
        return change(self._store, application.thing, lambda found: registered(found, application, now_ms))


def _application(event: Mapping[str, Any]) -> Application:
    """Absent or strange members become empty texts, which are nobody's."""
    parameters = event.get("parameters")
    serial = parameters.get("SerialNumber") if isinstance(parameters, Mapping) else None
    return Application(
        thing=_text(serial),
        client_id=_text(event.get("clientId")),
        asking=_text(event.get("claimCertificateId")),
        offered=_text(event.get("certificateId")),
    )


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _facts(application: Application) -> dict[str, str]:
    return {
        "thing": application.thing,
        "client_id": application.client_id,
        "asking_certificate": application.asking,
        "offered_certificate": application.offered,
    }
