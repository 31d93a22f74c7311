"""Publish small messages at QoS 0 at a steady rate until SIGTERM: `python -m benchmarks.edge.load`.

It is a process of its own, so that it does not share a core's time with the run that starts it. At its end it
prints one JSON object: how many messages it `sent` in how many `seconds`.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import time

from benchmarks.edge import wire
from benchmarks.edge.events import event

_BURSTS_PER_S = 100


def main() -> None:
    """Publish to `--topic`, in which {number} is the message's number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="messages a second")
    parser.add_argument("--size", type=int, required=True, help="bytes of an event; 0: an empty object")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--type", required=True, help="the events' type")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="stop after so many messages")
    arguments = parser.parse_args()
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    sent, began = 0, time.monotonic()
    with socket.create_connection(("127.0.0.1", arguments.port)) as connection:
        connection.sendall(wire.connect("load"))
        while not stopped and sent < arguments.count:
            burst = min(max(1, arguments.rate // _BURSTS_PER_S), arguments.count - sent)
            connection.sendall(b"".join(_packet(arguments, sent + each) for each in range(burst)))
            sent += burst
            time.sleep(max(0.0, began + sent / arguments.rate - time.monotonic()))
    sys.stdout.write(json.dumps({"sent": sent, "seconds": time.monotonic() - began}) + "\n")


def _packet(arguments: argparse.Namespace, number: int) -> bytes:
    payload = event(number, arguments.size, arguments.type) if arguments.size else b"{}"
    return wire.publish(arguments.topic.format(number=number), payload)


if __name__ == "__main__":
    main()
