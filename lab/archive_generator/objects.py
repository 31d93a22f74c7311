"""The archive's objects, written as a stream: gzipped JSON lines by folder and hour of writing."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from edge.numbering import stamp
from eventplane.contract import Contract
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.ledger import CONTRACTS, HANDOVERS
from eventplane.names import SEQUENCE_DIGITS
from eventplane.sending import stamp_sender
from eventplane.written import LISTED, Extent, WriterList
from lab.archive_generator.flows import Routing, SentFlow
from lab.archive_generator.records import Passage, right_case

_HOUR_MS = 3_600_000
_TOGETHER = 200
"""Lines that are compressed in one go."""


class _Object:
    """One open object: its key, and what it holds."""

    def __init__(self, root: Path, key: str) -> None:
        self.path = root / key
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.key = key
        self.extent = Extent()
        self._raw = self.path.open("wb")
        # As the functions write it: level 1, no time stamp, so that equal rows are equal bytes.
        self._gzip = gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", compresslevel=1, mtime=0)
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)
        self.extent.add(line)
        if len(self._lines) >= _TOGETHER:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._gzip.close()
        self._raw.close()

    def _flush(self) -> None:
        self._gzip.write("".join(f"{line}\n" for line in self._lines).encode())
        self._lines.clear()


class MadeObjects:
    """The archive at `root`; an object is full with `rows` rows, a small one with a twentieth.

    Small are those of the hours `small`, counted from 1970, and the handovers, which a function writes by
    tens. Counts what it wrote by folder.
    """

    def __init__(self, root: Path, rows: int, small: frozenset[int] = frozenset()) -> None:
        self._root = root
        self._rows = rows
        self._small = small
        self._open: dict[tuple[str, int], _Object] = {}
        self._lists: dict[str, WriterList] = {}
        self._objects = 0
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for place in [*self._open]:
            self._close(place)

    def add(self, folder: str, written_at_ms: int, line: str) -> str:
        """Write one row; returns the key of its object. Times in Unix milliseconds."""
        place = folder, written_at_ms // _HOUR_MS
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = self._new(*place)
        found.write(line)
        self.counts[folder] = self.counts.get(folder, 0) + 1
        is_small = place[1] in self._small or folder == HANDOVERS
        if found.extent.rows >= (self._rows // 20 if is_small else self._rows):
            self._close(place)
        return found.key

    def close_before(self, milliseconds: int) -> None:
        """No more is to come soon of hours that ended before this Unix time; what comes gets a new object."""
        for place in [each for each in self._open if (each[1] + 1) * _HOUR_MS <= milliseconds]:
            self._close(place)

    def file_contract(self, contract: Contract) -> None:
        """Keep the contract under its version."""
        path = self._root / CONTRACTS / f"{contract.version}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contract.canonical)

    def _close(self, place: tuple[str, int]) -> None:
        """End an object, and list it as the function would that wrote all of its folder."""
        done, (folder, hour) = self._open.pop(place), place
        done.close()
        if folder in LISTED:
            mine = self._lists.setdefault(folder, WriterList(hour * _HOUR_MS, f"{len(self._lists):016x}"))
            entry = mine.next(done.key, done.extent, hashlib.sha256(done.path.read_bytes()).hexdigest())
            place_of = self._root / entry.name
            place_of.parent.mkdir(parents=True, exist_ok=True)
            place_of.touch()
            mine.kept(entry)

    def _new(self, folder: str, hour: int) -> _Object:
        self._objects += 1
        moment = datetime.fromtimestamp(hour * 3_600, UTC)
        name = f"{self._objects:032x}"
        return _Object(self._root, f"{folder}/date={moment:%Y-%m-%d}/hour={moment:%H}/{name}.json.gz")


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
