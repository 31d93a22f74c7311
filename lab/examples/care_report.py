"""A cloud service: store the readings that wait in its inbox, print the mean of each home, and end.

Run it as `python lab/examples/care_report.py`, for example every hour. READINGS is its database; it ends when
nothing came for IDLE_S seconds. Each event is stored under its key, so one that comes again changes nothing:
this program needs no state of the client library.
"""

import os
import sqlite3

from eventplane_client import Mode, connect
from eventplane_client.errors import NothingThereError

idle_s = float(os.environ.get("IDLE_S", "5"))
readings = sqlite3.connect(os.environ["READINGS"])
readings.execute(
    "CREATE TABLE IF NOT EXISTS reading (device TEXT, service TEXT, source TEXT, id TEXT, quantity TEXT,"
    " value REAL, unit TEXT, PRIMARY KEY (device, service, source, id))"
)

with connect(participant="care-analytics", mode=Mode.AT_LEAST_ONCE) as client, client.subscribe() as inbox:
    while True:
        try:
            batch = inbox.get_batch(100, timeout_s=idle_s)
        except NothingThereError:
            break
        for event in batch:
            if not event.type.endswith(".reading.v1"):
                continue
            # The device is what the plane authenticated; `source` is what the event says of itself.
            key, data = (event.sender.device, event.sender.service, event.source, event.id), event.data()
            row = (*key, data["quantity"], data["value"], data["unit"])
            readings.execute("INSERT OR REPLACE INTO reading VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        # The next call acknowledges the batch, and by then it has to be stored.
        readings.commit()

means = "SELECT device, quantity, unit, COUNT(*), AVG(value) FROM reading GROUP BY 1, 2, 3 ORDER BY 1, 2"
for device, quantity, unit, count, mean in readings.execute(means):
    print(f"{device}: {quantity} {mean:.1f} {unit}, mean of {count}")
readings.close()
