"""A cloud without an emulator: Mosquitto in IoT Core's place, the functions' own code over files behind it.

Real are mutual TLS, the broker's acknowledgements, the router, the archive writer and their records. Queues,
buckets, event source mappings and IAM are not there: `local.chaos.emulated` has them.
"""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eventplane.contract import Contract
from local.certificates import Authority
from local.chaos.arrivals import Arrivals
from local.chaos.faults import Fault, Freeze, Kill
from local.chaos.worker import ARCHIVE, ARRIVALS, CONTRACT, READY
from local.deploy import ROOT
from local.ports import LOOPBACK, free_port, is_listening
from local.process import Child, Supervisor
from local.things import Thing

RULE: Final = "ingest"
_STOP_S: Final = 600.0
"""How long the worker may take to work off what it has."""


class StandIn:
    """Starts broker and worker beneath `supervisor.run_dir`; `router` and `broker` are their processes."""

    description = "Mosquitto in IoT Core's place, the functions' own code over files"
    rule = RULE
    patience_s = 30.0

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        self.folder = supervisor.run_dir / "cloud"
        self.contract = contract
        (self.folder / ARRIVALS).mkdir(parents=True)
        self.put_contract(contract)
        self._authority = Authority(self.folder / "certificates")
        self._port, plain = free_port(), free_port()
        self.broker = supervisor.start(
            "cloud-broker",
            [_mosquitto(), "-c", str(self._configuration(plain))],
            ready=lambda: is_listening(plain),
        )
        self.router = supervisor.start(
            "cloud-worker",
            [sys.executable, "-m", "local.chaos.worker", str(self.folder), str(plain), RULE],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "POWERTOOLS_SERVICE_NAME": "chaos",
                "POWERTOOLS_LOG_LEVEL": "ERROR",
                "POWERTOOLS_METRICS_DISABLED": "true",
            },
            ready=READY,
        )

    def thing(self, home: str, directory: Path) -> Thing:
        """A certificate for `home`; its files are the authority's."""
        directory.mkdir(parents=True, exist_ok=True)
        identity = self._authority.issue(home)
        ca = shutil.copy(self._authority.ca, directory / "ca.pem")
        return Thing(home, identity.certificate, identity.key, Path(ca), LOOPBACK, self._port)

    def arrivals(self, service: str) -> Arrivals:
        """What `service` receives."""
        return Arrivals(self.folder / ARRIVALS / f"{service}.jsonl")

    def wait_for(self, homes: Sequence[str]) -> bool:  # noqa: ARG002
        """Nothing here depends on it."""
        return True

    def tell(self, text: str) -> None:
        """Nothing goes down here. Raises `NotImplementedError`."""
        raise NotImplementedError(f"events go down in the emulated cloud only: {text}")

    def put_contract(self, contract: Contract) -> None:
        """Put `contract` in force for the next messages."""
        unfinished = self.folder / f"{CONTRACT}.unfinished"
        unfinished.write_bytes(contract.canonical)
        unfinished.replace(self.folder / CONTRACT)

    def faults(self) -> dict[str, Fault]:
        """What can break: router and archive writer, one process here, and the broker."""
        return {
            "router-kill": Kill(self.router),
            "router-stop": Freeze(self.router),
            "cloud-stop": Freeze(self.broker),
        }

    @property
    def children(self) -> Sequence[Child]:
        """Broker and worker."""
        return self.broker, self.router

    def is_idle(self) -> bool:
        """Nobody knows."""
        return False

    def settle(self) -> bool:
        """Return when everything that was accepted is handled. The worker has ended then."""
        self.router.start()
        self.router.stop(_STOP_S)
        return True

    def watched(self) -> None:
        """There are no metrics."""

    def close(self) -> None:
        """Everything here is a process."""

    def fetch_archive(self) -> Path:
        """Where it is anyway."""
        return self.folder / ARCHIVE

    def _configuration(self, plain: int) -> Path:
        server = self._authority.issue("cloud")
        path = self.folder / "mosquitto.conf"
        path.write_text(
            f"user {getpass.getuser()}\nallow_anonymous true\nper_listener_settings false\n"
            f"max_queued_messages 0\nlistener {plain} {LOOPBACK}\nlistener {self._port} {LOOPBACK}\n"
            f"cafile {self._authority.ca}\ncertfile {server.certificate}\nkeyfile {server.key}\n"
            "require_certificate true\n"
        )
        return path


def _mosquitto() -> str:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""
