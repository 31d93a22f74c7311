"""The files of the plane that is up, beneath one folder, and the process that it belongs to."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contract import CONTRACT_FILE
from lab.cloud import COMMANDS, ENVIRONMENT, ROOT, TOOLS, CloudEndpoint
from lab.errors import LocalError
from lab.network import LOOPBACK
from lab.process import RunningError, kill_by_environment, run_lock, wait_for_end

FOLDER: Final = ROOT / "build" / "up"

MARK: Final = "EVENTPLANE_UP"
"""Environment variable of each process that was started for a plane: the plane's folder."""

_STOP_S: Final = 60.0
"""How long a plane may take to end after SIGTERM: each child has a grace period."""


class NotUpError(LocalError):
    """No plane is up in this checkout."""

    def __init__(self) -> None:
        super().__init__("no plane is up in this checkout; start it with `make up`")


class StillUpError(LocalError):
    """The plane of the process `pid` was asked to end and did not within `seconds`."""

    def __init__(self, pid: int, seconds: float, log: Path) -> None:
        self.pid, self.seconds = pid, seconds
        super().__init__(f"process {pid} still runs {seconds:g} s after SIGTERM; see {log}, or kill it")


@dataclass(frozen=True, slots=True)
class Running:
    """The access to the plane that is up; its credentials open its emulated cloud only.

    `contract_file` is what `publish` reads; `webhooks` has the URL by participant whose inbox is a webhook.
    """

    pid: int
    cloud: CloudEndpoint
    outputs: Mapping[str, str]
    contract_version: str
    home: str
    broker_port: int
    control_room: str
    contract_file: str = str(CONTRACT_FILE)
    webhooks: Mapping[str, str] = field(default_factory=dict)


class PlaneFolder:
    """The folder of a plane.

    `run` has the logs and the files of its processes, `contract` the compiled contract in force there,
    `environment` the shell variables that lead commands to it.
    """

    def __init__(self, path: Path = FOLDER) -> None:
        self.path = path.resolve()
        self.lock = self.path / "lock"
        self.run = self.path / "run"
        self.log = self.path / "up.log"
        self.contract = self.path / "contract.json"
        self.environment = self.path / "env"
        self.authorities = self.path / "devices-ca.pem"
        self._running = self.path / "plane.json"

    def write(self, running: Running) -> None:
        """Replace what is known of the plane."""
        self.authorities.write_text(running.cloud.ca_pem)
        _write_private(self.environment, _exports(self.variables(running)))
        unfinished = self._running.with_suffix(".unfinished")
        _write_private(unfinished, json.dumps(asdict(running), indent=2) + "\n")
        unfinished.replace(self._running)

    def variables(self, running: Running) -> dict[str, str]:
        """Return the variables that lead commands to the plane."""
        cloud, outputs = running.cloud, running.outputs
        return {
            "AWS_ENDPOINT_URL": cloud.url,
            "AWS_REGION": cloud.region,
            "AWS_DEFAULT_REGION": cloud.region,
            "AWS_ACCESS_KEY_ID": cloud.access_key_id,
            "AWS_SECRET_ACCESS_KEY": cloud.secret_access_key,
            "AWS_EC2_METADATA_DISABLED": "true",
            "EVENTPLANE_ENV": ENVIRONMENT,
            "EVENTPLANE_CONTRACT": running.contract_file,
            "EVENTPLANE_BROKER": f"mqtt://{LOOPBACK}:{running.broker_port}",
            "EVENTPLANE_DEVICE_ENDPOINT": f"{cloud.mqtt_host}:{cloud.mqtt_port}",
            "EVENTPLANE_DEVICE_CA": str(self.authorities),
            **{name: _api(cloud, outputs[output]) for name, output in _APIS.items() if output in outputs},
        }

    def read(self) -> Running:
        """Return what is known of the plane that is up. Raises `NotUpError`."""
        if self.holder() is None:
            raise NotUpError
        try:
            document: dict[str, Any] = json.loads(self._running.read_text())
        except FileNotFoundError:
            raise NotUpError from None  # it is starting
        return Running(**{**document, "cloud": CloudEndpoint(**document["cloud"])})

    def clear(self) -> None:
        """Forget a plane that ended."""
        self._running.unlink(missing_ok=True)
        self.environment.unlink(missing_ok=True)

    def holder(self) -> int | None:
        """Return the process that holds the lock, or None."""
        try:
            with self.lock.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self.lock.read_text() or 0) or None
        return None

    @contextmanager
    def process(self, pid: int) -> Iterator[int]:
        """Yield a file descriptor to signal the plane's process. Raises `NotUpError` if it is not `pid`."""
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            raise NotUpError from None
        try:
            if self.holder() != pid:  # only now it cannot be one that got the number since
                raise NotUpError
            yield process
        finally:
            os.close(process)


def stop(folder: PlaneFolder) -> int:
    """End the plane of `folder`, and return how many processes a killed one had left.

    Raises `NotUpError` where neither is there, `StillUpError`, `RunningError` where one just begins to start.
    """
    pid = folder.holder()
    if pid is not None:
        with suppress(NotUpError), folder.process(pid) as process:
            signal.pidfd_send_signal(process, signal.SIGTERM)
            if not wait_for_end(process, _STOP_S):
                raise StillUpError(pid, _STOP_S, folder.run)
    try:
        with run_lock(folder.lock):
            left = end_leftovers(folder)
            folder.clear()
    except RunningError:
        if pid is None:
            raise
        return 0  # another plane has started since, and has ended them
    if pid is None and not left:
        raise NotUpError
    return left


def end_leftovers(folder: PlaneFolder) -> int:
    """Kill the processes of a plane that was itself killed, and return how many; call it with the lock held.

    The kernel ends our own children with us, but not theirs: the emulated cloud's functions.
    """
    return kill_by_environment(lambda variables: variables.get(MARK) == str(folder.path))


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read: it holds the key of the emulated cloud."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


_APIS: Final = {
    "EVENTPLANE_SUBSCRIPTIONS_API": "SubscriptionsApiUrl",
    "EVENTPLANE_DISCOVERY_API": "DiscoveryApiUrl",
}


def _api(cloud: CloudEndpoint, deployed: str) -> str:
    """Return where a `deployed` API is without a name server: its host's first label is its id."""
    url = urlsplit(deployed)
    return f"{cloud.url}/_aws/execute-api/{(url.hostname or '').partition('.')[0]}{url.path}"


def _exports(variables: Mapping[str, str]) -> str:
    tools = shlex.quote(f"{COMMANDS}:{TOOLS}")
    lines = [
        "# Leads commands to the plane of `make up`: source this file.",
        "unset AWS_PROFILE AWS_SESSION_TOKEN",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        # The checkout's `eventplane` and its Python; a second sourcing changes nothing.
        f"case :$PATH: in *:{tools}:*) ;; *) export PATH={tools}:$PATH ;; esac",
    ]
    return "\n".join(lines) + "\n"
