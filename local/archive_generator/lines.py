"""The lines of a frequent event, fast: made once by the functions' records from marks, then filled in.

Writing a record from scratch costs ten times as much. Nothing may be filled in that JSON would escape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge.numbering import stamp
from eventplane.envelope import Envelope, write_event
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from local.archive_generator.flows import Flow, Routing
from local.archive_generator.records import Passage, right_case

_WORDS: Final = {name: f"zz{name}zz" for name in ("client", "id", "tap", "router", "epoch")}
_RECORDED: Final = "1999-09-09T09:09:09.999Z"
_SEQUENCE: Final = 987_654_321_987
_NUMBERS: Final = {
    name: 9_000_000_000_001 + place
    for place, name in enumerate(("accepted", "archived", "decided", "handed", "index", "value"))
}
_TIMES: Final = {"tap": "archived", "ledger": "decided", "handovers": "handed"}

Line = tuple[str, str, str]
"""The archive's folder, which of the values is the time of writing, and the pattern of the line."""


def event_of(flow: Flow, client: str, id: str, recorded: str, value: int, **more: str) -> Envelope:
    """An event with its sender, before the device numbers it."""
    attributes = {
        "id": id,
        "source": source_of(flow, client),
        "type": flow.type,
        "subject": flow.subject,
        "time": recorded,
        "recordedtime": recorded,
        **more,
    }
    return stamp_sender(write_event(attributes, {"value": value, "unit": "1"}), Sender(service=flow.service))


def source_of(flow: Flow, client: str) -> str:
    """The `source` of a service's events."""
    return f"//{client}.example.org/{flow.service}"


class Lines:
    """The lines of the events of one `flow` by the contract of `routing`."""

    def __init__(self, flow: Flow, routing: Routing) -> None:
        event = event_of(flow, _WORDS["client"], _WORDS["id"], _RECORDED, _NUMBERS["value"])
        stamped = stamp(event, _WORDS["epoch"], _SEQUENCE)
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
        case = right_case(stamped, passage, routing)
        self.is_ordered = any(map(routing.is_ordered, case.routes))
        self.on_device = routing.on_device(event)
        self._lines = [(folder, _TIMES[folder], _pattern(text)) for folder, _, text in case.rows()]

    def fill(self, values: Mapping[str, object]) -> list[tuple[str, int, str]]:
        """The event's rows as `Case.rows` would give them."""
        return [(folder, int(str(values[time])), pattern % values) for folder, time, pattern in self._lines]


def _pattern(line: str) -> str:
    pattern = line.replace("%", "%%")
    marks = {
        **_WORDS,
        "recorded": _RECORDED,
        "sequence": f"{_SEQUENCE:012d}",
        **{name: str(number) for name, number in _NUMBERS.items()},
    }
    for name, mark in marks.items():
        pattern = pattern.replace(mark, f"%({name})s")
    return pattern
