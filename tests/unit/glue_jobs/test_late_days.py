"""Days with rows that came after their verdict are judged again: by the next nightly audit, and no other."""

import gzip
import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import parse_event
from eventplane.written import Extent, WriterList
from glue_jobs.common import system
from glue_jobs.common.objects import FolderObjects
from glue_jobs.delivery_audit.audit import PYTHON, AuditRequest
from glue_jobs.delivery_audit.errors import EmptyWindowError, OutboxError
from glue_jobs.delivery_audit.late_days import late_days
from glue_jobs.delivery_audit.main import main, read_arguments, request_of
from glue_jobs.delivery_audit.small import file_small
from tests.spark.small_archive import CLOUD_MS, NOON_MS, SmallArchive

DAY_MS = 86_400_000


def day(number: int) -> str:
    return str(date(2026, 3, 1) + timedelta(days=number))


class Nights:
    """An archive whose writers list their objects, and what the nightly audits judge; days count from 0."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive = SmallArchive(folder / "archive")
        self.folder, self.output = folder / "archive", folder / "audit"
        self.opened = Counter[str]()
        self.now_ms = NOON_MS
        self._written = set[str]()
        self._lists = {each: WriterList(1, "0" * 16) for each in ("tap", "ledger")}
        monkeypatch.setattr(system, "now", lambda: datetime.fromtimestamp(self.now_ms / 1_000, UTC))
        read = FolderObjects.read

        def counted(objects: FolderObjects, name: str) -> bytes | None:
            self.opened[name] += 1
            return read(objects, name)

        monkeypatch.setattr(FolderObjects, "read", counted)

    def send(self, on: int, written: float | None = None, *, is_routed: bool = True) -> None:
        """An event is accepted at noon of a day; its rows are written then, or days after noon of 0."""
        accepted_ms = NOON_MS + on * DAY_MS
        later_ms = 0 if written is None else round((written - on) * DAY_MS)
        event = self.archive.event(at_ms=accepted_ms)
        (row,) = self.archive.accept(event, at_ms=accepted_ms)
        self.archive.tap[-1] = replace(row, archived_at_ms=row.archived_at_ms + later_ms)
        if is_routed:
            self.archive.route(event, at_ms=accepted_ms)
            self.archive.move(event, accepted_ms + CLOUD_MS + later_ms)

    def write(self, *, is_listed: bool = True, cut: int | None = None) -> list[str]:
        """Write the objects that are not there yet, and return their names; of a few bytes with `cut`."""
        made = []
        for known, body in self.archive.bodies().items():
            if known in self._written:
                continue
            self._written.add(known)
            # An object that moved keeps the last part of its name, so each has its own.
            name, folder = known.replace("/rows", f"/{len(self._written)}"), known.partition("/")[0]
            extent = Extent()
            for line in gzip.decompress(body).decode().splitlines() if folder in self._lists else ():
                extent.add(line)
            if is_listed and folder in self._lists:
                entry = self._lists[folder].next(name, extent, hashlib.sha256(body).hexdigest())
                self._lists[folder].kept(entry)
                put(self.folder / entry.name, b"")
            put(self.folder / name, body[:cut])
            made.append(name)
        return made

    def night(self, after: int, *, is_quiet: bool = False) -> dict[str, int]:
        """Send an event on a day, unless it `is_quiet`, and audit at 02:30 of the next one.

        Returns the revision of each day that was judged.
        """
        if not is_quiet:
            self.send(after)
        self.write()
        self.now_ms = NOON_MS + after * DAY_MS + 14 * 3_600_000 + 30 * 60_000
        self.reports: dict[str, dict[str, Any]] = {}
        self.words = ["--INPUT", str(self.folder), "--OUTPUT", str(self.output), "--DATE", "yesterday"]
        main(self.words, PYTHON, filed=lambda report: self.reports.update({report["window"]["date"]: report}))
        return {each: report["revision"]["number"] for each, report in self.reports.items()}

    def searched(self) -> list[str]:
        """Return the late days that the next night would judge."""
        self.now_ms += DAY_MS
        self.opened.clear()
        return late_days(request_of(read_arguments(self.words)))


def put(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Four days were judged."""
    made = Nights(tmp_path, monkeypatch)
    for each in range(4):
        assert made.night(each) == {day(each): 0}
    return made


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_day_is_judged_again_once(nights: Nights, is_listed: bool) -> None:
    """By the night after its row came; the verdict names what it replaces, and the night's the day."""
    nights.send(1, written=4, is_routed=False)
    nights.send(4)
    nights.write(is_listed=is_listed)
    assert nights.night(4, is_quiet=True) == {day(4): 0, day(1): 1}
    assert nights.reports[day(4)]["window"]["late_days"] == [day(1)]
    again = nights.reports[day(1)]
    assert (again["verdict"], again["revision"]["changed"]["lost"]) == ("broken", [0, 1])
    filed = json.loads((nights.output / f"verdicts/{day(1)}.json").read_text())
    before_ms = again["watermark"]["as_of_ms"] - 3 * DAY_MS
    assert filed["data"]["revision"]["replaces"] == f"{day(1)}-0-{before_ms}"
    assert nights.night(5) == {day(5): 0}


