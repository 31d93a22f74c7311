"""A small archive judged without Spark: its rows in groups, and what their judgement comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from itertools import count
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from eventplane.archive_layout import HANDOVERS_FOLDER, LEDGER_FOLDER, TAP_FOLDER
from eventplane.contract import Contract
from eventplane.ledger import LedgerRecord
from eventplane.values import timestamp_ms
from glue_jobs.common.attestation import open_key
from glue_jobs.common.hours import Days, Hour
from glue_jobs.common.lines import PlainArchive
from glue_jobs.delivery_audit import judging
from glue_jobs.delivery_audit.contracts import ContractHistory, Use, archived, load_history
from glue_jobs.delivery_audit.event_group import EventGroup, Judgement, LedgerRow, RowCount, Ruling
from glue_jobs.delivery_audit.expect import expected_routes
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import BROKEN_KINDS, Finding
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.judging import usages
from glue_jobs.delivery_audit.plain_rows import handover_rows, ledger_rows, tap_rows
from glue_jobs.delivery_audit.rows import event_groups
from glue_jobs.delivery_audit.rules import LATENESS_S, MissingRows, Rules, Watermark, Window
from tests.fakes.s3 import MemoryObjects
from tests.spark.small_archive import SmallArchive

FILES = {name: f"{name}/date=2026-03-01/hour=12/rows.json.gz" for name in ("tap", "ledger", "handovers")}
_FAULTS = (
    *("lost", "misrouted", "unexplained", "expired", "dropped", "unrecorded", "not_understood", "pending"),
    "duplicated",
)
AS_OF = "2026-04-01T00:00:00Z"
ALL_DAYS = Window()


class Judged:
    """What a judgement comes to, by the figures of the report."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self._figures = Figures(judging.Judged(judgement))

    def route(self, name: str) -> Counter[str]:
        """The counts of one route."""
        return _total(row for row in self._figures.routes if row["route"] == name)

    @property
    def totals(self) -> Counter[str]:
        """The sums of all that is counted by route."""
        return _total(self._figures.routes) + Counter(to_replay=self._figures.to_replay)

    @property
    def routes(self) -> set[str]:
        """The routes on which something was judged."""
        return {row["route"] for row in self._figures.routes}

    def consumed(self) -> dict[tuple[str, str], int]:
        """The counts of the last hop by inbox and verdict."""
        verdicts = set(map(str, Ruling))
        return {
            (row["channel"], name): row[name]
            for row in self._figures.consumers
            for name in verdicts & row.keys()
            if row[name]
        }

    def accounts(self) -> dict[str, dict[str, int]]:
        """What became of the events at each inbox, '' for all."""
        return {
            row.pop("inbox") or "": {fate: count for fate, count in row.items() if count}
            for row in self._figures.accounts
        }

    def letters(self) -> dict[tuple[str, str | None], tuple[int, int]]:
        """Dead letters by place and reason: how many there are, and how many are missing."""
        return {
            (row["place"], row["reason"]): (row["count"], row["missing"])
            for row in self._figures.dead_letters
        }

    def inboxes(self) -> dict[str, tuple[int, ...]]:
        """Events, messages, and events that may expire, by inbox."""
        return {name: tuple(counts.values()) for name, counts in self._figures.by_destination.items()}

    def rows(self) -> dict[tuple[str, str | None], int]:
        """Rows by archive, and why they are in quarantine."""
        counts = self.judgement.counts.items()
        return {(key.archive, key.reason): count for key, count in counts if isinstance(key, RowCount)}

    def faults(self) -> dict[str, int]:
        """The figures that should be zero, where they are not."""
        last, letters = _total(self._figures.consumers), _total(self._figures.dead_letters)
        totals = self.totals
        found = {name: totals[name] for name in _FAULTS} | {
            "lost": totals["lost"] + last["lost"] + self._figures.items["lost"],
            "dead_lettered": letters["count"] + last["dead_lettered"],
            "quarantined": _total(self._figures.quarantine)["rows"],
        }
        return {name: count for name, count in found.items() if count}

    @property
    def findings(self) -> list[Finding]:
        """The findings, those that break a promise first."""
        return sorted(self.judgement.findings, key=lambda each: each.kind not in BROKEN_KINDS)

    def kinds(self) -> list[tuple[str, str | None, str | None]]:
        """What was found: kind, device and route."""
        found = ((each.kind, each.device, each.route) for each in self.judgement.findings)
        return sorted(found, key=lambda each: tuple(member or "" for member in each))

    def found(self) -> set[tuple[str, str, str | None]]:
        """What was found: kind, hop and id."""
        return {(each.kind, each.hop, each.id) for each in self.judgement.findings}


