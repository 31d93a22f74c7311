"""The archive's rows as the judge, the screen and the devices want them, and event groups made of them.

Rows that name one `source` and `id` have one key of 128 bits, whoever sent them; so have all rows of refused
items with one client, reason and time of acceptance. The key makes rows of one group meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter, or_
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.archive_layout import ERASED
from eventplane.attributes import SEVERITY_NUMBERS, USUAL_FORMS
from eventplane.contract import Contract, DeliveryGuarantee
from eventplane.dead_letter import DEAD_LETTER_TYPE, LETTER_ID_DIGITS
from eventplane.device_reports import forwarder_source
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.hops import ROUTER_HOPS
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.names import (
    CANARY_CLIENTS,
    EPOCH,
    FOLLOWED_CONTRACT,
    PLANE,
    PLANE_CLIENT,
    SENDER_DEVICE,
    SENDER_SERVICE,
    SEQUENCE,
)
from eventplane.reasons import REPLAY, Outcome
from eventplane.values import MAX_TIME_MS, TIMESTAMP_FORM
from glue_jobs.common.archive import ascii_part
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, best_effort_names
from glue_jobs.delivery_audit.event import (
    CLOCK_SLACK_MS,
    IMPOSSIBLE_TIME,
    LONGEST_DECISION_MS,
    MAX_TEXT,
    MISSING_MEMBER,
    UNREADABLE,
)
from glue_jobs.delivery_audit.event_group import (
    HOUR_MS,
    BadRow,
    EventGroup,
    HandoverRow,
    LedgerRow,
    RefusedItem,
    TapRow,
)
from glue_jobs.delivery_audit.home import Due
from glue_jobs.delivery_audit.rules import DAY_MS, LAST_MS, LATE_DAYS, Window

_USUAL: Final = USUAL_FORMS["recordedtime"]
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_LEAST_TIME_MS: Final = -62_135_596_800_000
"""The beginning of the year 1, Unix milliseconds."""


def timestamp_ms(text: Column) -> Column:
    """Return the Unix milliseconds of `text` as `timestamp_ms` does, null where `is_timestamp` is false.

    Spark's own reader takes no leap second and no offset beyond 18 hours, and much that is no timestamp. The
    form that most have it reads alike, and sooner.
    """
    is_usual = text.rlike(rf"\A(?:{_USUAL})\z")
    return sf.when(is_usual, sf.unix_millis(sf.try_to_timestamp(text))).otherwise(_any_timestamp_ms(text))


def _any_timestamp_ms(text: Column) -> Column:

    def digits(position: int, length: int = 2) -> Column:
        return sf.substring(text, position, length).cast("long")

    # A day that there is not is null, and so is the sum.
    day_ms = sf.unix_millis(sf.try_to_timestamp(sf.concat(sf.left(text, sf.lit(10)), sf.lit("T00:00:00Z"))))
    fraction = sf.regexp_extract(text, r"\.(\d{1,3})", 1)
    offset = sf.regexp_extract(text, r"([+-]\d\d:\d\d)$", 1)
    minutes = sf.substring(offset, 2, 2).cast("long") * 60 + sf.substring(offset, 5, 2).cast("long")
    ahead = sf.when(offset == "", 0).otherwise(sf.when(offset.startswith("-"), -minutes).otherwise(minutes))
    second_ms = day_ms + (digits(12) * 60 + digits(15) - ahead) * _MINUTE_MS + digits(18) * 1_000
    # Second 60 of the last minute of a month is the first second of the next one.
    month_begins = sf.dayofmonth(sf.date_from_unix_date(sf.floor(second_ms / _DAY_MS).cast("int"))) == 1
    is_leap = (
        (second_ms % _DAY_MS == 0) & month_begins & second_ms.between(_LEAST_TIME_MS + 1, MAX_TIME_MS + 1)
    )
    is_valid = text.rlike(rf"\A(?:{TIMESTAMP_FORM})\z") & ((digits(18) < 60) | is_leap)
    return sf.when(is_valid, second_ms + sf.rpad(fraction, 3, "0").cast("long"))


def whole_number(text: Column, most: int) -> Column:
    """Return the number that `text` spells as `whole_number` does, from 0 to `most`, which has 18 digits."""
    number = sf.when(text.rlike(rf"\A[0-9]{{1,{len(str(most))}}}\z"), text.cast("long"))
    return sf.when(number <= most, number)


KEY: Final = ("key", "second_key")

_THING: Final = "*"

_NOTHING: Final = "0" * 16
"""A word of 64 bits in base 16."""

# Possessive: otherwise Java's stack grows with the text.
MEMBER: Final = r'"{}":("(?:[^"\\]++|\\.)++")'
"""The pattern of a text member, by its name, in a line of JSON that may be cut."""

BAD_MEMBERS: Final = tuple(
    each for each in TapRow._fields if each not in ("data_digest", "routes", "said_at_ms", "followed")
)
"""What the quarantine says of a row of the tap whose line could be read; a hash says nothing to people."""

MAX_SEQUENCE: Final = 10**18 - 1
"""Greatest number of an event that is read. Ours: a device's store never comes near, and 64 bits hold it."""

