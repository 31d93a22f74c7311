"""Each subscription is there once, as last asked for, and once it is in force events are routed by it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final

from eventplane.contract.subscription import IN_FORCE_S
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.ledger import Basis
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import REDRIVE, REPLAY
from eventplane_aws.tables import DynamoDbTables
from lab.histories.operators import PUBLISHED, ROLLED_OUT
from lab.histories.oracles.finding import OracleFinding
from lab.histories.subscriber import POSTED, RouteChange
from parts.simulate.timeline import START_S

if TYPE_CHECKING:
    from lab.histories.history import History
    from lab.histories.subscriber import Administrator

DECIDES_S: Final = 60.0
"""How long a router may take from the look at the subscriptions to its decision: one invocation, seconds."""


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at the table of subscriptions, and at the decisions about each event of a home."""
    tables = DynamoDbTables(history.cloud.dynamodb, history.random.randbytes)
    decisions: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in history.ledger:
        # A replay or a redrive decides about the routes of one participant only.
        is_again = each["reason"] in (REPLAY, REDRIVE)
        is_routed = not is_again and each["entered_by"] == history.contract.device.outbox.address
        if is_routed and each["basis"] == Basis.IN_FORCE:
            decisions[each["source"], each["id"]].append(each)
    operator = history.operator
    named = {
        (event.source, event.id): event.attributes.get(FOLLOWED_CONTRACT)
        for _, events in history.frames
        for event in events
    }
    for key, records in decisions.items():
        yield from routed(PUBLISHED, operator.published, key, records)
        follows = operator.candidate is not None and named.get(key) == operator.candidate
        yield from routed(ROLLED_OUT, operator.rolled_out if follows else operator.taken, key, records)
    for who, administrator in history.administrators.items():
        found = {one.name: _prefix(one.filter) for one in SubscriptionTable(tables, "subscriptions").of(who)}
        yield from _stored(administrator, found)
        for name in sorted({change.name for change in administrator.changes}):
            changes = [change for change in administrator.changes if change.name == name]
            for key, records in decisions.items():
                yield from routed(f"{who}-subscribes-{name}", changes, key, records)


def _prefix(filter: str) -> str:
    return str(json.loads(filter)["prefix"]["type"])


def _stored(administrator: Administrator, found: dict[str, str]) -> Iterator[OracleFinding]:
    wanted = {each.name: each.prefix for each in administrator.changes}
    for name, prefix in wanted.items():
        if found.get(name) != prefix:
            yield OracleFinding(
                "not subscribed as last asked for", f"{administrator.participant} {name}: {prefix}"
            )
    others = [prefix for name, prefix in found.items() if name not in wanted]
    for prefix, is_answered in administrator.posted.items():
        if others.count(prefix) > 1:
            yield OracleFinding("subscribed twice", f"{administrator.participant}: {prefix}")
        elif is_answered and prefix not in others:
            yield OracleFinding("answered and not subscribed", f"{administrator.participant}: {prefix}")
    if strange := [each for each in others if not each.startswith(POSTED)]:
        yield OracleFinding("subscribed by nobody", f"{administrator.participant}: {strange}")


def routed(
    route: str, changes: list[RouteChange], key: tuple[str, str], records: list[dict[str, Any]]
) -> Iterator[OracleFinding]:
    """Look at all decisions `records` about an event, named by `key`, for what `changes` say of a route."""
    taken = [each for each in records if each["route"] == route]
    # A delivery that failed is decided again with its event, and not due any more if its route has gone.
    last = _prefix_at(changes, max(each["decided_at_ms"] for each in records) / 1_000 - START_S)
    type = records[0]["type"]
    if not taken and last and type.startswith(last):
        yield OracleFinding("not routed as subscribed or published", f"{key} by {route}")
    for each in taken:
        prefix = _prefix_at(changes, each["decided_at_ms"] / 1_000 - START_S)
        if prefix is not None and not (prefix and type.startswith(prefix)):
            yield OracleFinding("routed as nobody subscribed or published", f"{key} by {route}")


def _prefix_at(changes: list[RouteChange], at_s: float) -> str | None:
    """The prefix that is certainly in force, '' for none; None while it changes."""
    prefix = ""
    for each in changes:
        if each.asked_s > at_s + DECIDES_S:
            break
        if (inf if each.done_s is None else each.done_s) + IN_FORCE_S > at_s:
            return None
        prefix = each.prefix or ""
    return prefix
