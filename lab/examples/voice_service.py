"""Request and reply: raise an alarm for each line on standard input with "help", and say who answered.

Run it as `python lab/examples/voice_service.py`. REPLY_TIMEOUT_S is how long it waits for the replies. The
alarm is stored on the device before anybody replies, and is delivered whether or not replies come in time.
"""

import os
import sys
import time
from uuid import uuid4

from eventplane.envelope import Envelope, write_event
from eventplane_client import Client, connect
from eventplane_client.errors import NoRoomError, NotConfirmedError, RequestTimeoutError

timeout_s = float(os.environ.get("REPLY_TIMEOUT_S", "30"))


def raise_alarm(client: Client, alarm: Envelope) -> None:
    """Send `alarm`, print who handled it, and return once it is stored."""
    missing: tuple[str, ...] | None = None
    try:
        replies, missing = client.request(alarm, timeout_s), ()
    except RequestTimeoutError as error:
        replies, missing = error.replies, error.missing
    except (NotConfirmedError, NoRoomError):
        replies = {}
    for name, reply in replies.items():
        print(f"{name}: {reply.status}", flush=True)
    if missing is None:
        print("not sent: does the forwarder run? It is tried until the alarm is stored", flush=True)
        put(client, alarm)
    elif missing:
        print(f"no reply yet: {', '.join(missing)}", flush=True)
    print("stored", flush=True)


def put(client: Client, alarm: Envelope) -> None:
    """Put `alarm` until it is stored; with the same id it counts once."""
    while True:
        try:
            return client.put(alarm, timeout_s)
        except (NotConfirmedError, NoRoomError):
            time.sleep(1)


with connect(participant="voice-service") as client:
    for line in sys.stdin:
        if "help" in line.lower():
            attributes = {"id": str(uuid4()), "source": "/voice", "type": "org.eventplane.alarm.keyword.v1"}
            raise_alarm(client, write_event(attributes, {"keyword": "help"}))
