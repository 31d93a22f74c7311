"""Where a broker listens: a name or address with a port, or a Unix socket."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from edge.mqtt.pinned_certificate import PinnedCertificate

_LOOPBACK: Final = re.compile(r"localhost|::1|127(\.\d{1,3}){3}")


class BrokerAddress(NamedTuple):
    """`host` and `port`, or the path of a Unix socket as `host`; `tls` is None where it speaks without."""

    host: str
    port: int
    tls: PinnedCertificate | None = None

    def __str__(self) -> str:
        return place(self.host, self.port) + (" with TLS" if self.tls else "")


def is_socket(host: str) -> bool:
    """Whether it is a Unix socket's path; the port then says nothing."""
    return host.startswith("/")


def is_on_this_device(host: str) -> bool:
    """Whether nothing that is sent there leaves the device."""
    return is_socket(host) or _LOOPBACK.fullmatch(host) is not None


def place(host: str, port: int) -> str:
    """Host and port for people."""
    if is_socket(host):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
