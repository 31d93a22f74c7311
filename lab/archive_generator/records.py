"""The rows of one event in a right archive: what archive writer, routers and webhooks write of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from eventplane import ledger
from eventplane.contract import Route
from eventplane.dead_letter import DEAD_LETTER_TYPE, ROUTER_SOURCE, letter_id
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope, sender_in_frame
from eventplane.expiry import expires_at_ms
from eventplane.ledger import HANDOVERS, LEDGER, TAP, HandoverRecord, LedgerRecord, TapRecord
from eventplane.names import PLANE
from eventplane.reasons import Outcome
from eventplane.topics import device_topic
from lab.archive_generator.flows import Routing

WEBHOOK_LETTERS: Final = "/eventplane/cloud/webhook/"
READER_LETTERS: Final = "/eventplane/client/"
"""The sources of dead letters, as the functions and the client have them."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The places and times of one event: times in Unix milliseconds, ids of the queues' messages.

    `states_acknowledged` is whether the device's next manifest says that IoT Core has acknowledged it.
    """

    client_id: str
    accepted_at_ms: int
    archived_at_ms: int
    decided_at_ms: int
    handed_over_at_ms: int
    tap_message: str
    index: int
    router_message: str
    states_acknowledged: bool = False

    @classmethod
    def in_frame(
        cls, client_id: str, accepted_at_ms: int, frame: int, index: int, *, states_acknowledged: bool
    ) -> Passage:
        """Return the way of an event that nothing holds up, by the number of its frame."""
        return cls(
            client_id,
            accepted_at_ms,
            archived_at_ms=accepted_at_ms + 60,
            decided_at_ms=accepted_at_ms + 40,
            handed_over_at_ms=accepted_at_ms + 160,
            tap_message=f"t-{frame:012x}",
            index=index,
            router_message=f"r-{frame:012x}",
            states_acknowledged=states_acknowledged,
        )


@dataclass(slots=True)
class Case:
    """One event on its way, and the rows of it, which a fault may change.

    `overtaken_at_ms` is when a delivery would be behind a later event of its source, None without one.
    `predecessor` is by what routers decided before, None where some rightly might still. `earlier_id` is that
    of an event of the same type that the device sent before, `neighbour` another device's client id. What
    `is_newer` has ledger rows with a member that this version does not know.
    """

    event: Envelope
    passage: Passage
    routing: Routing
    overtaken_at_ms: int | None = None
    predecessor: Routing | None = None
    earlier_id: str | None = None
    neighbour: str | None = None
    is_newer: bool = False
    routes: list[Route] = field(default_factory=list)
    tap: list[TapRecord] = field(default_factory=list)
    ledger: list[LedgerRecord] = field(default_factory=list)
    handovers: list[HandoverRecord] = field(default_factory=list)

    @property
    def sender(self) -> str:
        """The sender of the event, as the ledger has it."""
        return str(sender_in_frame(self.passage.client_id, self.event.attributes))

    def rows(self) -> list[tuple[str, int, str]]:
        """Folder of the archive, Unix milliseconds of writing and line, of every row."""
        return [
            *((TAP, each.archived_at_ms, ledger.to_line(each)) for each in self.tap),
            *((LEDGER, each.decided_at_ms, self._decision(each)) for each in self.ledger),
            *((HANDOVERS, each.decided_at_ms, ledger.to_line(each)) for each in self.handovers),
        ]

    def _decision(self, row: LedgerRecord) -> str:
        line = ledger.to_line(row)
        return f'{line[:-1]},"region":"eu-central-1"}}' if self.is_newer else line


def right_case(
    event: Envelope,
    passage: Passage,
    routing: Routing,
    overtaken_at_ms: int | None = None,
    predecessor: Routing | None = None,
) -> Case:
    """`event` on its way without a fault."""
    case = Case(event, passage, routing, overtaken_at_ms, predecessor, routes=routing.cloud(event))
    case.tap = [tapped(case)]
    case.ledger = [decided(case, route) for route in case.routes] or [decided(case)]
    case.handovers = [handed_over(case, route) for route in case.routes if routing.is_recorded(route)]
    return case


def tapped(case: Case) -> TapRecord:
    """The archive writer's row."""
    return TapRecord(
        accepted_at_ms=case.passage.accepted_at_ms,
        archived_at_ms=case.passage.archived_at_ms,
        client_id=case.passage.client_id,
        topic=device_topic(case.passage.client_id, "outbox"),
        message_id=case.passage.tap_message,
        index=case.passage.index,
        event=case.event.json,
        original_base64=None,
        refusal=None,
        expires_at_ms=expires_at_ms(case.event, case.passage.accepted_at_ms),
    )


def decided(case: Case, route: Route | None = None) -> LedgerRecord:
    """The router's row of a delivery on `route`; unrouted without one."""
    return LedgerRecord(
        decided_at_ms=case.passage.decided_at_ms,
        entered_at_ms=case.passage.accepted_at_ms,
        entered_by=case.routing.uplink.address,
        contract_version=case.routing.contract.version,
        source=case.event.source,
        id=case.event.id,
        type=case.event.type,
        priority=case.routing.priority(case.event),
        client_id=case.passage.client_id,
        route=route.name if route else None,
        destination=route.destination if route else None,
        outcome=Outcome.DELIVERED if route else Outcome.UNROUTED,
        reason=None if route else "no_route",
        attempt=1,
        message_id=case.passage.router_message,
        sender=case.sender,
        received_at_ms=case.passage.decided_at_ms,
        digest=short_digest(case.event.json.encode()),
    )


def handed_over(case: Case, route: Route) -> HandoverRecord:
    """The row of a webhook whose endpoint took an event, or of a reader that leaves receipts."""
    return HandoverRecord(
        decided_at_ms=case.passage.handed_over_at_ms,
        entered_at_ms=case.passage.decided_at_ms,
        channel=route.destination,
        contract_version=case.routing.contract.version,
        source=case.event.source,
        id=case.event.id,
        type=case.event.type,
        outcome=Outcome.DELIVERED,
        reason=None,
        status=200 if case.routing.is_webhook(route) else None,
        attempt=1,
        message_id=f"{case.passage.router_message}-{route.name}",
        route=route.name,
        sender=case.sender,
    )


def letters(case: Case, source: str, id: str | None = None) -> list[LedgerRecord]:
    """The ledger's rows of the dead letter about the event, written by the function called `source`."""
    _, _, service = source.rpartition("/")
    like = decided(case)
    like = replace(
        like,
        source=source,
        id=id or letter_id(case.sender, case.event.source, case.event.id),
        type=DEAD_LETTER_TYPE,
        priority="normal",
        reason=None,
        outcome=Outcome.DELIVERED,
        sender=PLANE,
        digest=None,
    )
    if source != ROUTER_SOURCE:
        at_ms = case.passage.handed_over_at_ms
        like = replace(
            like,
            entered_by=f"{service}.outbox",
            entered_at_ms=at_ms,
            received_at_ms=at_ms + 50,
            decided_at_ms=at_ms + 50,
            client_id=None,
            sender=service,
        )
    letter = Envelope({"type": DEAD_LETTER_TYPE, "source": source, "id": like.id}, "")
    return [
        replace(like, route=route.name, destination=route.destination) for route in case.routing.cloud(letter)
    ]
