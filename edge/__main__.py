"""`python -m edge --settings FILE`: the forwarder of one device.

Exit status: 0 stopped by SIGTERM or SIGINT, 2 wrong command line, 74 the spool failed (EX_IOERR), 78 wrong
settings or contract (EX_CONFIG); anything else is a bug and leaves a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path

from edge.errors import SettingsError, SpoolError
from edge.forwarder import Forwarder, ForwarderOptions
from edge.link import Backoff, Link
from edge.local_bus import local_topics
from edge.mailbox import Mailbox
from edge.messages import LinkName, Message, Stop
from edge.mqtt import Connection, Endpoint, TlsFiles
from edge.settings import CloudSettings, Settings, load_settings
from edge.spool import Spool
from edge.uplink import UplinkLimits
from eventplane.contract import Contract, ContractError, load_compiled

_log = logging.getLogger("edge")


def main() -> int:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(
        prog="python -m edge", description="The Event Plane's forwarder on a device."
    )
    parser.add_argument("--settings", type=Path, required=True, help="TOML file, see edge/settings.py")
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.settings, dict(os.environ))
        contract = load_compiled(settings.contract.read_bytes(), str(settings.contract))
    except (SettingsError, ContractError) as error:
        print(error, file=sys.stderr)
        return os.EX_CONFIG
    except OSError as error:
        print(
            SettingsError("contract", str(error), "name a compiled contract (make contract)"), file=sys.stderr
        )
        return os.EX_CONFIG
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        run(settings, contract)
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    return os.EX_OK


def run(settings: Settings, contract: Contract) -> None:
    """Forward until a signal comes. Raises `SpoolError`."""
    mailbox: Mailbox[Message] = Mailbox()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: mailbox.put(Stop()))
    with Spool(settings.spool) as spool:
        _log.info(
            "thing %s, contract %s, spool epoch %s at sequence %d",
            settings.thing, contract.version, spool.epoch, spool.next_sequence,
        )  # fmt: skip
        Forwarder(
            contract,
            _options(settings),
            spool,
            _local_link(settings, contract, mailbox),
            _cloud_link(settings, mailbox),
            mailbox.wait,
        ).run()
        _log.info("stopped at sequence %d", spool.next_sequence)


def _options(settings: Settings) -> ForwarderOptions:
    cloud = settings.cloud
    return ForwarderOptions(
        thing=settings.thing,
        topic=cloud.topic.replace("{rule}", cloud.rule or "").replace("{thing}", settings.thing),
        uplink=UplinkLimits(
            window=cloud.max_unacknowledged,
            payload_bytes=cloud.payload_bytes,
            batch_events=cloud.batch_events,
            puback_timeout_s=cloud.puback_timeout_s,
            publishes_per_s=cloud.publishes_per_s,
            bytes_per_s=cloud.bytes_per_s,
            probe_interval_s=cloud.probe_interval_s,
            single=cloud.mode == "single",
        ),
        inbox_window=settings.local.inbox_window,
        receipt_timeout_s=settings.local.receipt_timeout_s,
        stop_grace_s=settings.stop_grace_s,
    )


def _local_link(settings: Settings, contract: Contract, mailbox: Mailbox[Message]) -> Link:
    local = settings.local
    endpoint = Endpoint(
        host=local.host,
        port=local.port,
        client_id=local.client_id,
        # A lasting session: the broker keeps our messages while we restart.
        clean_session=False,
        keepalive_s=local.keepalive_s,
        connect_timeout_s=local.connect_timeout_s,
        subscriptions=tuple(local_topics(contract)),
    )
    backoff = Backoff(local.reconnect_min_s, local.reconnect_max_s)
    return _link(LinkName.LOCAL, endpoint, backoff, mailbox)


def _cloud_link(settings: Settings, mailbox: Mailbox[Message]) -> Link:
    cloud = settings.cloud
    endpoint = Endpoint(
        host=cloud.host,
        port=cloud.port,
        client_id=settings.thing,
        # Nothing is subscribed and the spool remembers what was sent: no session to keep.
        clean_session=True,
        keepalive_s=cloud.keepalive_s,
        connect_timeout_s=cloud.connect_timeout_s,
        tls=_tls_files(cloud) if cloud.tls else None,
        protocol=cloud.protocol,
    )
    backoff = Backoff(cloud.reconnect_min_s, cloud.reconnect_max_s)
    return _link(LinkName.CLOUD, endpoint, backoff, mailbox)


def _tls_files(cloud: CloudSettings) -> TlsFiles:
    if cloud.ca is None or cloud.certificate is None or cloud.key is None:
        raise SettingsError("cloud.tls", "a file is missing", "set cloud.ca, cloud.certificate and cloud.key")
    return TlsFiles(cloud.ca, cloud.certificate, cloud.key)


def _link(name: LinkName, endpoint: Endpoint, backoff: Backoff, mailbox: Mailbox[Message]) -> Link:
    dial = partial(_dial, endpoint, name, mailbox)
    return Link(name, dial, backoff, endpoint.connect_timeout_s)


def _dial(endpoint: Endpoint, name: LinkName, mailbox: Mailbox[Message], generation: int) -> Connection:
    return Connection(endpoint, name, generation, mailbox.put)


if __name__ == "__main__":
    sys.exit(main())
