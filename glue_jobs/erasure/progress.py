"""What an erasure has found and removed so far. An interrupted one goes on from there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eventplane.archive_layout import COMPACTED, ERASURES
from glue_jobs.common.objects import Objects, OldVersions, Stored
from glue_jobs.erasure.person import Person

FORMAT = 2
"""The version of plan and receipt."""

_PARTITION = re.compile(rf"(?:{COMPACTED}/)?(.+/date=[^/]+(?:/hour=[^/]+)?)/")


@dataclass(slots=True)
class Progress:
    """`rows` that were the person's by object, the audit's `documents` that named them, and the `changes`.

    It is written down before anything is removed: only by it a later run knows whose old versions to delete.
    `changes` has of each object the digest before, and the one after: None where it was deleted, '' while it
    is being replaced. By these an audit knows that the change was lawful.
    """

    person: Person
    rows: dict[str, int] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    changes: dict[str, list[str | None]] = field(default_factory=dict)

    @classmethod
    def resumed(cls, objects: Objects, person: Person) -> Progress:
        """Where an interrupted erasure of the person ended, or at the beginning."""
        body = objects.read(_plan(person))
        if body is None:
            return cls(person)
        members = json.loads(body)
        return cls(person, members["rows"], members["documents"], members.get("changes", {}))

    def note(self, objects: Objects, rows: Mapping[Stored, int], documents: Iterable[Stored] = ()) -> None:
        """Write down what is about to be removed: rows of objects, and whole documents."""
        documents = list(documents)
        for stored, count in rows.items():
            self.rows[stored.name] = max(count, self.rows.get(stored.name, 0))
        self.documents = sorted({*self.documents, *(each.name for each in documents)})
        for stored in (*rows, *documents):
            before, _ = self.changes.get(stored.name, (objects.digest(stored), ""))
            self.changes[stored.name] = [before, ""]
        self._write(objects)

    def settle(self, objects: Objects) -> None:
        """Take the digests of what has been replaced."""
        open_ones = [name for name, (_, after) in self.changes.items() if after == ""]
        folders = {name.rpartition("/")[0] for name in open_ones}
        now = {each.name: each for folder in folders for each in objects.beneath(folder)}
        for name in open_ones:
            self.changes[name][1] = objects.digest(now[name]) if name in now else None
        self._write(objects)

    def _write(self, objects: Objects) -> None:
        plan = {
            "format": FORMAT,
            "rows": self.rows,
            "documents": self.documents,
            "changes": self.changes,
        }
        objects.write(_plan(self.person), json.dumps(plan).encode())

    def old_versions(self) -> Iterator[str]:
        """The prefixes beneath which nothing may stay that was replaced or deleted.

        Whole hours, raw and compacted: what the lifecycle or the compaction took there had the rows as well.
        """
        for place in sorted({found[1] for name in self.rows if (found := _PARTITION.match(name))}):
            yield f"{place}/"
            yield f"{COMPACTED}/{place}/"
        yield from self.documents

    def receipt(self, until: datetime, old_versions: OldVersions) -> dict[str, Any]:
        """What was removed. It names no person; the same parameters make the same pseudonym."""
        tables: Counter[str] = Counter()
        for name, count in self.rows.items():
            tables[name.partition("/date=")[0]] += count
        return {
            "format": FORMAT,
            "pseudonym": self.person.pseudonym,
            "erased_at_ms": round(1_000 * until.timestamp()),
            "rows": dict(sorted(tables.items())),
            "objects": sorted(self.rows),
            "documents": self.documents,
            "changes": dict(sorted(self.changes.items())),
            "old_versions": old_versions.deleted,
            # They leave by themselves, once their lock has ended (docs/archive.md).
            "locked_versions": old_versions.locked,
        }

    def finish(self, objects: Objects, receipt: dict[str, Any]) -> None:
        """File the receipt, and forget the plan."""
        name = f"{ERASURES}/{self.person.pseudonym}/receipt-{receipt['erased_at_ms']}.json"
        objects.write(name, json.dumps(receipt, indent=1).encode() + b"\n")
        objects.delete([_plan(self.person)])


def _plan(person: Person) -> str:
    return f"{ERASURES}/{person.pseudonym}/plan.json"