READ_ATTRIBUTES: Final = (
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


def tap_rows(
    rows: DataFrame,
    window: Window,
    names: Collection[str] = (),
    typed: Collection[str] = (),
    *,
    is_listed: bool = False,
    is_rolled_out: bool = False,
) -> DataFrame:
    """Return the tap's rows with the key and the members of `TapRow` but the routes.

    `bad` is a row that cannot be judged as `BadRow`; `refusal` is not null for what is no event, which is the
    `RefusedItem` `item` in the window. `report` is the text of a device's report. `routed_by` has
    the attributes `names`, on which routes depend, `typed` ones with their type (`expect.looked_at`). Only
    where deliveries are listed the rows say when an event was said, and only where contracts were rolled out
    which one it names.
    """
    texts, stated = sf.col("texts"), sf.col("digest")
    source, id, sequence = texts["source"], texts["id"], texts[SEQUENCE]
    event, refusal = sf.col("event_bytes"), sf.col("refusal")
    is_item = refusal.isNotNull()
    has_members, has_time = ~_any_null("message_id", "index"), _is_time("accepted_at_ms")
    fault = _first_of(
        {
            UNREADABLE: sf.col("line").isNotNull(),
            MISSING_MEMBER: sf.col("client_id").isNull() | (is_item & ~has_members),
            IMPOSSIBLE_TIME: is_item & ~has_time,
            "neither_event_nor_refusal": event.isNull() == refusal.isNull(),
            # Without its bytes it would not be counted, and so never be missed.
            "refusal_without_bytes": is_item & sf.col("original_base64").isNull(),
            "event_without_identity": ~is_item & _any_empty(source, id, texts["type"]),
        }
    )
    read = {
        "recordedtime": timestamp_ms(texts["recordedtime"]),
        "expirytime": timestamp_ms(texts["expirytime"]),
        ROUTER_HOPS: whole_number(texts[ROUTER_HOPS], 2**31 - 1),
        "severitynumber": severity(texts),
        DELIVERY_GUARANTEE: sf.when(texts[DELIVERY_GUARANTEE] == DeliveryGuarantee.BEST_EFFORT, sf.lit(True)),
        # The last: without its number an event is judged all the same.
        SEQUENCE: whole_number(sequence, MAX_SEQUENCE),
    }
    unread = {
        f"unreadable_{name}": texts[name].isNotNull() & sf.col(f"read_{name}").isNull() for name in read
    }
    item = sf.lit("item"), sf.col("client_id"), refusal, sf.col("accepted_at_ms")
    members = {
        "place": sf.col("index"),
        "service": texts[SENDER_SERVICE],
        "source": source,
        "id": id,
        "type": texts["type"],
        "epoch": texts[EPOCH],
        "sequence": sf.col(f"read_{SEQUENCE}"),
        "partition": texts["partitionkey"],
        "dead_letter_reason": texts["deadletterreason"],
        "recorded_at_ms": sf.col("read_recordedtime"),
        "said_at_ms": timestamp_ms(texts["time"]) if is_listed else sf.lit(None).cast("long"),
        # Of what an older archive writer wrote, the event's own time is all that there is.
        "expires_at_ms": sf.when(
            sf.col("read_expirytime").isNotNull(),
            sf.when(_is_time("expires_at_ms"), sf.col("expires_at_ms")).otherwise(sf.col("read_expirytime")),
        ),
        "hops": sf.col(f"read_{ROUTER_HOPS}"),
        "asks_best_effort": sf.col(f"read_{DELIVERY_GUARANTEE}").isNotNull(),
        "names_sender": texts[SENDER_DEVICE].isNotNull(),
        "is_too_large": event > MAX_SENT_EVENT_BYTES,
        "digest": sf.when(stated.rlike("^[0-9a-f]{16}$"), stated).otherwise(sf.col("event_digest")),
        "is_redacted": stated.isNotNull(),
        "unread": _first_of({IMPOSSIBLE_TIME: ~has_time, MISSING_MEMBER: ~has_members, **unread}),
        "within": _within("accepted_at_ms", window),
        "followed": texts[FOLLOWED_CONTRACT] if is_rolled_out else sf.lit(None).cast("string"),
        # Its device has sent it all the same: then it counts by when it was written.
        "accepted_at_ms": sf.when(has_time, sf.col("accepted_at_ms")).otherwise(_written_ms()),
    }
    of_tap = [name for name in TapRow._fields if name != "routes"]
    kept = [name for name in of_tap if name not in members]
    extra = ["date", "refusal", "original_base64", "report", "line"]
    is_refused = sf.col("fault").isNull() & is_item & sf.col("within")
    refused = {
        "place": sf.col("place"),
        "digest": sf.sha2("original_base64", 256),
        "client_id": sf.col("client_id"),
        "reason": refusal,
        "accepted_at_ms": sf.col("accepted_at_ms"),
        "file": sf.col("file"),
    }
    # With its event a row that cannot be judged would seem to be in the tap, where its number is not.
    is_alone = fault.isNotNull()
    keyed = _with_keys(rows, sf.when(refusal.isNotNull(), sf.xxhash64(*item)), source, id, is_alone)
    # As columns, so that each is worked out once.
    made = keyed.withColumns({f"read_{name}": value for name, value in read.items()}).select(
        *KEY,
        *kept,
        *(column.alias(name) for name, column in members.items()),
        *extra,
        fault.alias("fault"),
        _routed_by(names, typed).alias("routed_by"),
    )
    return made.select(
        *KEY,
        *of_tap,
        "refusal",
        "report",
        "routed_by",
        sf.when(is_refused, sf.struct(*(each.alias(name) for name, each in refused.items()))).alias("item"),
        _bad(TAP, sf.col("fault"), BAD_MEMBERS),
    )


def _routed_by(names: Collection[str], typed: Collection[str]) -> Column:
    """Return what routes depend on as JSON: the client, and attributes as texts, integers and Booleans."""
    # On the id of a client routes depend where a filter looks at it; else on whether it is the plane's own.
    is_client = sf.lit(SENDER_DEVICE in names) | (sf.col("client_id") == PLANE_CLIENT)
    client = sf.coalesce(sf.when(is_client, sf.col("client_id")), sf.lit("")).alias("client")
    held = {"texts": names, "integers": typed, "booleans": typed}
    kinds = (
        sf.struct(*(sf.col(kind)[name].alias(name) for name in sorted({"type", *those}))).alias(kind)
        for kind, those in held.items()
    )
    return sf.to_json(sf.struct(client, *kinds))


def severity(texts: Mapping[str, Column] | Column) -> Column:
    """Return the `severitynumber` as the core accepts it, else null."""
    number = whole_number(texts["severitynumber"], SEVERITY_NUMBERS[-1])
    return sf.when(number >= SEVERITY_NUMBERS[0], number)


def ledger_rows(rows: DataFrame, window: Window) -> DataFrame:
    """Return the ledger's rows with the key, the members of `LedgerRow`, and `bad` as in `tap_rows`."""
    item = sf.lit("item"), sf.col("client_id"), sf.col("reason"), sf.col("entered_at_ms")
    is_item = sf.when(sf.col("id") == "", sf.xxhash64(*item))
    found = rows.withColumn("within", _within("entered_at_ms", window))
    keyed = _with_keys(found, is_item, sf.col("source"), sf.col("id"))
    return keyed.select(*KEY, *LedgerRow._fields, _bad(LEDGER, _unreadable()))


def handover_rows(rows: DataFrame, window: Window) -> DataFrame:
    """Return the handovers of events with the key, the members of `HandoverRow`, and `bad`."""
    found = rows.where(~sf.col("id").eqNullSafe("")).withColumn("within", _in_folder(window))
    keyed = _with_keys(found, None, sf.col("source"), sf.col("id"))
    return keyed.select(*KEY, *HandoverRow._fields, _bad(HANDOVERS, _unreadable()))


def summary(ledger: DataFrame) -> DataFrame:
    """Return few rows, like the ledger's of the window, that name every contract, time, channel and hour."""
    is_record = sf.col("within") & sf.col("bad").isNull()
    is_record &= _is_time("decided_at_ms") & _is_time("entered_at_ms")
    groups = {
        "entered_at_ms": sf.floor(sf.col("entered_at_ms") / HOUR_MS) * HOUR_MS,
        "file": sf.left("file", sf.length("file") - sf.length(sf.substring_index("file", "/", -1))),
        "decided_in": sf.floor(sf.col("decided_at_ms") / INTERVAL_MS),
        "within": sf.lit(True),
        # So that its clock is wrong in this row as well.
        "received_at_ms": sf.when(is_by_wrong_clock(), sf.lit(LAST_MS)),
    }
    same = "entered_by", "contract_version", "destination", "outcome", "reason", "basis"
    keys: list[Column | str] = [*same, *(column.alias(name) for name, column in groups.items())]
    found = ledger.where(is_record).groupBy(*keys).agg(sf.min("decided_at_ms").alias("decided_at_ms"))
    kept = {*same, *groups, "decided_at_ms"}
    return found.select(*(name if name in kept else sf.lit(None).alias(name) for name in LedgerRow._fields))


def is_by_wrong_clock() -> Column:
    """Return whether a row of the ledger was decided by a wrong clock, as `event.decided_between` has it."""
    decided, entered = sf.col("decided_at_ms"), sf.col("entered_at_ms")
    # Null where the queue does not tell it, as `greatest` leaves a null out.
    is_bounded = (sf.col("attempt") == 1) & ~sf.col("reason").eqNullSafe(REPLAY)
    latest = sf.when(is_bounded, sf.col("received_at_ms") + LONGEST_DECISION_MS)
    earliest = sf.greatest(entered, "received_at_ms")
    is_ahead = latest.isNotNull() & (decided > sf.greatest(latest, entered))
    return sf.coalesce(is_ahead | (decided < earliest - CLOCK_SLACK_MS), sf.lit(False))


def dead_letters() -> Column:
    """Return the ids of the dead letters of the plane's own that somebody received, of the ledger's rows."""
    is_own = (sf.col("type") == DEAD_LETTER_TYPE) & (sf.col("sender") == PLANE)
    return sf.collect_set(sf.when(is_own & (sf.col("outcome") == Outcome.DELIVERED), sf.col("id")))


def letters_of_readers() -> Column:
    """Return the ledger's rows of dead letters that a service in the cloud wrote and somebody received."""
    is_letter = (sf.col("type") == DEAD_LETTER_TYPE) & (sf.col("outcome") == Outcome.DELIVERED)
    is_readers = (sf.col("sender") != PLANE) & ~sf.col("sender").contains("/")
    return sf.collect_set(sf.when(is_letter & is_readers, sf.struct(*LedgerRow._fields)))


def nameless_hours(archive: str) -> Column:
    """Return the folders of hours with rows of which the event is unknown, as `plain_rows.nameless`."""
    is_nameless = sf.col("bad").isNotNull()
    if archive != TAP:
        is_nameless = reduce(or_, (sf.coalesce(name, f"bad.{name}").isNull() for name in ("source", "id")))
    return sf.collect_set(sf.when(is_nameless, sf.substring_index("file", "/", 3)))


def letter_ids() -> Column:
    """Return the id of the dead letter about the event of a row of the ledger, as `letter_id` makes it."""
    names = (sf.coalesce(sf.col(each), sf.lit("")) for each in ("sender", "source", "id"))
    return sf.left(sf.sha2(sf.concat_ws("\n", *names).cast("binary"), 256), sf.lit(LETTER_ID_DIGITS))


def is_own_report() -> Column:
    """Return whether a row's source is the one under which the forwarder of its client reports."""
    before, _, after = forwarder_source(_THING).partition(_THING)
    return sf.col("source").eqNullSafe(sf.concat(sf.lit(before), "client_id", sf.lit(after)))


def device_hours(tap: DataFrame, contracts: Sequence[Contract]) -> DataFrame:
    """Return a row for each client, epoch and hour of acceptance, in the window and beside it: `HourRow`.

    What no device sent is left out. `is_vouched` is whether a report of the device itself came with it, or
    an erasure took that away.
    """
    sent = tap.where(~sf.col("client_id").isin(PLANE_CLIENT, *CANARY_CLIENTS))
    is_numbered = sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull()
    service = sf.coalesce("service", sf.lit(""))
    # As `eventplane.device_reports.key_digest`, of which 64 bits fit into a column.
    key = sf.sha2(sf.concat_ws("\n", service, "source", "id"), 256)
    texts = ascii_part(key, 17, 16), sf.coalesce("digest", sf.lit(_NOTHING))
    digests = [
        sf.conv(each, 16, -10).cast("bigint").alias(name)
        for name, each in zip(("by_key", "by_text"), texts, strict=True)
    ]
    number, other_key = sf.lpad(sf.hex("sequence"), 16, "0"), sf.concat(texts[0], sf.lit(2 * _NOTHING))
    other = sf.col("within") & ~is_numbered
    # One of the two is there: the other cannot be read.
    is_unread = sf.col("epoch").isNotNull() != sf.col("sequence").isNotNull()
    best_effort = _is_best_effort(contracts)
    travel = sf.when(sf.col("within"), sf.col("accepted_at_ms") - sf.col("recorded_at_ms"))
    quickest = sf.when(travel.isNotNull(), sf.struct(travel.alias("travel_ms"), "accepted_at_ms", "file"))
    is_report = sf.col("report").isNotNull()
    is_erased = sf.col("client_id").startswith(ERASED)
    is_due = is_numbered & (sf.col("due_at_home") != "") & ~best_effort
    report = ("accepted_at_ms", "file", "type", "source", "id", "epoch", "sequence", "report")
    return (
        sent.withColumn("is_numbered", is_numbered)
        .groupBy(
            "client_id",
            sf.when(is_numbered, sf.col("epoch")).alias("epoch"),
            sf.floor(sf.col("accepted_at_ms") / HOUR_MS).alias("hour"),
            "within",
        )
        .agg(
            _packed(sf.collect_list(sf.when(is_numbered, sf.concat(number, *texts)))).alias("events"),
            _packed(sf.collect_set(sf.when(other & ~best_effort, other_key))).alias("others"),
            sf.count_if(other & best_effort).alias("best_effort"),
            sf.collect_set(sf.when(is_unread, sf.struct("epoch", *digests))).alias("unread"),
            sf.min(sf.struct("accepted_at_ms", "file")).alias("first"),
            sf.min(quickest).alias("quickest"),
            sf.count(travel).alias("samples"),
            sf.collect_list(sf.when(is_report, sf.struct(*report))).alias("reports"),
            sf.collect_list(sf.when(is_due, sf.struct(*Due._fields[1:-1]))).alias("due"),
            sf.max("accepted_at_ms").alias("last_ms"),
            sf.coalesce(sf.max(is_erased | (is_report & is_own_report())), sf.lit(False)).alias("is_vouched"),
        )
    )


def _packed(events: Column) -> Column:
    """Return events, each with 16 digits of base 16 a word, as `number_ranges.pack_events` packs them."""
    return sf.unhex(sf.concat_ws("", sf.array_sort(events)))


def _is_best_effort(contracts: Sequence[Contract]) -> Column:
    """Return whether a device need not have stored the event, and so has not numbered it."""
    is_any, services, types = best_effort_names(contracts)
    if is_any:
        return sf.lit(True)
    by_contract = sf.col("service").isin(*services) | sf.col("type").isin(*types)
    return sf.coalesce(sf.col("asks_best_effort") | by_contract, sf.lit(False))


def is_event() -> Column:
    """Return whether a row of `tap_rows` is an event that can be judged."""
    return sf.col("bad").isNull() & sf.col("refusal").isNull()


def grouped(tap: DataFrame, ledger: DataFrame, handovers: DataFrame) -> DataFrame:
    """Return the rows of all tables with the columns `GROUPED`, which `event_groups` takes."""
    of_tap = sf.when(is_event(), sf.struct(*TapRow._fields)).alias("tap")
    tables = [tap.select(*KEY, of_tap, "item", "bad")]
    for name, table in (("ledger", ledger), ("handover", handovers)):
        row = sf.when(sf.col("bad").isNull(), sf.struct(*STRUCTS[name]._fields)).alias(name)
        tables.append(table.select(*KEY, row, "bad"))
    union = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), tables)
    return union.select(*GROUPED)


