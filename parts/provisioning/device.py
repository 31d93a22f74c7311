"""The command `provision`: get a certificate for this device, or renew it in time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from edge.errors import missing_table
from edge.settings import Settings
from edge.system import SYSTEM
from edge.systemd import start_logging, stop_event
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.reconnection import Backoff
from parts.provisioning import ProvisioningError
from parts.provisioning.conversation import MqttCloud
from parts.provisioning.renewal import Pairs, Renewal, make_signing_request

_log = logging.getLogger(__package__)
_DAY_S = 86_400


def provision(settings: Settings) -> None:
    """Try until this device has a certificate that need not be renewed, or SIGTERM or SIGINT.

    Raises `DeviceSettingsError` when the settings cannot work.
    """
    provisioning, own = settings.provisioning, settings.cloud.identity
    if provisioning is None or own is None:  # with the table there is an identity
        raise missing_table("provisioning")
    start_logging(settings.log_level, dict(os.environ))
    identity = Pairs(own.certificate)
    claim = TlsFiles(own.ca, provisioning.claim_certificate, provisioning.claim_key)
    renewal = Renewal(
        identity,
        MqttCloud(settings.cloud, settings.thing, claim, provisioning.answer_timeout_s),
        provisioning.template,
        settings.thing,
        provisioning.max_age_days * _DAY_S,
        make_signing_request if provisioning.keys == "device" else None,
    )
    # Full jitter: a fleet that is refused at one moment must not come back at one moment.
    backoff = Backoff(provisioning.retry_min_s, provisioning.retry_max_s, SYSTEM.share)
    keep_trying(renewal, identity, backoff, lambda: SYSTEM.now().timestamp(), stop_event().wait)


def keep_trying(
    renewal: Renewal,
    identity: Pairs,
    backoff: Backoff,
    now_s: Callable[[], float],
    wait: Callable[[float], bool | None],
) -> None:
    """Attempt until the certificate needs no renewal. `wait` returns after so many seconds, True to stop."""
    failures, delay_s = 0, 0.0
    while not wait(delay_s):
        try:
            with identity.locked():
                outcome = renewal.attempt(now_s())
        except ProvisioningError as error:
            failures += 1
            delay_s = backoff.delay_s(failures)
            _log.warning("%s; next attempt in %.0f s", error, delay_s)
        else:
            _log.info("%s", outcome)
            return
