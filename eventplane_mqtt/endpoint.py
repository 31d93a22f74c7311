"""The address of a broker, our identity at it, and the files that prove both.

`ssl` is imported only where a context is made: it takes memory, which a client without TLS need not spend.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from eventplane.errors import EventPlaneError

if TYPE_CHECKING:
    import ssl

MAX_PACKET_BYTES: Final = 1024 * 1024
"""Largest packet that we accept, bytes. Four times what our Mosquitto profile lets through. No setting: it
only bounds the memory that one packet of a broker can take, and no device gains by another value."""

MOST_ADDRESSES: Final = 16
STAGGER_S: Final = 0.25
"""Attempts to connect to the addresses of one name, and the pause between two (RFC 8305, 5 and 8)."""

MAX_PASSWORD_BYTES: Final = 1024
"""A longer password file is the wrong file."""

_LOOPBACK: Final = re.compile(r"localhost|::1|127(\.\d{1,3}){3}")
_LABEL = r"[^\s\x00-\x1f\x7f/:@?#\[\].]{1,63}"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?")
_VERSION_6: Final = re.compile(r"([0-9A-Fa-f:.]+)(%[\w.-]+)?")


class MqttError(EventPlaneError):
    """Base of the errors of the protocol, of a broker's discovery, and of a connection's files."""


class DiscoveryError(MqttError):
    """The home's broker cannot be found or announced: the `problem` of the `subject`, and the `remedy`."""

    subject: str
    problem: str
    remedy: str
    message = "{subject}: {problem}; {remedy}"


def is_private(found: os.stat_result) -> bool:
    """Return whether only its owner has access to a file; root may let a group read what is root's.

    systemd hands out credentials like that (LoadCredential=): its grant to one user shows as the group's.
    """
    granted = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return not granted or (found.st_uid == 0 and granted == stat.S_IRGRP)


class _FileError(MqttError):
    """The file at `path` cannot be used: `problem` is what is wrong, `remedy` what to do."""

    path: Path
    problem: str
    remedy: str
    message = "{path} cannot be used: {problem}; {remedy}"


class TlsFileError(_FileError):
    """A certificate or key cannot be used."""


class PasswordFileError(_FileError):
    """A password cannot be read, or other users can read it too."""


