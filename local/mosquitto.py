"""A home's own broker: a real Mosquitto with the profile that the device ships."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.errors import ProfileError, ToolMissingError
from local.ports import LOOPBACK, free_port, is_listening
from local.process import Child, Supervisor

PROFILE: Final = Path(__file__).parent.parent / "edge" / "packaging" / "mosquitto.conf"
ACCESS: Final = PROFILE.with_name("mosquitto-access.conf")


@dataclass(frozen=True)
class Broker:
    """A home's Mosquitto on 127.0.0.1:`port`. `child.kill()` and `child.start()` keep the port."""

    port: int
    child: Child


@dataclass(frozen=True)
class Access:
    """Who may connect (mosquitto_passwd) and what each may do (`eventplane contract acl`)."""

    passwords: Path
    rules: Path


def start_mosquitto(
    supervisor: Supervisor, name: str, directory: Path, access: Access | None = None
) -> Broker:
    """Start a broker with the device's profile on a free port of the loopback interface.

    Args:
        supervisor: owns the process.
        name: names the child and its log.
        directory: for its configuration and database; created if needed.
        access: keeps the services apart; by default everybody on the machine may do everything.

    Raises:
        ToolMissingError: Mosquitto is not installed.
        ProfileError: the device's profile lost a line that a local run replaces.
        ProcessDiedError, ProcessLateError: it did not come up.
    """
    # Debian installs it where only root's PATH looks.
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ToolMissingError("mosquitto")
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    configuration = directory / "mosquitto.conf"
    configuration.write_text(_local_profile(port, directory.resolve(), access))
    child = supervisor.start(
        name, [program, "-c", str(configuration.resolve())], ready=lambda: is_listening(port)
    )
    return Broker(port, child)


def _local_profile(port: int, directory: Path, access: Access | None) -> str:
    """The device's profile, with only the address and the places of files changed."""
    text, settings = PROFILE.read_text(), {"listener": f"{port} {LOOPBACK}"}
    if access is not None:
        text = text.replace("allow_anonymous true\n", ACCESS.read_text())
        settings |= {"password_file": str(access.passwords), "acl_file": str(access.rules)}
    replaced = _replace(text, settings | {"persistence_location": f"{directory}/"})
    # As root it would become another user, who may not write to our directory.
    return f"{replaced}\nuser {getpass.getuser()}\n"


def _replace(text: str, settings: Mapping[str, str]) -> str:
    for setting, value in settings.items():
        text, found = re.subn(rf"(?m)^{setting} .*$", f"{setting} {value}", text)
        if found != 1:
            raise ProfileError(PROFILE, setting, found)
    return text
