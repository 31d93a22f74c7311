"""The command `provision`: get a certificate for this device, or renew it in time."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from edge.errors import SettingProblem, SettingsError
from edge.provisioning import ProvisioningError
from edge.provisioning.conversation import MqttCloud
from edge.provisioning.renewal import Identity, Renewal, make_signing_request
from edge.settings import ProvisioningSettings, Settings
from edge.system import SYSTEM
from edge.systemd import start_logging
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.link import Backoff

_log = logging.getLogger(__package__)
_DAY_S = 86_400


def provision(settings: Settings) -> None:
    """Try until this device has a certificate that need not be renewed, or SIGTERM or SIGINT.

    Raises `SettingsError` when the settings cannot work.
    """
    provisioning, own = _provisioning(settings)
    start_logging(settings.log_level, dict(os.environ))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    identity = Identity(own.certificate)
    renewal = _renewal(settings, provisioning, own, identity)
    # Full jitter: a fleet that is refused at one moment must not come back at one moment.
    backoff = Backoff(provisioning.retry_min_s, provisioning.retry_max_s, SYSTEM.share)
    keep_trying(renewal, identity, backoff, lambda: SYSTEM.now().timestamp(), stop.wait)


def keep_trying(
    renewal: Renewal,
    identity: Identity,
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


def _provisioning(settings: Settings) -> tuple[ProvisioningSettings, TlsFiles]:
    """Return the settings of provisioning and the files of the device's identity. Raises `SettingsError`."""
    own = settings.cloud.identity
    if settings.provisioning is None or own is None:  # with the table there is an identity
        problem = SettingProblem(
            "provisioning", "the table is missing", "add it, see docs/reference/device.md"
        )
        raise SettingsError([problem])
    return settings.provisioning, own


def _renewal(
    settings: Settings, provisioning: ProvisioningSettings, own: TlsFiles, identity: Identity
) -> Renewal:
    claim = TlsFiles(own.ca, provisioning.claim_certificate, provisioning.claim_key)
    return Renewal(
        identity,
        MqttCloud(settings.cloud, settings.thing, claim, provisioning.answer_timeout_s),
        provisioning.template,
        settings.thing,
        provisioning.max_age_days * _DAY_S,
        make_signing_request if provisioning.keys == "device" else None,
    )
