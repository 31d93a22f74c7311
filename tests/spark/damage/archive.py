"""An archive's objects as files of gzipped JSON lines, for edits by hand."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]

TAP, LEDGER, HANDOVERS, FLEET, CONTRACTS = "tap", "ledger", "handovers", "fleet", "contracts"
WRITTEN: Final = "written"
"""The folder of the writers' lists, whose entries are called as their objects, with more behind a dot."""

DAY: Final = "2026-03-01"
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 1_772_323_200_000
"""The beginning of `DAY`, UTC, Unix milliseconds."""

DEVICE_PREFIX: Final = "org.eventplane.device."
MANIFEST: Final = DEVICE_PREFIX + "manifest.v1"
ALARM, READING, CLIMATE = "org.example.alarm.v1", "org.example.reading.v1", "org.example.climate.v1"


class Archive:
    """The archive in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def objects(self, folder: str, hour: int | None = None, day: str = DAY) -> list[Path]:
        """Return the objects of a folder's `day`, or of one hour of it, in the order of their names."""
        hours = "*" if hour is None else f"{hour:02d}"
        return sorted((self.root / folder).glob(f"date={day}/hour={hours}/*.json.gz"))

    def name(self, path: Path) -> str:
        """Return an object's key, or a folder's, beneath the archive."""
        return path.relative_to(self.root).as_posix()

    def hour_name(self, folder: str, hour: int, day: str = DAY) -> str:
        """Return the key of the folder of an hour."""
        return f"{folder}/date={day}/hour={hour:02d}"

    def lines(self, path: Path) -> list[str]:
        """Return an object's lines; none of one that another damage made unreadable."""
        try:
            return gzip.decompress(path.read_bytes()).decode().splitlines()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            return []

    def write(self, path: Path, lines: list[str]) -> None:
        """Write an object and its entry in the list, as its writer does; an object may have no lines."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.replace(path, lines)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        for entry in self.entries(path):
            head, _, first, last, _ = entry.name.rsplit(".", 4)
            entry.rename(entry.with_name(f"{head}.{len(lines)}.{first}.{last}.{digest}"))

    def replace(self, path: Path, lines: list[str]) -> None:
        """Write an object and leave its entry in the list as it was."""
        # So that objects without lines are no copies of each other.
        mark = 0 if lines else zlib.crc32(self.name(path).encode())
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 1, mtime=mark))

    def rows(self, folder: str, hour: int | None = None) -> Iterator[Row]:
        """Return the rows of a folder's day or hour, in the order of objects and lines."""
        for path in self.objects(folder, hour):
            yield from map(json.loads, self.lines(path))

    def edit(self, folder: str, change: Callable[[Row], Row | None], hour: int | None = None) -> int:
        """Change each row in place or, where `change` returns None, delete it; returns how many differ.

        An object without a change keeps its bytes.
        """
        changed = 0
        for path in self.objects(folder, hour):
            kept, differs = [], 0
            for line in self.lines(path):
                try:
                    row = json.loads(line)
                except ValueError:  # an earlier damage
                    kept.append(line)
                    continue
                if (after := change(row)) is None:
                    differs += 1
                    continue
                text = to_line(after)
                differs += text != line
                kept.append(text)
            if differs:
                self.write(path, kept)
            changed += differs
        return changed

    def edit_line(
        self, folder: str, hour: int, is_it: Callable[[Row], bool], change: Callable[[str], str]
    ) -> str:
        """Change the text of the first line whose row fits; returns the key of its object."""
        for path in self.objects(folder, hour):
            lines = self.lines(path)
            for place, line in enumerate(lines):
                if is_it(json.loads(line)):
                    lines[place] = change(line)
                    self.write(path, lines)
                    return self.name(path)
        raise LookupError(f"no such row in {self.hour_name(folder, hour)}")

    def entries(self, path: Path) -> list[Path]:
        """Return the entries of an object in its writer's list, as many as were written."""
        return sorted((self.root / WRITTEN / path.parent.relative_to(self.root)).glob(f"{path.name}.*"))

    def delete(self, paths: list[Path]) -> list[str]:
        """Delete objects; returns their keys."""
        for path in paths:
            path.unlink()
        return [self.name(path) for path in paths]

    def devices(self) -> list[str]:
        """Return the devices of the fleet."""
        return sorted(row["thing"] for row in self.rows(FLEET))

    def contracts(self) -> dict[str, Row]:
        """Return the contracts by version."""
        paths = sorted((self.root / CONTRACTS).glob("*.json"))
        return {path.stem: json.loads(path.read_bytes()) for path in paths}