STRUCTS: Final[dict[str, Any]] = {
    "tap": TapRow,
    "ledger": LedgerRow,
    "handover": HandoverRow,
    "item": RefusedItem,
    "bad": BadRow,
}

MAX_ROWS: Final = 10_000
"""Most rows of a kind of which an event group is judged. Ours: ten full batches of refused items."""

GROUPED: Final = (*KEY, *STRUCTS)
"""The columns of the rows of `event_groups`: the key, and one of five structs."""


def event_groups(
    rows: Iterable[Any],
    dead_letters: Collection[str],
    given_up: Mapping[str, Sequence[LedgerRow]] = MappingProxyType({}),
) -> Iterator[tuple[tuple[int, int], EventGroup]]:
    """Make the event groups of rows with the columns `GROUPED`, which are sorted by the key.

    Of each kind of row a group has `MAX_ROWS` at most, however often somebody sent one event.
    """
    for key, members in groupby(rows, itemgetter(0, 1)):
        found: dict[str, list[Any]] = {name: [] for name in STRUCTS}
        beyond = 0
        for row in members:
            for (name, kind), struct in zip(STRUCTS.items(), row[2:], strict=True):
                if struct is not None and len(found[name]) < MAX_ROWS:
                    # `grouped` names its members in this order; by name each would take thirty times as long.
                    found[name].append(struct if struct.__class__ is kind else kind._make(struct))
                elif struct is not None:
                    beyond += 1
        tap, ledger, handovers, items, bad = found.values()
        yield key, EventGroup(tap, ledger, handovers, items, bad, dead_letters, beyond, given_up)