class Login(NamedTuple):
    """A `username` and the file whose one line is the password; the password itself is stored nowhere."""

    username: str
    password_file: Path

    def password(self) -> bytes:
        """Read the password. Called for each connection, so that a new one counts.

        Raises `PasswordFileError`.
        """
        file = self.password_file
        try:
            with file.open("rb") as opened:
                line = opened.read(MAX_PASSWORD_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")
            found = file.stat()
        except OSError as error:
            problem = error.strerror or str(error)
            raise PasswordFileError(file, problem, "name a file with the password") from error
        _require_private(found, PasswordFileError, file, "a password")
        if not line or len(line) > MAX_PASSWORD_BYTES or b"\n" in line:
            problem = f"it is not one line of 1 to {MAX_PASSWORD_BYTES} bytes"
            raise PasswordFileError(file, problem, "write the password into it, and nothing else")
        return line


class TlsFiles(NamedTuple):
    """PEM files of mutual TLS: the authority that vouches for the server, our certificate and its key."""

    ca: Path
    certificate: Path
    key: Path

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """Return a context that verifies the server by `ca` alone, not by the system's authorities.

        Called for each connection, so that a new certificate counts. Raises `TlsFileError`.
        """
        context = _client_context(alpn)
        with _naming(self.ca, "name a PEM file with the broker's certificate authority"):
            context.load_verify_locations(str(self.ca))
        with _naming(self.certificate, "name a PEM file with the device's certificate"):
            # Read apart from the key: OpenSSL does not report which of the two is broken.
            _client_context().load_verify_locations(str(self.certificate))
        with _naming(self.key, "name a PEM file with the key of this very certificate, without a passphrase"):
            _require_private(self.key.stat(), TlsFileError, self.key, "a private key")
            # Without a password argument OpenSSL asks for a passphrase at the terminal.
            context.load_cert_chain(str(self.certificate), str(self.key), password="")
        return context


class PinnedCertificate(NamedTuple):
    """The PEM `file` that the server itself uses: its first certificate is the only one accepted.

    For a server on the same machine. Its name is not compared: it may be for the home, and we ask 127.0.0.1.
    """

    file: Path

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """Return a context that accepts this certificate only; as in `TlsFiles`. Raises `TlsFileError`."""
        import ssl

        from eventplane_mqtt.tls import first_certificate

        context = _client_context(alpn)
        context.check_hostname = False
        # The first certificate of the file is the server's, whoever signed it; the others are its signers'.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with _naming(self.file, "name the broker's certificate, a PEM file that this program may read"):
            context.load_verify_locations(cadata=first_certificate(self.file.read_text("latin-1")))
        return context


class BrokerAddress(NamedTuple):
    """`host` and `port`, or the path of a Unix socket as `host`; `tls` is None for a broker without TLS."""

    host: str
    port: int
    tls: PinnedCertificate | None = None

    def __str__(self) -> str:
        return place(self.host, self.port) + (" with TLS" if self.tls else "")


class Proxy(NamedTuple):
    """An HTTP proxy at `host` and `port` that connects us with a broker, and our `login` there, if any."""

    host: str
    port: int
    login: Login | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker, our identity and our subscriptions.

    `host` is a name, an address or the path of a Unix socket, where `port` means nothing. Behind a `proxy` it
    is the proxy that looks up the name.

    `keepalive_s` (0: none, at most 65535) and `connect_timeout_s`, which is for each step, in seconds.

    Without `needs_subscriptions` a connection is up even if the broker refuses the subscriptions.

    A session that is not clean lasts as long as the broker likes: we ask for no end by its clock. In MQTT 5
    the broker stores with each message the `owner` that it waits for (1 to 268435455, 0: none).
    """

    host: str
    port: int
    client_id: str
    clean_session: bool
    keepalive_s: int
    connect_timeout_s: float
    subscriptions: tuple[str, ...] = ()
    needs_subscriptions: bool = True
    tls: TlsFiles | PinnedCertificate | None = None
    login: Login | None = None
    proxy: Proxy | None = None
    protocol: Literal["3.1.1", "5"] = "3.1.1"
    max_packet_bytes: int = MAX_PACKET_BYTES
    owner: int = 0

    @property
    def version(self) -> int:
        """The protocol level of CONNECT."""
        return 5 if self.protocol == "5" else 4


def longest_connect_s(connect_timeout_s: float) -> float:
    """Return the seconds after which a connection that is neither up nor over hangs: each step took its time.

    These are look-up, addresses, proxy, TLS, CONNECT and SUBSCRIBE.
    """
    return 6 * connect_timeout_s + MOST_ADDRESSES * STAGGER_S


def is_host(text: str) -> bool:
    """Return whether `text` can be a host name or an IP address: no URL, no port behind it, no brackets."""
    found = _VERSION_6.fullmatch(text)
    if found is None or ":" not in text:
        return _NAME.fullmatch(text) is not None
    with contextlib.suppress(OSError):
        return bool(socket.inet_pton(socket.AF_INET6, found[1]))
    return False


def is_socket(host: str) -> bool:
    """Return whether `host` is a Unix socket's path; the port then means nothing."""
    return host.startswith("/")


def is_on_this_device(host: str) -> bool:
    """Return whether nothing that is sent to `host` leaves the device."""
    return is_socket(host) or _LOOPBACK.fullmatch(host) is not None


def place(host: str, port: int) -> str:
    """Format host and port for people."""
    if is_socket(host):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _require_private(found: os.stat_result, error: type[_FileError], file: Path, content: str) -> None:
    if not is_private(found):
        mode = stat.S_IMODE(found.st_mode)
        problem = f"others than its owner have access to {content} (mode {mode:o})"
        raise error(file, problem, f"chmod 600 {file}")


def _client_context(alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@contextlib.contextmanager
def _naming(file: Path, remedy: str) -> Iterator[None]:
    """Add the file's name: Python's own errors about a certificate or key lack it."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise TlsFileError(file, str(error), remedy) from error