def to_line(row: Row) -> str:
    """Return a row as one line of JSON, as the functions write it."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def event(row: Row) -> Row:
    """Return the event of a row of the tap."""
    return json.loads(row["event"])


def with_event(row: Row, members: Row) -> Row:
    """Return a row of the tap with another event."""
    return {**row, "event": to_line(members)}


def number_of(row: Row) -> int:
    """Return the number that the device gave the event of a row of the tap."""
    return int(event(row)["devicesequence"])


def is_manifest(row: Row) -> bool:
    """Return whether a row of the tap has a manifest."""
    return bool(event(row)["type"] == MANIFEST)


def sent(archive: Archive, device: str, hour: int | None = None) -> dict[int, Row]:
    """Return a device's rows of the tap by number."""
    return {number_of(row): row for row in archive.rows(TAP, hour) if row["client_id"] == device}


def manifest_of(archive: Archive, device: str, hour: int) -> Row:
    """Return the row of the tap with a device's first manifest of an hour."""
    return next(row for row in sent(archive, device, hour).values() if is_manifest(row))


def forget(archive: Archive, device: str, numbers: set[int]) -> None:
    """Delete all rows about these numbers of a device."""
    names = {
        (event(row)["source"], event(row)["id"])
        for number, row in sent(archive, device).items()
        if number in numbers
    }
    archive.edit(TAP, lambda row: None if (event(row)["source"], event(row)["id"]) in names else row)
    for folder in (LEDGER, HANDOVERS):
        archive.edit(folder, lambda row: None if (row["source"], row["id"]) in names else row)


def digest_of(row: Row) -> str:
    """Return the digest of the event of a row of the tap (docs/reference/audit.md#digests)."""
    return hashlib.sha256(row["event"].strip(" \t\n\r").encode()).hexdigest()[:32]


def agree(archive: Archive) -> None:
    """Let the ledger have the digests of the events that the tap has."""
    known = {
        (each["source"], each["id"], row["accepted_at_ms"]): digest_of(row)[16:]
        for row in archive.rows(TAP)
        if row["event"]
        for each in [event(row)]
    }
    archive.edit(
        LEDGER,
        lambda row: {
            **row,
            "digest": known.get((row["source"], row["id"], row["entered_at_ms"]), row["digest"]),
        },
    )


def restate(archive: Archive, device: str, after: int = 0, also: str = "") -> None:
    """Let a device's manifests behind number `after` state the events that the tap has; the ledger agrees.

    It may be `also` the client id under which it goes on.
    """
    rows = sent(archive, device) | sent(archive, also)
    for number, row in sorted(rows.items()):
        if is_manifest(row) and number > after:
            members = event(row)
            stated = members["data"]["statements"][0]
            numbers = rows.keys() & range(stated["first"], stated["last"] + 1)
            own = (int(digest_of(rows[each]), 16) for each in numbers)
            stated["digest"] = f"{sum(own) % (1 << 128):032x}"
            rows[number] = with_event(row, members)
    archive.edit(TAP, lambda row: rows[number_of(row)] if row["client_id"] in (device, also) else row)
    agree(archive)


def change_report(archive: Archive, row: Row, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Change the data of a report, and restate it; returns the members by which its finding is known."""
    members = event(row)
    altered = with_event(row, {**members, "data": change(members["data"])})
    archive.edit(TAP, lambda each: altered if each == row else each)
    restate(archive, row["client_id"], after=number_of(row))
    return {"device": row["client_id"], "id": members["id"], "sequence": number_of(row)}


def stating(place: int = 0, **members: Any) -> Callable[[Any], Any]:
    """Return the change of a manifest's data that gives one of its statements other members."""

    def change(data: Any) -> Any:
        stated = [*data["statements"]]
        stated[place] = {**stated[place], **members}
        return {**data, "statements": stated}

    return change


def is_report(row: Row) -> bool:
    """Return whether a row of the tap or the ledger is about a report of a forwarder."""
    kind = event(row)["type"] if "event" in row else row["type"]
    return str(kind).startswith(DEVICE_PREFIX)


def hour_ms(hour: int) -> int:
    """Return when an hour of the day begins, Unix milliseconds."""
    return DAY_MS + hour * HOUR_MS