def _total(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """The sums of all counts of some rows."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({name: value for name, value in row.items() if isinstance(value, int)})
    return found


def judged(
    archive: SmallArchive,
    *,
    twice: bool = False,
    tap: Mapping[str, Any] = MappingProxyType({}),
    ledger: Mapping[str, Any] = MappingProxyType({}),
    **others: Any,
) -> Judged:
    """Judge all rows of an archive, each in two objects if `twice`; `others` are parameters of `rules_of`.

    The rows of `tap` and `ledger` have these other members.
    """
    rules = rules_of(archive, **others)
    made = Judgement()
    for group in groups_of(archive, rules.history.contracts, rules.window):
        changed = {
            "tap": [row._replace(**tap) for row in group.tap],
            "ledger": [row._replace(**ledger) for row in group.ledger],
        }
        cut = group._replace(**changed)
        if judging.is_within(cut, rules.window):
            judge(in_two_objects(cut) if twice else cut, rules, made)
    return Judged(made)


def in_two_objects(group: EventGroup) -> EventGroup:
    """The group whose rows lie in another object as well."""
    names = ("tap", "ledger", "handovers", "items")
    again = {
        name: [row._replace(file=row.file.replace("rows", "rows2")) for row in getattr(group, name)]
        for name in names
    }
    return group._replace(**{name: [*getattr(group, name), *again[name]] for name in names})


def rules_of(
    archive: SmallArchive,
    as_of: str = AS_OF,
    lateness_s: int = LATENESS_S,
    window: Window | None = None,
    damaged: Mapping[str, frozenset[Hour]] | None = None,
    missing: Mapping[str, Sequence[MissingRows]] | None = None,
) -> Rules:
    """The rules by which an archive is judged."""
    watermark = Watermark(timestamp_ms(as_of), lateness_s)
    return Rules(history_of(archive), watermark, window or Window(), damaged or {}, missing=missing or {})


def history_of(archive: SmallArchive) -> ContractHistory:
    """The contracts of an archive in the order of their first use."""
    objects = MemoryObjects(archive.bodies())
    history, _ = load_history(objects, archived(objects), usages(map(ledger_row, archive.ledger)))
    return history


def groups_of(
    archive: SmallArchive, contracts: Iterable[Contract], window: Window = ALL_DAYS
) -> list[EventGroup]:
    """The rows of an archive as groups, as the audit of `window` has them."""
    source = PlainArchive(MemoryObjects(archive.bodies()))
    tap, ledger, handovers = (
        source.read(source.listed(folder, Days(), open_key(None))).rows
        for folder in (TAP_FOLDER, LEDGER_FOLDER, HANDOVERS_FOLDER)
    )
    numbers: defaultdict[Any, int] = defaultdict(count().__next__)
    number = numbers.__getitem__
    routes = expected_routes(ContractHistory(tuple(Use(each, None) for each in contracts)))
    rows = [each.grouped for each in tap_rows(tap, window, routes, number)]
    rows += ledger_rows(ledger, window, number) + handover_rows(handovers, window, number)
    letters = judging.received_dead_letters(map(ledger_row, archive.ledger))
    given_up = judging.letters_of_readers(map(ledger_row, archive.ledger))
    return [group for _, group in event_groups(sorted(rows, key=itemgetter(0)), letters, given_up)]


def ledger_row(record: LedgerRecord) -> LedgerRow:
    return LedgerRow(*(getattr(record, each.name) for each in fields(record)), FILES["ledger"])


def nothing_is_accused(report: Judged) -> bool:
    """Whether no hop is said to have failed, and nothing is to be sent again."""
    return not any(each.kind in BROKEN_KINDS for each in report.findings) and not report.judgement.replay


def at_noon(folder: str) -> dict[str, frozenset[Hour]]:
    """Say that the records of the hour from noon may be missing in a folder."""
    return {folder: frozenset({hour("2026-03-01T12")})}


def hour(text: str) -> Hour:
    """The hour that begins at a time like `2026-03-01T12`."""
    return Hour(datetime.fromisoformat(text).replace(tzinfo=UTC))
