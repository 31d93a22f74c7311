"""The ledger's rows as what they say of an event."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.contract import Channel, Place, SchemaCheck
from eventplane.delivery import DEAD_LETTER_TYPE, PAYLOAD_INVALID, UNKNOWN_DATASCHEMA, Outcome
from eventplane.envelope import RESERVED_ATTRIBUTE, TOO_LARGE
from eventplane.hops import HOP_LIMIT
from eventplane.ledger import Basis
from eventplane.sender import PLANE
from eventplane.sending import SENDER_NOT_ALLOWED
from glue_jobs.delivery_audit.clocks import CLOCK_SLACK_MS, LONGEST_DECISION_MS
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, ContractHistory, Usage
from glue_jobs.delivery_audit.guarantees import is_best_effort
from glue_jobs.delivery_audit.quarantine import any_missing, fault
from glue_jobs.delivery_audit.route_filters import EVERY_ROUTE, NO_ROUTE
from glue_jobs.delivery_audit.schema import CORRUPT, LEDGER_ROW
from glue_jobs.delivery_audit.sending import may_send
from glue_jobs.delivery_audit.verdicts import REPLAY
from glue_jobs.delivery_audit.window import Window, day_of, is_time
from glue_jobs.delivery_audit.witness import item_name, name_of, witness

_MEMBERS = tuple(name for name in LEDGER_ROW.names if name != CORRUPT)


def ledger_witness(raw: DataFrame, history: ContractHistory, window: Window) -> DataFrame:
    """The ledger's rows of the window as `witness` columns. A row belongs to the day of entry.

    A `decision` begins with when it was made; its `row` is a digest of all members; `is_refusable` says
    whether the contract allows the refusal that it may speak of, `is_best_effort` whether it lets the router
    drop the delivery. The delivery of a dead letter that a router wrote `vouches` for its event.
    """
    outcome = sf.col("outcome")
    faults = fault(
        {
            "missing_member": any_missing(
                "decided_at_ms", "entered_at_ms", "entered_by", "contract_version", "source", "id", "outcome"
            ),
            "impossible_time": ~(is_time(sf.col("decided_at_ms")) & is_time(sf.col("entered_at_ms"))),
            "unknown_outcome": ~outcome.isin([str(each) for each in Outcome]),
            "delivered_nowhere": (outcome == Outcome.DELIVERED) & any_missing("route", "destination"),
        }
    )
    good = sf.col("fault").isNull()
    entered_on = sf.when(good, day_of(sf.col("entered_at_ms"))).otherwise(sf.col("date"))
    rows = raw.withColumn("fault", faults).where(window.holds(entered_on))
    is_item = sf.col("id") == ""
    decision = sf.struct(
        "decided_at_ms",
        "entered_at_ms",
        _route_taken(history).alias("route"),
        "destination",
        "outcome",
        "reason",
        _worth_ms(history).alias("worth_ms"),
        "priority",
        "contract_version",
        "file",
        sf.xxhash64(*_MEMBERS).alias("row"),
        "type",
        "client_id",
        sf.coalesce("basis", sf.lit(str(Basis.IN_FORCE))).alias("basis"),
        _by_queue_clock_ms().alias("by_queue_clock_ms"),
        _clock_skew_ms().alias("clock_skew_ms"),
        _is_stale(history).alias("is_stale"),
        _is_forbidden(history).alias("is_forbidden"),
        sf.col("entered_by").isin(history.uplinks).alias("from_device"),
        _is_refusable(history).alias("is_refusable"),
        _is_best_effort(history, asked=False).alias("is_best_effort"),
        _is_best_effort(history, asked=True).alias("is_best_effort_if_asked"),
        sf.when(is_item, sf.struct("message_id", "attempt")).alias("item"),
    )
    said = witness(
        rows,
        archive="ledger",
        members=_MEMBERS,
        within=sf.lit(True),
        name=sf.when(is_item, item_name("client_id", "reason", "entered_at_ms")).otherwise(
            name_of(sf.col("sender"), sf.col("source"), sf.col("id"))
        ),
        sender=sf.when(good & ~is_item, sf.col("sender")),
        source=sf.when(good & ~is_item, sf.col("source")),
        id=sf.when(good & ~is_item, sf.col("id")),
        decision=sf.when(good, decision),
        letter=good & _is_letter_of_the_plane() & (outcome == Outcome.DELIVERED),
    )
    # One row more for a letter: under the name of the event that it is about.
    letter = sf.struct(
        sf.col("id").alias("name"),
        *(
            sf.lit(None).cast(said.schema[each].dataType).alias(each)
            for each in ("sender", "source", "id", "decision", "bad")
        ),
        sf.lit(True).alias("vouches"),
    )
    itself = sf.struct(
        "name", "sender", "source", "id", "decision", "bad", sf.lit(None).cast("boolean").alias("vouches")
    )
    both = sf.when(sf.col("letter"), sf.array(itself, letter)).otherwise(sf.array(itself))
    return said.select("within", sf.inline(both))


def _is_letter_of_the_plane() -> Column:
    # Devices and services can write a letter about any event, and so hide a loss. What a router refused, a
    # router wrote the letter of.
    return (sf.col("type") == DEAD_LETTER_TYPE) & sf.col("sender").eqNullSafe(PLANE)


def _is_stale(history: ContractHistory) -> Column:
    return history.is_stale(sf.col("contract_version"), sf.col("decided_at_ms")) & _is_by_contract_in_force()


def _is_by_contract_in_force() -> Column:
    # A replay decides by the contract of then, and a router that has just started by what it has.
    is_early = sf.col("basis").eqNullSafe(str(Basis.BUNDLED))
    return ~is_early & ~sf.col("reason").eqNullSafe(REPLAY)


def _is_unlawful(history: ContractHistory) -> Column:
    """Whether the row's contract does not let the row's sender send the event."""
    row = (sf.col(each) for each in ("contract_version", "sender", "type", "source"))
    return sf.coalesce(~may_send(history, *row), sf.lit(False))


def _is_forbidden(history: ContractHistory) -> Column:
    """Whether the row is a delivery that the contract forbids: by its sender, or down from a device."""
    return (sf.col("outcome") == Outcome.DELIVERED) & (_is_unlawful(history) | _is_device_to_devices(history))


def _is_device_to_devices(history: ContractHistory) -> Column:
    """Whether the row's route leads from a device down to devices, which no contract can allow."""
    down = sorted({each.device.inbox.address for each in history.contracts})
    return sf.coalesce(sf.col("sender").contains("/") & sf.col("destination").isin(*down), sf.lit(False))


