"""Which of a profile's listeners a program on the same device connects to, and where that is."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edge.discovery.errors import NoListenerError
from edge.discovery.profile import Listener
from edge.mqtt.endpoint import BrokerAddress, PinnedCertificate, is_on_this_device, is_socket


class Candidate(NamedTuple):
    """A listener that takes us, and where; the lowest `rank` is the one to take."""

    rank: tuple[bool, int]
    listener: Listener
    address: BrokerAddress


class Refused(NamedTuple):
    """A listener that does not take us, and why."""

    listener: Listener
    reason: str


def choose(listeners: Sequence[Listener], *, has_login: bool, name: str = "profile") -> BrokerAddress:
    """The one to connect to, with a user name and password or without. Raises `NoListenerError`."""
    judged = list(judge(listeners, has_login=has_login))
    candidates = [each for each in judged if isinstance(each, Candidate)]
    if not candidates:
        refused = (each for each in judged if isinstance(each, Refused))
        raise NoListenerError(name, [f"{each.listener} {each.reason}" for each in refused])
    return min(candidates, key=lambda each: each.rank).address


def judge(listeners: Sequence[Listener], *, has_login: bool) -> Iterator[Candidate | Refused]:
    """What is to be thought of each listener, in the order of the profile."""
    for each in listeners:
        reason = _refusal(each, has_login)
        if reason is not None:
            yield Refused(each, reason)
            continue
        tls = PinnedCertificate(Path(each.certificate)) if each.certificate else None
        address = BrokerAddress(_host(each), each.port, tls)
        yield Candidate((not (each.anonymous or has_login), _rank(address)), each, address)


def is_every_address(host: str) -> bool:
    """Whether it stands for all addresses of its family."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return not any(socket.inet_pton(family, host))
        except (OSError, ValueError):
            continue
    return False


def _refusal(listener: Listener, has_login: bool) -> str | None:
    """Why a listener is not for us, None when it is."""
    if listener.protocol != "mqtt":
        return f"speaks {listener.protocol}, not plain MQTT"
    if listener.shared_key:
        return "wants a pre-shared key"
    if listener.wants_certificate:
        return "wants a certificate of its clients"
    if listener.interface not in (None, "lo"):
        return f"is bound to the interface {listener.interface}, whose address the profile does not say"
    files = [listener.certificate, None if listener.port else listener.host]
    if any(each and not each.startswith("/") for each in files):
        return "has a relative path, and only Mosquitto knows to what"
    if has_login and not listener.certificate and not is_on_this_device(_host(listener)):
        return "would get the password over the network without TLS"
    return None


def _host(listener: Listener) -> str:
    """Where to knock for a listener that waits at all addresses, or at one."""
    if listener.host is None or listener.interface == "lo":
        return "::1" if listener.family == "ipv6" else "127.0.0.1"
    if is_every_address(listener.host):
        return "::1" if ":" in listener.host else "127.0.0.1"
    return listener.host


def _rank(address: BrokerAddress) -> int:
    """The loopback interface first, which asks for no rights to a file; what may lead elsewhere last."""
    if not is_on_this_device(address.host):
        return 3 if address.tls else 4
    if address.tls:
        return 2
    return 1 if is_socket(address.host) else 0
