"""Asks an address for brokers by one plain DNS-SD question: `ask_dns_sd.py ADDRESS SECONDS`.

Prints how many answers came. Without a library, so that what is asked is exactly known.
"""

from __future__ import annotations

import socket
import struct
import sys

_MDNS_PORT = 5353


def main() -> None:
    """Ask, and wait for one answer."""
    labels = b"".join(bytes([len(each)]) + each for each in (b"_mqtt", b"_tcp", b"local"))
    question = struct.pack(">6H", 7, 0, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 12, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(float(sys.argv[2]))
        line.sendto(question, (sys.argv[1], _MDNS_PORT))
        try:
            answers = struct.unpack_from(">6H", line.recv(9000))[3]
        except (TimeoutError, ConnectionError):
            answers = 0
    sys.stdout.write(f"{answers}\n")


if __name__ == "__main__":
    main()