def test_each_object_is_opened_once_and_only_if_it_may_be_late(nights: Nights) -> None:
    nights.send(4)
    for late in (1, 2):
        nights.send(late, written=4)
    names = nights.write()
    nights.archive.send(at_ms=NOON_MS + 4 * DAY_MS + 3_600_000)
    punctual = nights.write()
    assert nights.searched() == [day(1), day(2)]
    assert [nights.opened[each] for each in names] == [1, 1]
    assert [nights.opened[each] for each in punctual] == [0, 0]


def test_what_was_decided_late_is_no_longer_lost(nights: Nights) -> None:
    nights.send(4)
    nights.send(4, is_routed=False)
    nights.night(4, is_quiet=True)
    lost = nights.reports[day(4)]["lost_by_hop"]["router"]
    event = parse_event(nights.archive.tap[-1].event or "")
    nights.archive.route(event, at_ms=NOON_MS + 4 * DAY_MS)
    nights.archive.move(event, NOON_MS + 5 * DAY_MS)
    assert nights.night(5) == {day(5): 0, day(4): 1}
    assert (lost, nights.reports[day(4)]["totals"]["lost"]) == (1, 0)


@pytest.mark.parametrize("cut", [0, 30, None], ids=["empty", "cut", "gone"])
def test_a_damaged_late_object_counts_for_its_writers_days(nights: Nights, cut: int | None) -> None:
    """Once: it is a finding of each, and no later night opens it."""
    nights.send(2, written=4)
    for each in nights.write(cut=cut):
        if cut is None:
            (nights.folder / each).unlink()
    assert nights.night(5) == {day(5): 0, day(2): 1, day(3): 1}
    report = nights.reports[day(2)]
    damaged = {each["kind"] for each in report["findings"]} & {"unreadable_object"}
    assert (len(damaged), report["totals"]["gone_objects"]) == ((1, 0) if cut is not None else (0, 2))
    assert nights.night(6) == {day(6): 0}


def test_an_audit_by_hand_hides_no_late_row(nights: Nights) -> None:
    """Its inventory has the late object, and it judged another day."""
    nights.send(1, written=4)
    nights.write()
    main([*nights.words[:-1], day(3)], PYTHON)
    assert nights.night(5) == {day(5): 0, day(1): 1}


