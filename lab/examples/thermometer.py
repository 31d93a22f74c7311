"""A service on a device: put one temperature a minute into the plane, also while there is no network.

Run it as `python lab/examples/thermometer.py`. SENSOR names a file with thousandths of a degree Celsius, as
Linux has for its sensors, ROOM the room, and INTERVAL_S the seconds between two readings.
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from eventplane.envelope import Envelope, write_event
from eventplane_client import connect
from eventplane_client.errors import NoRoomError, NotConfirmedError, WindowFullError

sensor = Path(os.environ.get("SENSOR", "/sys/class/thermal/thermal_zone0/temp"))
room = os.environ.get("ROOM", "living-room")
interval_s = float(os.environ.get("INTERVAL_S", "60"))


def reading() -> Envelope:
    """Return the sensor's value as an event."""
    celsius = int(sensor.read_text()) / 1000
    return write_event(
        {
            "id": str(uuid4()),
            "source": f"/rooms/{room}/thermometer",
            "type": "org.eventplane.climate.reading.v1",
            "time": datetime.now(UTC).isoformat(),
            "subject": f"/{room}",
        },
        {"quantity": "temperature", "value": celsius, "unit": "Cel"},
    )


with connect(participant="climate-service") as client:
    while True:
        event = reading()
        try:
            client.put(event, timeout_s=interval_s)
            print(f"stored on this device: {event.json}", flush=True)
        except (NoRoomError, WindowFullError) as error:
            print(f"{event.id}: this reading is dropped: {error}", flush=True)
        except NotConfirmedError:
            # The client goes on sending it; the forwarder recognises a repetition by its id.
            print(f"{event.id}: no receipt yet; does the forwarder run?", flush=True)
        time.sleep(interval_s)