def _by_queue_clock_ms() -> Column:
    """When the row was decided at the latest, by the queue's clock; null where only the router's is known.

    The queue tells of the first receive alone, so a later one is not bounded by it.
    """
    latest = sf.col("received_at_ms") + sf.lit(LONGEST_DECISION_MS)
    is_replay = sf.col("reason").eqNullSafe(REPLAY)
    return sf.when((sf.col("attempt") == 1) & ~is_replay, latest)


def _clock_skew_ms() -> Column:
    """How far the router's clock is at least ahead of IoT Core's and the queue's, milliseconds.

    Negative where it is behind, null where they agree as far as can be told.
    """
    ahead_ms = sf.col("decided_at_ms") - _by_queue_clock_ms()
    behind_ms = sf.greatest("entered_at_ms", "received_at_ms") - sf.col("decided_at_ms")
    return sf.when(ahead_ms > 0, ahead_ms).when(behind_ms > CLOCK_SLACK_MS, -behind_ms)


def uses(raw: DataFrame) -> list[Usage]:
    """Return by which contract versions routers decided, and in which intervals of time.

    Few members are read, so a row that is bad elsewhere may be among them.
    """
    readable = sf.col("contract_version").isNotNull() & is_time(sf.col("decided_at_ms"))
    found = raw.where(readable).groupBy(
        sf.col("contract_version").alias("version"),
        sf.floor(sf.col("decided_at_ms") / INTERVAL_MS).alias("interval"),
        _is_by_contract_in_force().alias("is_in_force"),
    )
    rows = found.agg(sf.min("decided_at_ms").alias("first_ms")).collect()
    return [Usage(**row.asDict()) for row in rows]


