"""Rows that no reader can use, and items that are no events: beside right rows, none of which is missing."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eventplane.dead_letter import ROUTER_SOURCE
from eventplane.device_reports import MANIFEST
from eventplane.envelope import Sender
from eventplane.ingest import IngestFrame
from eventplane.ledger import HANDOVERS, LEDGER, TAP, LedgerRecord, TapRecord, tap_records, to_line
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.records import Case, decided, letters
from lab.archive_generator.truth import COVERAGE, Truth

WAYS: Final = ("cut", "text_for_number", "missing_member", "impossible_time", "no_identity")
"""How a row is malformed."""


def malformed(case: Case, way: str, number: int) -> tuple[str, int, str, str]:
    """A row after the pattern of one of `case`: its folder, time of writing, line, and what marks it.

    Rows of tap and ledger take turns by `number`; a ledger row keeps its names.
    """
    mark = f"malformed-{number:06d}"
    row = case.ledger[0] if number % 2 and way != "no_identity" else case.tap[0]
    folder, at_ms = (
        (LEDGER, row.decided_at_ms) if isinstance(row, LedgerRecord) else (TAP, row.archived_at_ms)
    )
    return folder, at_ms, _line(row, way, mark), mark


def _line(row: TapRecord | LedgerRecord, way: str, mark: str) -> str:
    # The mark is in a member that stands before the cut and is never the one that is wrong.
    line = to_line(replace(row, message_id=mark))
    if way == "cut":
        return line[: line.index(mark) + len(mark) + 20]
    members = json.loads(line)
    time = "entered_at_ms" if isinstance(row, LedgerRecord) else "accepted_at_ms"
    if way == "text_for_number":
        members[time] = "yesterday"
    elif way == "missing_member":
        del members[time]
    elif way == "impossible_time":
        members[time] = -1
    else:
        members["event"] = '{"specversion":"1.0"}'
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def refused_item(case: Case, recorded: bool) -> tuple[list[TapRecord], list[LedgerRecord], Truth]:
    """An item of the device that is no event, beside the event of `case`, with the router's record of it.

    Not `recorded`, it has vanished: lost at the router. It has no names; its time of acceptance tells it.
    """
    passage = case.passage
    item = f"{passage.index}-refused"
    message = f"{passage.tap_message}-{item}"
    # A millisecond of its own, though one frame has several of them: the time identifies it.
    at_ms = passage.accepted_at_ms + 1 + passage.index
    payload = b'{"specversion":"1.0","id":"no type"}'
    frame = IngestFrame(payload, case.tap[0].topic, passage.client_id, "", at_ms)
    tap = tap_records(frame, message, passage.archived_at_ms + 1)
    reason = tap[0].refusal
    dead = replace(
        decided(case),
        entered_at_ms=at_ms,
        source="",
        id="",
        type="",
        route=None,
        destination=None,
        outcome=Outcome.DEAD_LETTERED,
        reason=reason,
        message_id=f"{passage.router_message}-{item}",
        sender=str(Sender(passage.client_id)),
        digest=None,
    )
    ends = [
        replace(each, message_id=dead.message_id)
        for each in letters(case, ROUTER_SOURCE, f"{dead.message_id}.0")
    ]
    truth = Truth(
        kind=Kind.DEAD_LETTERED if recorded else Kind.LOST,
        hop=Hop.ROUTER,
        device=passage.client_id,
        at_ms=at_ms,
        detail=reason,
    )
    return tap, [dead, *ends] if recorded else [], truth


_DAY, _DAY_BEFORE = "2026-03-01", "2026-02-28"


@dataclass(frozen=True, slots=True)
class Hole:
    """The fate (`happens`) of objects of `folder` in the `hour` of the first day; it returns the truth."""

    hour: int
    folder: str
    happens: Callable[[Path, Hole], list[Truth]]


def _fact(root: Path, kind: str, path: Path) -> Truth:
    return Truth(kind, Hop.ARCHIVE, archive_file=path.relative_to(root).as_posix())


def _objects(root: Path, hole: Hole) -> list[Path]:
    return sorted(_hour(root, hole).glob("*.json.gz"))


def _hour(root: Path, hole: Hole, ahead: int = 0) -> Path:
    return root / hole.folder / f"date={_DAY}" / f"hour={hole.hour + ahead:02d}"


def _hour_without_objects(root: Path, hole: Hole) -> list[Truth]:
    for path in _objects(root, hole):
        path.unlink()
    return [_fact(root, Kind.MISSING_RECORDS, _hour(root, hole))]


def _one_object_gone(root: Path, hole: Hole) -> list[Truth]:
    """The ledger has what the object of the tap had, and a list names it; manifests were in it as well."""
    path = _objects(root, hole)[0]
    unattested = list(_unattested(path))
    path.unlink()
    return [_fact(root, Kind.MISSING_RECORDS, path), *unattested]


def _unreadable(changed: Callable[[bytes], bytes]) -> Callable[[Path, Hole], list[Truth]]:
    """An object's content is `changed` so that it cannot be read, or not to its end."""

    def happens(root: Path, hole: Hole) -> list[Truth]:
        path = _objects(root, hole)[0]
        unattested = list(_unattested(path))
        path.write_bytes(changed(path.read_bytes()))
        return [_fact(root, Kind.UNREADABLE_OBJECT, path), *unattested]

    return happens


