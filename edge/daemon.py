"""The forwarder as a process: its signals, its health endpoint, and the loop between them."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext

from edge.components import make_links
from edge.contract_updates import Adopted, active_contract, keep_contract, read_contract
from edge.errors import SettingProblem
from edge.forwarder import Forwarder, Stop
from edge.housekeeping import Hangup, Housekeeping, Posted, Snapshots, StatusReader
from edge.settings import HealthSettings, Settings
from edge.system import SYSTEM
from edge.systemd import ServiceManager
from edge.without_disk import DiskWatch
from eventplane.contract import Contract
from eventplane_mqtt.mailbox import Mailbox

_log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.001
"""How long a busy loop keeps a network thread from the interpreter, which that wants three times a read. With
Python's 5 ms alarms behind a backlog took 1.5 s instead of 0.6."""


def run(
    settings: Settings,
    contract: Contract,
    environment: Mapping[str, str],
    refused: SettingProblem | None = None,
) -> None:
    """Forward until a signal comes, by `contract` unless the cloud sent another one. Raises `SpoolError`.

    `refused` is why the contract file cannot be used.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    mailbox: Mailbox[Posted] = Mailbox()
    _listen_to_signals(mailbox)
    disk = DiskWatch(settings, SYSTEM)
    with disk.open(SYSTEM.monotonic()) as spool:
        found = active_contract(refused or contract, spool, contract)
        if isinstance(found, SettingProblem):
            found = Adopted(contract, contract)
        contract, image = found.contract, found.image
        if refused:
            _log.error("the last valid contract, %s, stays active: %s", contract.version, refused)
        if spool.is_on_disk:
            keep_contract(contract, settings.spool)
        _log.info(
            "thing %s, contract %s, spool epoch %s at sequence %d",
            settings.thing, contract.version, spool.epoch, spool.next_sequence,
        )  # fmt: skip

        _warn_of_limits(settings)
        links = make_links(settings, lambda: forwarder.contract, mailbox, SYSTEM)
        forwarder = Forwarder(
            contract,
            settings,
            spool,
            links,
            lambda *times: housekeeping.wait(*times),
            SYSTEM,
            heartbeat=lambda: state.heartbeat(SYSTEM.monotonic()),
            contract_came=lambda: mailbox.put(Hangup()),
            image=image,
            disk=disk,
        )
        state = StatusReader(forwarder, SYSTEM)
        if refused or found.refused:
            forwarder.counts.refused_contract()

        def read_again() -> Adopted | SettingProblem:
            if (failure := forwarder.disk.failure) is not None:
                return SettingProblem(
                    "contract", f"the spool cannot be read: {failure.problem}", failure.remedy
                )
            found = active_contract(read_contract(settings.contract), forwarder.spool, forwarder.image)
            if not isinstance(found, SettingProblem):
                keep_contract(found.contract, settings.spool)
            return found

        manager = ServiceManager(environment, os.getpid())
        housekeeping = Housekeeping(mailbox, state, manager, read_again, SYSTEM.monotonic)
        with _endpoint(settings.health, housekeeping.snapshots):
            forwarder.run()
        _log.info("stopped at sequence %d", forwarder.spool.next_sequence)


def _warn_of_limits(settings: Settings) -> None:
    """Log which limits of Mosquitto's profile do not agree with the forwarder's."""
    if settings.local.profile is not None:
        from edge.check import broker_warnings  # which a device without a profile need not hold

        for each in broker_warnings(settings.local):
            _log.warning("%s", each)


def _listen_to_signals(mailbox: Mailbox[Posted]) -> None:
    """Turn signals into messages, to the very end: a second SIGTERM changes nothing."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: mailbox.put(Stop()))
    signal.signal(signal.SIGHUP, lambda *_: mailbox.put(Hangup()))


def _endpoint(health: HealthSettings, snapshots: Snapshots) -> AbstractContextManager[object]:
    """Return the health endpoint, if the settings want one. A device without it still forwards."""
    if health.port:
        from edge.health_server import HealthServer, pages

        try:
            return closing(HealthServer(health.host, health.port, pages(snapshots)))
        except OSError as error:
            problem = f"no health endpoint at {health.host} port {health.port}: {error}"
            _log.error("%s; set health.port to a free port", problem)
    return nullcontext()