def _route_taken(history: ContractHistory) -> Column:
    """The row's route; one of another name where it led elsewhere than the row's own contract says.

    Such a delivery is one on a route that no contract gives, and the route it claims is still owed. Without a
    route it is `NO_ROUTE` or `EVERY_ROUTE`.
    """
    leads_to = {
        f"{contract.version} {route.name}": route.destination
        for contract in history.contracts
        for route in contract.routes
    }
    declared = _table(leads_to)
    elsewhere = (sf.col("outcome") == Outcome.DELIVERED) & (sf.col("destination") != declared)
    none = sf.when(sf.col("outcome") == Outcome.UNROUTED, sf.lit(NO_ROUTE)).otherwise(sf.lit(EVERY_ROUTE))
    return sf.coalesce(
        sf.when(elsewhere, sf.concat_ws(" -> ", "route", "destination")).otherwise(sf.col("route")), none
    )


def _worth_ms(history: ContractHistory) -> Column:
    """How long the row's contract lets an event on the row's route be worth delivering, null for ever."""
    bounds = {
        f"{contract.version} {route.name}": 1_000 * bound
        for contract in history.contracts
        for route in contract.routes_at(Place.CLOUD)
        if (bound := _strictest(contract.device.outbox, contract.channel(route.destination)))
    }
    return _table(bounds).cast("long") if bounds else sf.lit(None).cast("long")


def _is_best_effort(history: ContractHistory, *, asked: bool) -> Column:
    row = (sf.col(each) for each in ("contract_version", "route", "type"))
    return is_best_effort(history, *row, asked=asked)


def _table(by_version_and_route: dict[str, str] | dict[str, int]) -> Column:
    pairs = sf.create_map(*(sf.lit(each) for pair in by_version_and_route.items() for each in pair))
    return pairs[sf.concat_ws(" ", "contract_version", "route")]


def _strictest(*channels: Channel) -> int | None:
    return min((each.expiry_s for each in channels if each.expiry_s is not None), default=None)


def _is_refusable(history: ContractHistory) -> Column:
    """Whether the row's contract allows the refusal of the event that the row may speak of.

    Then it has the payloads of its type checked, or the event went round in circles, or its sender may not
    send it, or makes it too large by its name, or the event names a sender itself: nothing else allows it.
    """
    type_ = sf.col("type")
    row = sf.col("contract_version"), type_
    invalid = history.has_check(*row, SchemaCheck.KNOWN, SchemaCheck.STRICT)
    unknown = history.has_check(*row, SchemaCheck.STRICT)
    reason = sf.col("reason")
    # Of these the tap knows whether it is so: `verdicts` asks it.
    by_event = reason.isin(HOP_LIMIT, RESERVED_ATTRIBUTE, TOO_LARGE)
    # What a dead letter of a service is about is not in the ledger.
    not_allowed = (reason == SENDER_NOT_ALLOWED) & (_is_unlawful(history) | (type_ == DEAD_LETTER_TYPE))
    invalid_payload = ((reason == PAYLOAD_INVALID) & invalid) | ((reason == UNKNOWN_DATASCHEMA) & unknown)
    allowed = invalid_payload | by_event | not_allowed
    on_route = ~reason.eqNullSafe(SENDER_NOT_ALLOWED) | _is_device_to_devices(history)
    return sf.coalesce(sf.when(sf.col("route").isNotNull(), on_route).otherwise(allowed), sf.lit(False))