def _bad(archive: str, reason: Column, members: Iterable[str] = ()) -> Column:
    """A row that has a `reason` as `BadRow`: with its line, or with its `members` written again."""
    line = sf.col("line")
    text = sf.coalesce(line, sf.to_json(sf.struct(*members))) if members else line
    source, id = (sf.coalesce(sf.col(name), _member(line, name)) for name in ("source", "id"))
    sender = _member(line, "sender") if archive == TAP else sf.coalesce("sender", _member(line, "sender"))
    row = sf.struct(
        sf.lit(archive).alias("archive"),
        "date",
        "file",
        reason.alias("reason"),
        sf.left(text, sf.lit(MAX_TEXT)).alias("text"),
        sender.alias("sender"),
        source.alias("source"),
        id.alias("id"),
    )
    return sf.when(reason.isNotNull(), row).alias("bad")


def _unreadable() -> Column:
    return sf.when(sf.col("line").isNotNull(), sf.lit(UNREADABLE))


def _member(line: Column, name: str) -> Column:
    """A text member of a line of JSON that may be cut; null where it cannot be read."""
    found = sf.regexp_extract(line, MEMBER.replace("{}", name), 1)
    return sf.get_json_object(sf.concat(sf.lit('{"text":'), found, sf.lit("}")), "$.text")


