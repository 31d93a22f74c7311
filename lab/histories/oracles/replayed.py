"""Each event that a replay was ordered of goes to the participant once more."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eventplane.contract import Place
from eventplane.reasons import REPLAY
from eventplane.resource_names import dead_letter_queue
from lab.histories.cloud import BUCKET
from lab.histories.oracles.finding import OracleFinding
from operations.names import event_in_tap
from parts.replay.order import order_text

if TYPE_CHECKING:
    from lab.histories.history import History


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at the files of each order that was not given up."""
    cloud = history.cloud
    given_up = {each.body for each in cloud.queue(dead_letter_queue(REPLAY)).messages}
    replayed = {
        (each["destination"], each["source"], each["id"])
        for each in history.ledger
        if each["reason"] == REPLAY
    }
    for order in history.operator.ordered:
        if order_text(order) in given_up:
            continue
        body = cloud.s3.buckets[BUCKET][order.file].body
        for row in map(json.loads, gzip.decompress(body).splitlines()):
            if not order.from_ms <= row["accepted_at_ms"] < order.to_ms:
                continue
            event = event_in_tap(row)
            for route in history.contract.routes_at(Place.CLOUD):
                is_meant = route.destination == f"{order.participant}.inbox"
                key = route.destination, event.source, event.id
                if is_meant and route.filter.matches(event.attributes) and key not in replayed:
                    yield OracleFinding("ordered and not replayed", f"{key}")
