"""The tap's rows with the attributes of their events read, as what they say of an event."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.contract import DeliveryGuarantee
from eventplane.device_reports import DISCARDED, MANIFEST, STARTED
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.hops import ROUTER_HOPS
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.numbering import EPOCH, SEQUENCE
from eventplane.sender import PLANE, PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE
from glue_jobs.delivery_audit.attributes import Attributes, with_attributes
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.quarantine import any_missing, fault
from glue_jobs.delivery_audit.route_filters import cloud_routes
from glue_jobs.delivery_audit.window import Window, day_of, is_time
from glue_jobs.delivery_audit.witness import item_name, name_of, witness

READ_ATTRIBUTES = (
    "source",
    "id",
    "type",
    "recordedtime",
    "expirytime",
    "deadletterreason",
    EPOCH,
    SEQUENCE,
    "partitionkey",
    "severitynumber",
    ROUTER_HOPS,
    DELIVERY_GUARANTEE,
    SENDER_SERVICE,
    SENDER_DEVICE,
)
"""What the audit itself wants to know of an event, besides what the filters look at."""

REPORTS = (STARTED, DISCARDED, MANIFEST)

_MEMBERS = (
    "accepted_at_ms",
    "client_id",
    "topic",
    "message_id",
    "index",
    "event",
    "original_base64",
    "refusal",
)


def tap_witness(raw: DataFrame, history: ContractHistory, window: Window) -> DataFrame:
    """The tap's rows as `witness` columns.

    A `copy` of an event begins with when it was accepted and its place, by which copies are told apart;
    `routes` are the names of the routes that it takes, a text for each contract of `history`; `sequence` is
    null where a simple client sends without the device's numbers; `report` is the text of a device's report;
    `partition` is within what a FIFO queue keeps order, null for the source. An `item` is what is no event.
    """
    routes = [route for contract in history.contracts for route in contract.routes]
    filters = [each for route in routes for each in (route.filter, route.interest) if each is not None]
    parsed, attributes = with_attributes(raw, filters, also=READ_ATTRIBUTES)
    texts = attributes.texts
    good, refused = sf.col("fault").isNull(), sf.col("refusal").isNotNull()
    rows = parsed.withColumn("fault", _fault(texts))
    within = window.holds(sf.when(good, day_of(sf.col("accepted_at_ms"))).otherwise(sf.col("date")))
    copy = sf.struct(
        "accepted_at_ms",
        "message_id",
        "index",
        "archived_at_ms",
        "file",
        "client_id",
        texts["type"].alias("type"),
        texts[EPOCH].alias("epoch"),
        _sequence(texts[SEQUENCE]).alias("sequence"),
        texts["partitionkey"].alias("partition"),
        texts["deadletterreason"].alias("dead_letter_reason"),
        _unix_ms(texts["recordedtime"]).alias("recorded_at_ms"),
        _expires_at_ms(texts["expirytime"]).alias("expires_at_ms"),
        texts[ROUTER_HOPS].cast("int").alias("hops"),
        texts[DELIVERY_GUARANTEE].eqNullSafe(DeliveryGuarantee.BEST_EFFORT).alias("asks_best_effort"),
        texts[SENDER_DEVICE].isNotNull().alias("names_sender"),
        (sf.octet_length("event") > MAX_SENT_EVENT_BYTES).alias("is_too_large"),
        sf.when(texts["type"].isin(*REPORTS), sf.col("event")).alias("report"),
        _routes(history, _as_routed(attributes)).alias("routes"),
    )
    sender = sender_in_frame(sf.col("client_id"), texts[SENDER_SERVICE])
    item = sf.struct(
        "index",
        sf.sha2("original_base64", 256).alias("digest"),
        "client_id",
        sf.col("refusal").alias("reason"),
        "accepted_at_ms",
        "file",
    )
    return witness(
        rows,
        archive="tap",
        members=_MEMBERS,
        within=within,
        name=sf.when(refused, item_name("client_id", "refusal", "accepted_at_ms")).otherwise(
            name_of(sender, texts["source"], texts["id"])
        ),
        sender=sf.when(good & ~refused, sender),
        source=texts["source"],
        id=texts["id"],
        copy=sf.when(good & ~refused, copy),
        item=sf.when(good & refused, item),
    )


def sender_in_frame(client_id: Column, service: Column) -> Column:
    """The sender of an event in the tap, as `eventplane.sender.sender_in_frame` has it."""
    from_device = sf.concat(client_id, sf.lit("/"), sf.coalesce(service, sf.lit("")))
    return sf.when(client_id == PLANE_CLIENT, sf.lit(PLANE)).otherwise(from_device)


def _fault(texts: Column) -> Column:
    event, refusal = sf.col("event"), sf.col("refusal")
    identity = texts["source"].isNull() | texts["id"].isNull() | texts["type"].isNull()
    return fault(
        {
            "missing_member": any_missing("accepted_at_ms", "client_id", "message_id", "index"),
            "impossible_time": ~is_time(sf.col("accepted_at_ms")),
            "neither_event_nor_refusal": event.isNull() == refusal.isNull(),
            # Without its bytes it would not be counted, and so never be missed.
            "refusal_without_bytes": refusal.isNotNull() & sf.col("original_base64").isNull(),
            "event_without_identity": event.isNotNull() & identity,
        }
    )


def _routes(history: ContractHistory, attributes: Attributes) -> Column:
    return sf.array(*(cloud_routes(each, attributes) for each in history.contracts))


def _as_routed(attributes: Attributes) -> Attributes:
    """The attributes as the router sees them: with the device, which is in the frame and not in the event."""
    is_plane = sf.col("client_id") == PLANE_CLIENT
    device = sf.when(~is_plane, sf.col("client_id"))
    service = sf.when(is_plane, sf.lit(PLANE)).otherwise(attributes.texts[SENDER_SERVICE])
    texts = attributes.texts.withField(SENDER_DEVICE, device).withField(SENDER_SERVICE, service)
    return replace(attributes, texts=texts)


def _sequence(digits: Column) -> Column:
    return sf.when(digits.rlike(r"^[0-9]{1,18}$"), digits.cast("long"))


def _expires_at_ms(timestamp: Column) -> Column:
    # What Spark cannot read though the router can (a leap second) counts as past: the router's word stands.
    return sf.when(timestamp.isNotNull(), sf.coalesce(_unix_ms(timestamp), sf.lit(0)))


def _unix_ms(timestamp: Column) -> Column:
    # RFC 3339 allows a small t and z; Spark reads capitals only.
    return sf.unix_millis(sf.try_to_timestamp(sf.upper(timestamp)))
