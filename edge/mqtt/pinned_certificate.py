"""A broker that is known by its very certificate, and by nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.mqtt.tls_files import naming

if TYPE_CHECKING:  # it takes memory, which a client without TLS need not spend
    import ssl

_FIRST: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PinnedCertificate:
    """The PEM `file` that the server itself uses: its first certificate is the only one that is taken.

    For a server on the same machine. Its name is not compared: it may be for the home, and we ask 127.0.0.1.
    """

    file: Path

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """Read for each connection, so that a new certificate counts. Raises `TlsFileError`."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        # What is in the file is the server's, whoever signed it; those it was signed by are not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if alpn:
            context.set_alpn_protocols(list(alpn))
        with naming(self.file, "name the broker's certificate, a PEM file that this program's user may read"):
            found = _FIRST.search(self.file.read_text("ascii"))
            context.load_verify_locations(cadata=found[0] if found else "")
        return context