def _with_keys(
    rows: DataFrame, item: Column | None, source: Column, id: Column, is_alone: Column | None = None
) -> DataFrame:
    """Rows with the two halves of the key.

    A row that names no event, or `is_alone`, has a key of its own; an `item` has one that is not null.
    """
    line = sf.col("line")
    source, id = sf.coalesce(source, _member(line, "source")), sf.coalesce(id, _member(line, "id"))
    has_own_key = source.isNull() | id.isNull() | (sf.lit(False) if is_alone is None else is_alone)
    halves = sf.xxhash64(source, id), sf.xxhash64(id, source)
    alone = sf.xxhash64("file", "line", "message_id"), sf.lit(0).cast("long")
    made = [sf.when(has_own_key, own).otherwise(half) for half, own in zip(halves, alone, strict=True)]
    if item is not None:
        made = [sf.coalesce(item, half) for half in made]
    return rows.withColumns(dict(zip(KEY, made, strict=True)))


def _within(time: str, window: Window) -> Column:
    """Whether a row belongs to the window by itself: by a time, or by its folder.

    That is for a line that cannot be read, and for a time at which the audit of no day would look for it in
    its folder.
    """
    if window.first is None:
        return sf.lit(True)
    first_ms, last_ms = window.span_ms
    at_ms = sf.when(sf.col("line").isNull(), sf.col(time))
    is_looked_for = at_ms.between(first_ms - LATE_DAYS * DAY_MS, last_ms + DAY_MS)
    is_of_folder = _in_folder(window) & ~sf.coalesce(is_looked_for, sf.lit(False))
    return is_of_folder | sf.coalesce(at_ms.between(first_ms, last_ms), sf.lit(False))


def _in_folder(window: Window) -> Column:
    return sf.col("date").between(window.days[0], window.days[-1]) if window.days else sf.lit(True)


def _is_time(name: str) -> Column:
    """Whether this is a time that can be, Unix milliseconds."""
    return sf.coalesce(sf.col(name).between(0, LAST_MS), sf.lit(False))


def _any_null(*names: str) -> Column:
    return reduce(or_, (sf.col(name).isNull() for name in names))


def _any_empty(*texts: Column) -> Column:
    return reduce(or_, (sf.coalesce(text, sf.lit("")) == "" for text in texts))


def _first_of(reasons: Mapping[str, Column]) -> Column:
    """The first reason that applies; null where none does."""
    return sf.coalesce(*(sf.when(applies, sf.lit(reason)) for reason, applies in reasons.items()))


def _written_ms() -> Column:
    """When a row was written by its own word, Unix milliseconds; if that is no time, its folder's day."""
    day_ms = sf.unix_millis(sf.to_timestamp("date", "yyyy-MM-dd"))
    return sf.when(_is_time("archived_at_ms"), sf.col("archived_at_ms")).otherwise(day_ms)
