"""`python -m edge.provisioning --settings FILE`: sees to it that this device has a certificate.

It tries until it has succeeded. Exit status: 0 done, or stopped by SIGTERM or SIGINT; 2 wrong command line;
78 wrong settings (EX_CONFIG).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from edge.errors import SettingsError
from edge.link import Backoff
from edge.mqtt import TlsFiles
from edge.provisioning.conversation import Cloud
from edge.provisioning.errors import ProvisioningError
from edge.provisioning.identity import Identity
from edge.provisioning.renewal import Renewal
from edge.provisioning.signing_request import make_signing_request
from edge.settings import ProvisioningSettings, Settings, load_settings

_log = logging.getLogger("edge.provisioning")
_DAY_S = 86_400


def main() -> int:
    """Provision, or see that there is no need to."""
    parser = argparse.ArgumentParser(
        prog="python -m edge.provisioning",
        description="A certificate for this device, and a new one in time.",
    )
    parser.add_argument("--settings", type=Path, required=True, help="the forwarder's TOML file")
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.settings, dict(os.environ))
        provisioning = _provisioning(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return os.EX_CONFIG
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    identity = Identity(settings.cloud.certificate)
    renewal = _renewal(settings, provisioning, identity)
    # Full jitter: a fleet that was refused at once must not come back at once.
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
    return os.EX_OK


def _provisioning(settings: Settings) -> ProvisioningSettings:
    if settings.provisioning is None:
        raise SettingsError("provisioning", "the table is missing", "add it, see docs/device.md")
    if settings.cloud.certificate != settings.cloud.key:
        raise SettingsError(
            "cloud.key",
            "it is another file than cloud.certificate",
            "name one file for both: only then are they replaced in one step",
        )
    return settings.provisioning


def _renewal(settings: Settings, provisioning: ProvisioningSettings, identity: Identity) -> Renewal:
    claim = TlsFiles(settings.cloud.ca, provisioning.claim_certificate, provisioning.claim_key)
    return Renewal(
        identity,
        Cloud(settings.cloud, settings.thing, claim, provisioning.answer_timeout_s),
        provisioning.template,
        settings.thing,
        provisioning.max_age_days * _DAY_S,
        make_signing_request if provisioning.keys == "device" else None,
    )


if __name__ == "__main__":
    sys.exit(main())