def _first_half(content: bytes) -> bytes:
    """An upload ended early: the first half of the lines can be read."""
    lines = gzip.decompress(content).splitlines(keepends=True)
    compressor = zlib.compressobj(1, wbits=31)
    return compressor.compress(b"".join(lines[: len(lines) // 2])) + compressor.flush(zlib.Z_SYNC_FLUSH)


_no_gzip = _unreadable(lambda _: b"<Error><Code>SlowDown</Code></Error>\n")


def _twice(root: Path, hole: Hole) -> list[Truth]:
    path = _objects(root, hole)[0]
    # Behind the object by its name, so that the first by name is the original.
    copy = path.with_name(f"f{path.name[1:]}")
    shutil.copyfile(path, copy)
    return [_fact(root, Kind.DUPLICATE_OBJECT, copy)]


def _into_the_next_hour(root: Path, hole: Hole) -> list[Truth]:
    """A writer's clock was ahead: each row counts all the same, so this is nothing to find."""
    for path in _objects(root, hole):
        target = _hour(root, hole, ahead=1) / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    return []


def _into_the_day_before(root: Path, hole: Hole) -> list[Truth]:
    """A writer's clock was behind at midnight: nothing to find."""
    path = _objects(root, hole)[0]
    before = root / hole.folder / f"date={_DAY_BEFORE}" / "hour=23" / path.name
    before.parent.mkdir(parents=True, exist_ok=True)
    path.rename(before)
    return []


def _stray_file(root: Path, hole: Hole) -> list[Truth]:
    path = _hour(root, hole) / "notes.txt"
    path.write_text("restored from the backup\n")
    return [_fact(root, Kind.MISPLACED_OBJECT, path)]


def _unattested(path: Path) -> Iterator[Truth]:
    """The devices whose manifest lies in an object, which is one of the tap."""
    for row in _rows(path):
        if MANIFEST in row.get("event", ""):
            yield Truth(COVERAGE, None, row["client_id"], detail="partly")


HOLES: Final = (
    Hole(0, LEDGER, _into_the_day_before),
    # A webhook may try for hours: what is lost behind it is certain only when its holes are past.
    Hole(1, HANDOVERS, _hour_without_objects),
    Hole(2, LEDGER, _hour_without_objects),
    Hole(3, HANDOVERS, _unreadable(lambda _: b"")),
    Hole(4, TAP, _one_object_gone),
    Hole(8, TAP, _no_gzip),
    Hole(10, LEDGER, _unreadable(_first_half)),
    Hole(14, LEDGER, _twice),
    Hole(15, TAP, _twice),
    Hole(16, HANDOVERS, _twice),
    Hole(18, LEDGER, _no_gzip),
    Hole(20, LEDGER, _into_the_next_hour),
    Hole(22, TAP, _stray_file),
)

_LEFT_ALONE: Final = 19
"""An hour in which `tamper` finds rows without faults."""

# Of numbers that are lost right behind a hole of the tap nobody can tell which lay in the hole.
_BEHIND: Final = {each.hour + 1 for each in HOLES if each.folder == TAP}

QUIET: Final = frozenset({*(each.hour for each in HOLES), _LEFT_ALONE}) | _BEHIND
"""The hours of the first day in which no other fault is planted."""


def make_holes(root: Path) -> tuple[list[Truth], int]:
    """Do to the archive in `root` what goes wrong with objects.

    Returns what there is to find, and how many numbers nobody has seen or states for it.
    """
    unseen = sum(_unstated(root, hole) for hole in HOLES if hole.happens in (_one_object_gone, _no_gzip))
    return [truth for hole in HOLES for truth in hole.happens(root, hole)], unseen


def _unstated(root: Path, hole: Hole) -> int:
    """How many rows of the tap in the first object of an hour no other object has a manifest for."""
    if hole.folder != TAP:
        return 0
    first, *others = (_rows(path) for path in _objects(root, hole))
    stated = {row["client_id"] for rows in others for row in rows if MANIFEST in (row["event"] or "")}
    # A manifest is itself stated by the next one.
    return sum(row["client_id"] not in stated and MANIFEST not in (row["event"] or "") for row in first)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def tamper(root: Path) -> Iterator[Truth]:
    """Alter, add and remove objects of an archive that has been audited, with a forged receipt.

    Returns what there is to find.
    """
    altered, removed = (_objects(root, Hole(_LEFT_ALONE, folder, _twice))[0] for folder in (TAP, LEDGER))
    lines = gzip.decompress(altered.read_bytes()).decode().splitlines(keepends=True)
    receipt = root / "erasures" / "nobody" / "receipt-1.json"
    receipt.parent.mkdir(parents=True)
    before = f"sha256:{hashlib.sha256(altered.read_bytes()).hexdigest()}"
    changes = {altered.relative_to(root).as_posix(): [before, ""]}
    receipt.write_text(json.dumps({"changes": changes, "erased_at_ms": 1}))
    yield _fact(root, Kind.UNATTESTED_OBJECT, receipt)
    lines[0] = lines[0].replace('"principal":"', '"principal":"x')
    altered.write_bytes(gzip.compress("".join(lines).encode(), 1, mtime=0))
    yield _fact(root, Kind.ALTERED_OBJECT, altered)
    added = altered.with_name(f"f{altered.name[1:]}")
    added.write_bytes(gzip.compress("".join(lines[1:4]).encode(), 1, mtime=0))
    yield _fact(root, Kind.ALTERED_OBJECT, added)
    removed.unlink()
    yield _fact(root, Kind.ALTERED_OBJECT, removed)
    yield _fact(root, Kind.MISSING_RECORDS, removed)
