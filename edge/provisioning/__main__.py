"""`python -m edge.provisioning --settings FILE`: get this device a certificate, or a new one if it is due.

It tries until it succeeds. Exit status: 0 done, or stopped by SIGTERM or SIGINT; 2 wrong command line;
78 wrong settings (EX_CONFIG).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from edge.command_line import end, read_command_line
from edge.errors import SettingProblem, SettingsError
from edge.link import Backoff
from edge.mqtt import TlsFiles
from edge.provisioning import ProvisioningError
from edge.provisioning.conversation import MqttCloud
from edge.provisioning.renewal import Identity, Renewal, make_signing_request
from edge.settings import ProvisioningSettings, Settings, load_settings
from edge.systemd import start_logging

USAGE = """usage: python -m edge.provisioning --settings FILE

  --settings FILE  the forwarder's, TOML, see docs/device.md
"""

_log = logging.getLogger("edge.provisioning")
_DAY_S = 86_400


def main() -> int:
    """Provision, unless there is no need to, and return the exit status."""
    file, _ = read_command_line(USAGE)
    environment = dict(os.environ)
    try:
        settings = load_settings(file, environment)
        provisioning, own = _provisioning(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return os.EX_CONFIG
    start_logging(settings.log_level, environment)
    _provision(settings, provisioning, own)
    return os.EX_OK


def _provision(settings: Settings, provisioning: ProvisioningSettings, own: TlsFiles) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    identity = Identity(own.certificate)
    renewal = _renewal(settings, provisioning, own, identity)
    # Full jitter: a fleet that is refused at one moment must not come back at one moment.
    backoff = Backoff(provisioning.retry_min_s, provisioning.retry_max_s)
    failures = 0
    while not stop.is_set():
        try:
            with identity.locked():
                _log.info("%s", renewal.attempt(time.time()))
        except ProvisioningError as error:
            failures += 1
            delay_s = backoff.delay_s(failures)
            _log.warning("%s; next attempt in %.0f s", error, delay_s)
            stop.wait(delay_s)
        else:
            break


def _provisioning(settings: Settings) -> tuple[ProvisioningSettings, TlsFiles]:
    """Return the settings of provisioning and the files of the device's identity. Raises `SettingsError`."""
    own = settings.cloud.identity
    if settings.provisioning is None or own is None:  # with the table there is an identity
        problem = SettingProblem("provisioning", "the table is missing", "add it, see docs/device.md")
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


if __name__ == "__main__":
    end(main())
