"""Findings against the truth: what was found of each kind (recall), and what of that is so (precision).

A finding is known by what the archive has of it: an event by source and id, on a route where routes are
judged; what never arrived by device, epoch and number; what has no names by device and time; an object of
the archive by its key; coverage by device. A fact that is found twice was invented once.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.truth import COVERAGE, QUARANTINED

Row = Mapping[str, Any]
Key = tuple[object, ...]

SAMPLES: Final = 5
"""Keys that are shown of what was missed or invented."""

_OF_A_STORE: Final = (Kind.MISSING_MANIFEST, Kind.EPOCH_CHANGE, Kind.FOREIGN_EPOCH)
_OF_AN_EVENT: Final = (
    Kind.FORGED,
    Kind.DEAD_LETTERED,
    Kind.UNCONFIRMED,
    Kind.TYPE_MISMATCH,
    Kind.CONTENT_MISMATCH,
    Kind.SENDER_MISMATCH,
    Kind.NOT_UNDERSTOOD,
    Kind.CONTRADICTION,
)
_MARK: Final = re.compile(r"malformed-\d{6}")
_ID: Final = re.compile(r'"id":"([^"]+)"')
_STANDINGS: Final = ("silent", "unregistered", "partly")
"""What coverage says of a device, the first that applies."""


@dataclass(slots=True)
class Score:
    """The judgement of one kind at one hop, in facts."""

    planted: int = 0
    found: int = 0
    missed: list[Key] = field(default_factory=list)
    invented: list[Key] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """The share of what was planted that was found; 1 where nothing was planted."""
        return 1 - len(self.missed) / self.planted if self.planted else 1.0

    @property
    def precision(self) -> float:
        """The share of what was found that was planted; 1 where nothing was found."""
        return 1 - len(self.invented) / self.found if self.found else 1.0

    @property
    def wrong(self) -> bool:
        """True if something was missed or invented."""
        return bool(self.missed or self.invented)

    def document(self) -> dict[str, object]:
        """The score as it stands in a file."""
        return {
            "planted": self.planted,
            "found": self.found,
            "recall": round(self.recall, 6),
            "precision": round(self.precision, 6),
            "missed": sorted(map(str, self.missed))[:SAMPLES],
            "invented": sorted(map(str, self.invented))[:SAMPLES],
        }


def compare(truth: Iterable[Row], findings: Iterable[Row]) -> dict[str, Score]:
    """The score of each `kind hop` that was planted or found."""
    planted, found = Counter(map(key, truth)), Counter(map(key, findings))
    scores: dict[str, Score] = defaultdict(Score)
    for each, count in planted.items():
        score = scores[_name(each)]
        score.planted += count
        score.missed += [each] * max(0, count - found[each])
    for each, count in found.items():
        score = scores[_name(each)]
        score.found += count
        score.invented += [each] * max(0, count - planted[each])
    return dict(sorted(scores.items()))


def key(row: Row) -> Key:
    """The key of a finding; begins with kind and hop."""
    kind, hop = row["kind"], row.get("hop")
    if kind == QUARANTINED:
        text = str(row.get("detail"))
        mark = _MARK.search(text) or _ID.search(text)
        return str(kind), None, row.get("archive_file"), mark[mark.lastindex or 0] if mark else text
    if kind == COVERAGE:
        return str(kind), None, row["device"], row["detail"]
    place: Key = (str(kind), None if hop is None else str(hop))
    if hop == Hop.ARCHIVE and not row.get("id"):
        return *place, str(row["archive_file"]).rstrip("/")
    if kind == Kind.CLOCK_SKEW and hop == Hop.DEVICE_CLOUD:
        return *place, row.get("device")
    if kind in _OF_A_STORE:
        return *place, row.get("device"), row.get("epoch")
    if row.get("id"):
        judges_routes = hop not in (Hop.DEVICE_CLOUD, Hop.IOT_RULE) and kind not in _OF_AN_EVENT
        return *place, row["source"], row["id"], _route(row.get("route")) if judges_routes else None
    if row.get("sequence") is not None:
        return *place, row["device"], row["epoch"], row["sequence"]
    return *place, row.get("device"), row.get("at_ms")


def quarantined(row: Row) -> Row:
    """A row of the audit's table `quarantine` as a finding."""
    return {"kind": QUARANTINED, "archive_file": row["archive_file"], "detail": row["text"]}


def coverage(devices: Iterable[Row]) -> Iterator[Row]:
    """The devices that are not attested, as findings; `devices` are rows with `client_id` and `coverage`."""
    by_name = {row["client_id"]: row["coverage"] for row in devices}
    for name, word in by_name.items():
        if word != "attested":
            yield {"kind": COVERAGE, "device": name, "detail": word}


def each_device_once(truth: Iterable[Row]) -> Iterator[Row]:
    """The truth with one row for what is found once a device, however often it happened: its coverage, which
    several reasons may lower, and that it brings events of another one."""
    foreign: set[Key] = set()
    words: defaultdict[str, set[str]] = defaultdict(set)
    for row in truth:
        if row["kind"] == COVERAGE:
            words[row["device"]].add(row["detail"])
        elif row["kind"] != Kind.FOREIGN_EPOCH or key(row) not in foreign:
            foreign |= {key(row)} if row["kind"] == Kind.FOREIGN_EPOCH else set()
            yield row
    for name, found in words.items():
        yield {"kind": COVERAGE, "device": name, "detail": min(found, key=_STANDINGS.index)}


def _route(name: str | None) -> str | None:
    """None for what an audit writes, in brackets, where there is no route."""
    return None if name is None or name.startswith("(") else name


def _name(key: Key) -> str:
    return f"{key[0]} {key[1] or '-'}"
