"""The lines of a frequent event, fast: made once by the functions' records from marks, then filled in.

Writing a record from scratch costs ten times as much. Nothing may be filled in that JSON would escape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edge.numbering import stamp
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.names import SEQUENCE_DIGITS
from eventplane.sending import stamp_sender
from lab.archive_generator.flows import Routing, SentFlow
from lab.archive_generator.records import Passage, right_case

_WORDS: Final = {name: f"zz{name}zz" for name in ("client", "id", "tap", "router", "epoch")}
_RECORDED: Final = "1999-09-09T09:09:09.999Z"
_SEQUENCE: Final = 987_654_321_987
_NUMBERS: Final = {
    name: 9_000_000_000_001 + place
    for place, name in enumerate(("accepted", "archived", "decided", "handed", "index", "value"))
}
_TIMES: Final = {"tap": "archived", "ledger": "decided", "handovers": "handed"}


@dataclass(frozen=True, slots=True)
class SentLine:
    """An event that a service sent, its device numbered; `recorded` is a timestamp by the device's clock."""

    id: str
    epoch: str
    sequence: int
    recorded: str
    value: int


def source_of(flow: SentFlow, client: str) -> str:
    """The `source` of a service's events."""
    return f"//{client}.example.org/{flow.service}"


def event_of(flow: SentFlow, client: str, sent: SentLine) -> Envelope:
    """The event as its device sends it."""
    attributes = {
        "id": sent.id,
        "source": source_of(flow, client),
        "type": flow.type,
        "subject": flow.subject,
        "time": sent.recorded,
        "recordedtime": sent.recorded,
    }
    event = stamp_sender(
        write_event(attributes, {"value": sent.value, "unit": "1"}), Sender(service=flow.service)
    )
    return stamp(event, sent.epoch, sent.sequence)


class Lines:
    """The lines of the events of one `flow` by the contract of `routing`."""

    def __init__(self, flow: SentFlow, routing: Routing) -> None:
        sent = SentLine(_WORDS["id"], _WORDS["epoch"], _SEQUENCE, _RECORDED, _NUMBERS["value"])
        event = event_of(flow, _WORDS["client"], sent)
        passage = Passage(
            _WORDS["client"],
            _NUMBERS["accepted"],
            _NUMBERS["archived"],
            _NUMBERS["decided"],
            _NUMBERS["handed"],
            _WORDS["tap"],
            _NUMBERS["index"],
            _WORDS["router"],
        )
        case = right_case(event, passage, routing)
        self.is_ordered = any(map(routing.is_ordered, case.routes))
        self.on_device = routing.on_device(event)
        self._event = _pattern(event.json)
        digest = short_digest(event.json.encode())
        self._lines = [
            (folder, _TIMES[folder], _pattern(text).replace(digest, "%(digest)s"))
            for folder, _, text in case.rows()
        ]

    def text(self, sent: SentLine, client: str) -> str:
        """The event's text, as `event_of` would give it."""
        return self._event % _values(sent, client)

    def fill(self, sent: SentLine, passage: Passage) -> list[tuple[str, int, str]]:
        """The event's rows as `Case.rows` would give them."""
        values: dict[str, Any] = {
            **_values(sent, passage.client_id),
            "digest": short_digest(self.text(sent, passage.client_id).encode()),
            "accepted": passage.accepted_at_ms,
            "archived": passage.archived_at_ms,
            "decided": passage.decided_at_ms,
            "handed": passage.handed_over_at_ms,
            "tap": passage.tap_message,
            "index": passage.index,
            "router": passage.router_message,
        }
        return [(folder, values[time], pattern % values) for folder, time, pattern in self._lines]


def _values(sent: SentLine, client: str) -> dict[str, Any]:
    return {
        "client": client,
        "id": sent.id,
        "epoch": sent.epoch,
        "sequence": f"{sent.sequence:0{SEQUENCE_DIGITS}d}",
        "recorded": sent.recorded,
        "value": sent.value,
    }


def _pattern(line: str) -> str:
    pattern = line.replace("%", "%%")
    marks = {
        **_WORDS,
        "recorded": _RECORDED,
        "sequence": f"{_SEQUENCE:0{SEQUENCE_DIGITS}d}",
        **{name: str(number) for name, number in _NUMBERS.items()},
    }
    for name, mark in marks.items():
        pattern = pattern.replace(mark, f"%({name})s")
    return pattern
