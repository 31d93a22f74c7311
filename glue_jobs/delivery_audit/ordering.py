"""Order, where a channel promises it (`ordering: source`): events that were overtaken. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from eventplane.contract import Ordering, Transport
from eventplane.ledger import SENT_BEFORE
from eventplane.reasons import Outcome
from eventplane.sender import SENDER_SERVICE, sender_in_frame
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import EventGroup, LedgerRow
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.window import LAST_MS, date_of


class OrderedDelivery(NamedTuple):
    """The first delivery of an event into an inbox that promises order, times in Unix milliseconds.

    Within a `stream` the deliveries should be in the order of `sent`: the device's number, or when it
    entered. `finding` is what is found if it was overtaken, without the detail.
    """

    stream: tuple[str | None, ...]
    sent: int
    delivered_at_ms: int
    finding: Finding


def ordered_inboxes(history: ContractHistory) -> frozenset[str]:
    """Return the addresses of the inboxes that promise the order of each source."""
    return frozenset(
        participant.inbox.address
        for contract in history.contracts
        for participant in contract.participants.values()
        # A standard queue delivers in any order; there the reader sorts, behind what the archive sees.
        if participant.inbox.ordering is Ordering.SOURCE and participant.inbox.transport is not Transport.SQS
    )


def ordered_deliveries(group: EventGroup, inboxes: Collection[str]) -> Iterator[OrderedDelivery]:
    """The first deliveries of a group into `inboxes`; none of an identity that several senders use.

    Of that `two_senders` is found, and a forged copy overtakes nobody.
    """
    first: dict[str, LedgerRow] = {}
    for row in group.ledger:
        inbox = row.destination
        if inbox is not None and inbox in inboxes and is_sent(row):
            other = first.setdefault(inbox, row)
            if row.decided_at_ms < other.decided_at_ms:
                first[inbox] = row
    if not first or len(_senders(group)) > 1:
        return
    tap = min(group.tap, default=None)
    sequence = min((each.sequence for each in group.tap if each.sequence is not None), default=None)
    entered = (each.entered_at_ms for each in group.ledger if None not in each[1:2])
    began_ms = min(*entered, *(each.accepted_at_ms for each in group.tap), LAST_MS)
    for destination, row in first.items():
        client_id, epoch = (tap.client_id, tap.epoch) if tap else (row.client_id, None)
        at_ms = tap.accepted_at_ms if tap else row.entered_at_ms
        finding = Finding(
            date=date_of(at_ms),
            kind=Kind.REORDERED,
            hop=Hop.ROUTER,
            device=client_id,
            epoch=epoch,
            sequence=sequence,
            source=row.source,
            id=row.id,
            type=tap.type if tap else row.type,
            route=row.route,
            destination=destination,
            contract_version=row.contract_version,
            archive_file=row.file,
            at_ms=at_ms,
        )
        yield OrderedDelivery(
            (destination, client_id, epoch, (tap.partition if tap else None) or row.source),
            began_ms if sequence is None else sequence,
            row.decided_at_ms,
            finding,
        )


def _senders(group: EventGroup) -> set[str | None]:
    in_tap = (sender_in_frame(each.client_id, {SENDER_SERVICE: each.service or ""}) for each in group.tap)
    named = {*(each.sender for each in group.ledger), *(each.sender for each in group.handovers)}
    return {*map(str, in_tap), *named}


def is_sent(row: LedgerRow) -> bool:
    """Whether the row is a delivery, and can be judged."""
    return None not in row[:2] and row.outcome == Outcome.DELIVERED and row.reason != SENT_BEFORE


def overtaken(deliveries: Iterable[OrderedDelivery]) -> Iterator[Finding]:
    """Return a finding for each delivery after one of its stream that was sent later.

    Within one millisecond the archive knows no order, so none is broken there. One event that comes late is
    one finding, however many came before it.
    """
    streams: defaultdict[tuple[str | None, ...], list[OrderedDelivery]] = defaultdict(list)
    for each in deliveries:
        streams[each.stream].append(each)
    for stream in streams.values():
        # From the last to the first: so the least that came later is known from one to the next.
        stream.sort(key=lambda each: -each.sent)
        least_ms = LAST_MS
        for _, together in groupby(stream, key=lambda each: each.sent):
            same = list(together)
            yield from (reordered(each, least_ms) for each in same if least_ms < each.delivered_at_ms)
            least_ms = min(least_ms, *(each.delivered_at_ms for each in same))


def reordered(delivery: OrderedDelivery, overtaken_at_ms: int) -> Finding:
    """Return the finding about a delivery after one that was sent later."""
    by_ms = delivery.delivered_at_ms - overtaken_at_ms
    return delivery.finding._replace(detail=f"{by_ms} ms behind one that was sent later")