def test_what_a_night_could_not_judge_the_next_one_does(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.send(1, written=4)

    def fails(request: AuditRequest, outbox: str | None) -> dict[str, Any]:
        if request.window.days == [day(1)]:
            raise OutboxError("https://queue", "no")
        return file_small(request, outbox)

    with monkeypatch.context() as broken:
        broken.setattr(f"{main.__module__}.file_small", fails)
        with pytest.raises(OutboxError):
            nights.night(4)
    assert nights.night(5) == {day(5): 0, day(1): 1}
    assert nights.night(6) == {day(6): 0}


def test_a_row_that_comes_while_a_night_audits_is_late(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search and the inventory, which has its object."""

    def overtaken(request: AuditRequest) -> list[str]:
        found = late_days(request)
        nights.send(1, written=4 + 14.4 / 24)
        nights.write()
        return found

    with monkeypatch.context() as busy:
        busy.setattr(f"{main.__module__}.late_days", overtaken)
        assert nights.night(4) == {day(4): 0}
    assert nights.night(5) == {day(5): 0, day(1): 1}
    assert nights.night(6) == {day(6): 0}


def test_a_day_without_a_row_may_have_late_ones(nights: Nights) -> None:
    nights.send(2, written=4)
    with pytest.raises(EmptyWindowError, match=day(4)):
        nights.night(4, is_quiet=True)
    assert nights.reports.keys() == {day(2)}
    assert nights.night(5) == {day(5): 0}


def test_two_nightly_audits_at_once_judge_a_day_twice_at_most(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both say the same of it, in two revisions that follow each other."""
    nights.send(1, written=4)
    others = list[dict[str, int]]()

    def overtaken(request: AuditRequest) -> list[str]:
        found = late_days(request)
        if not others:
            others.append({})
            others[0] |= nights.night(4, is_quiet=True)
        return found

    monkeypatch.setattr(f"{main.__module__}.late_days", overtaken)
    assert nights.night(4) == {day(4): 1, day(1): 2}
    assert others == [{day(4): 0, day(1): 1}]
    assert nights.reports[day(1)]["revision"]["changed"] == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verdict", None),
        ("window", []),
        ("watermark", {"as_of_ms": 10**20}),
        ("window", {"late_days": {"x": 1}}),
    ],
)
def test_a_false_verdict_hides_no_late_row(nights: Nights, name: str, value: object) -> None:
    path = nights.output / f"verdicts/{day(3)}.json"
    verdict = json.loads(path.read_text())
    verdict["data"][name] = value
    put(path, json.dumps(verdict).encode())
    put(nights.output / f"reports/{day(3)}/0.json", b"{}")
    nights.send(1, written=4)
    nights.write()
    assert day(1) in nights.searched()


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [(1, "chain", {}), (1, "chain", {"inventory": "../x"}), (3, "revision", {"number": "x"})],
)
def test_a_false_report_hides_no_other_day(nights: Nights, of: int, name: str, value: object) -> None:
    """It seems to be of an audit that was interrupted."""
    report = json.loads((nights.output / f"reports/{day(of)}/0.json").read_text())
    put(nights.output / f"reports/{day(of)}/1.json", json.dumps({**report, name: value}).encode())
    for each in (1, 2):
        nights.send(each, written=4)
    nights.write()
    assert day(2) in nights.searched()


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"watermark": {"as_of_ms": 1e999}}'])
def test_a_damaged_report_hides_no_late_row(nights: Nights, body: bytes) -> None:
    put(nights.output / f"reports/{day(3)}/0.json", body)
    nights.send(1, written=4)
    nights.write()
    assert day(1) in nights.searched()


def test_a_false_number_costs_one_read(nights: Nights) -> None:
    path = nights.output / f"verdicts/{day(3)}.json"
    verdict = json.loads(path.read_text())
    verdict["data"]["revision"]["number"] = 10**12
    put(path, json.dumps(verdict).encode())
    nights.send(1, written=4)
    nights.write()
    assert nights.searched() == [day(1)]


def test_the_last_hour_of_the_calendar_is_searched(nights: Nights) -> None:
    nights.send(1, written=4)
    nights.write()
    put(nights.folder / "tap/date=9999-12-31/hour=23/a.json.gz", gzip.compress(b"{}\n"))
    assert nights.searched() == [day(1)]


def test_no_verdict_at_all_is_no_late_day(nights: Nights) -> None:
    for each in range(4):
        put(nights.output / f"verdicts/{day(each)}.json", b"")
        put(nights.output / f"reports/{day(each)}/0.json", b"{}")
    nights.send(1, written=4)
    nights.write()
    assert nights.searched() == []
