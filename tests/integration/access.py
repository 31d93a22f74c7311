"""A home's broker with the access rules that the device ships: a user and a password for each service."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from contract.acl import FORWARDER, acl
from contract.loader import load_contract
from eventplane.contract import Contract, ParticipantKind
from eventplane.topics import URGENT_CLIENT_SUFFIX
from eventplane_mqtt import Login
from lab.mosquitto import Access, Broker, start_mosquitto
from lab.process import Supervisor


@dataclass(frozen=True)
class Guarded:
    """A broker that asks for a password; `folder` has a password file for each of its users."""

    broker: Broker
    folder: Path

    def login(self, user: str) -> Login:
        return Login(user, self.folder / f"{user}.password")


def start_guarded(
    supervisor: Supervisor, name: str, folder: Path, contract: Contract | None = None
) -> Guarded:
    """Start a broker called `name` whose users are the forwarder and the services of a contract.

    By default it is the shipped one.
    """
    contract = contract or load_contract()
    forwarder = [FORWARDER, FORWARDER + URGENT_CLIENT_SUFFIX]
    users = [*forwarder, *(each.name for each in contract.of_kind(ParticipantKind.DEVICE_SERVICE))]
    folder.mkdir(parents=True, exist_ok=True)
    # Both sessions of the forwarder have one password.
    secrets = {user: f"secret of {user.removesuffix(URGENT_CLIENT_SUFFIX)}" for user in users}
    for user, secret in secrets.items():
        file = folder / f"{user}.password"
        file.touch(0o600)
        file.write_text(f"{secret}\n")
    access = Access(folder / "passwords", folder / "rules")
    access.passwords.touch(0o600)
    access.passwords.write_text("".join(f"{user}:{secret}\n" for user, secret in secrets.items()))
    subprocess.run(["mosquitto_passwd", "-U", str(access.passwords)], check=True)
    access.rules.touch(0o600)
    access.rules.write_text(acl(contract) + "\n")
    return Guarded(start_mosquitto(supervisor, name, folder / "mosquitto", access), folder)
