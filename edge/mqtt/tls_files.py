"""The PEM files of mutual TLS, and the context that they make."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge.mqtt.errors import TlsFileError
from edge.private_file import is_private

if TYPE_CHECKING:  # it takes memory, which a client without TLS need not spend
    import ssl


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: who may vouch for the server, and our own certificate and key."""

    ca: Path
    certificate: Path
    key: Path

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """A context that verifies the server by `ca` alone: the system's own authorities are not asked.

        Read for each connection, so that a new certificate counts. Raises `TlsFileError`.
        """
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if alpn:
            context.set_alpn_protocols(list(alpn))
        with naming(self.ca, "name a PEM file with the broker's certificate authority"):
            context.load_verify_locations(str(self.ca))
        with naming(self.certificate, "name a PEM file with the device's certificate"):
            # Read apart from the key, or OpenSSL would not say which of the two is broken.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(str(self.certificate))
        with naming(self.key, "name a PEM file with the key of this very certificate, without a passphrase"):
            _see_that_it_is_private(self.key)
            # Without an answer of ours OpenSSL asks for a passphrase at the terminal.
            context.load_cert_chain(str(self.certificate), str(self.key), password="")
        return context


def _see_that_it_is_private(key: Path) -> None:
    found = key.stat()
    if not is_private(found):
        mode = stat.S_IMODE(found.st_mode)
        problem = f"others than its owner have access to a private key (mode {mode:o})"
        raise TlsFileError(key, problem, f"chmod 600 {key}")


@contextlib.contextmanager
def naming(file: Path, remedy: str) -> Iterator[None]:
    """Python's own errors about a certificate or key do not say in which file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise TlsFileError(file, str(error), remedy) from error
