"""The plane reports each connection that stands and each that is gone, once and in time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from eventplane.envelope import parse_event
from eventplane.names import CONNECTED
from eventplane.presence import PRESENCE
from eventplane.records import Records
from eventplane_aws.tables import DynamoDbTables
from lab.histories.oracles.finding import OracleFinding
from lab.histories.oracles.late import LATE_S
from lab.histories.wiring import SETTLES_S
from parts.simulate.timeline import START_S

if TYPE_CHECKING:
    from lab.histories.history import History


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at what is known of each home, at the reports about it, and at those of the drill."""
    tables = DynamoDbTables(history.cloud.dynamodb, history.random.randbytes)
    reports = _reports(history)
    for state in Records(tables, "presence", PRESENCE).all():
        changes = [
            (at_s, what)
            for at_s, who, what in history.cloud.iot.connections
            if who == state.device and what != "subscribed"
        ]
        _, line = changes[-1]
        reported = reports.get(state.device, [])
        said = [kind for _, kind in reported]
        if state.due_ms is not None and state.due_ms < history.engine.now_ms - 1_000 * LATE_S:
            yield OracleFinding("a deadline of presence is missed", state.device)
        if state.reported != line or state.unsent:
            yield OracleFinding("presence is wrong", f"{state.device} is {line}, reported: {state.reported}")
        elif not said or f".{line}." not in said[-1] or any(a == b for a, b in pairwise(said)):
            yield OracleFinding("a report of presence is missing or wrong", f"{state.device}: {said}")
        changes.append((history.engine.now_s, ""))
        yield from _late(state.device, history.drilled_s, LATE_S + history.trouble_s, changes, reported)


def _late(
    device: str,
    drilled_s: float,
    late_s: float,
    changes: list[tuple[float, str]],
    reported: list[tuple[float, str]],
) -> Iterator[OracleFinding]:
    """Look at each change of a drill that stood for longer than it takes to be reported.

    What ended sooner may have been reported: it is gone before the recorder reads that.
    """
    known = CONNECTED
    for (at_s, what), (until_s, _) in pairwise(changes):
        kind = f"org.eventplane.device.{what}.v1"
        if at_s < drilled_s or kind == known:
            continue
        by_s = at_s + SETTLES_S[kind] + late_s
        is_reported = any(at_s < sent_s <= by_s and said == kind for sent_s, said in reported)
        if is_reported or until_s >= by_s:
            known = kind
        if not is_reported and until_s >= by_s:
            yield OracleFinding("a report of presence is late", f"{device}: {what} at {at_s:.1f}")


def _reports(history: History) -> dict[str, list[tuple[float, str]]]:
    """Return when each report of a home's line came first, and its type, in the order of what they say."""
    found: dict[str, tuple[str, str, float, str]] = {}
    for message in history.cloud.sqs.queue(history.cloud.inboxes["operations.inbox"]).messages:
        event = parse_event(message.body)
        if event.type in SETTLES_S:
            sent_s = message.sent_ms / 1_000 - START_S
            found.setdefault(event.id, (event.data()["since"], event.data()["device"], sent_s, event.type))
    reports: dict[str, list[tuple[float, str]]] = {}
    for _, device, sent_s, kind in sorted(found.values()):
        reports.setdefault(device, []).append((sent_s, kind))
    return reports
