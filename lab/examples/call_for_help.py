"""Answers each alarm exactly once, also when it is killed at any moment: `python call_for_help.py`.

Its environment says who it is and where the plane is (docs/reference/client.md); CALLS is its database.
"""

import os
import sqlite3

from eventplane.envelope import Envelope
from eventplane_client import connect

calls = sqlite3.connect(os.environ["CALLS"], isolation_level=None)
calls.execute("CREATE TABLE IF NOT EXISTS call (sender TEXT, source TEXT, id TEXT, type TEXT)")


def was_not_answered(alarm: Envelope) -> bool:
    """Asked of an alarm that was in hand when the service was killed: our own database knows."""
    query = "SELECT COUNT(*) FROM call WHERE (sender, source, id) = (?, ?, ?)"
    return bool(calls.execute(query, alarm.key).fetchone() == (0,))


def answer(alarm: Envelope) -> None:
    """One commit is all the work: it is there or it is not."""
    calls.execute("INSERT INTO call VALUES (?, ?, ?, ?)", (*alarm.key, alarm.type))


with connect() as client, client.subscribe(on_doubt=was_not_answered) as inbox:
    for event in inbox:
        if event.type.startswith("org.eventplane.alarm."):
            answer(event)
