"""What is deleted by hand from a copy of the archive, and what counts as noticed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from local.demo.deletion import Deletion, NothingToDeleteError, copy_without_one

DELIVERED = {"source": "/a", "id": "1", "type": "t", "outcome": "delivered", "client_id": "home-1"}


def write(archive: Path, name: str, *rows: dict[str, Any]) -> Path:
    file = archive / "ledger" / "date=2026-03-01" / "hour=00" / f"{name}.json.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    return file


def test_an_object_s_deliveries_are_gone_from_the_copy_only(tmp_path: Path) -> None:
    archive, copy = tmp_path / "archive", tmp_path / "copy"
    kept = write(archive, "small", DELIVERED)
    others = [
        {**DELIVERED, "id": f"other-{at}", **each}
        for at, each in enumerate(
            ({"outcome": "dead_lettered"}, {"client_id": None}, {"type": DEAD_LETTER_TYPE}) * 9
        )
    ]
    gone = write(
        archive, "most", DELIVERED, *others, {**DELIVERED, "route": "another"}, {**DELIVERED, "id": "2"}
    )
    write(archive, "larger", *others, *others)
    write(archive, "empty")
    before = gone.read_bytes()

    deletion = copy_without_one(archive, copy)

    assert deletion.file == "ledger/date=2026-03-01/hour=00/most.json.gz"
    assert deletion.events == {("/a", "1"), ("/a", "2")}
    assert gone.read_bytes() == before
    left = gzip.decompress((copy / deletion.file).read_bytes()).splitlines()
    assert [json.loads(line) for line in left] == others
    assert (copy / kept.relative_to(archive)).read_bytes() == kept.read_bytes()


def test_an_object_of_deliveries_alone_is_gone(tmp_path: Path) -> None:
    archive, copy = tmp_path / "archive", tmp_path / "copy"
    write(archive, "only", DELIVERED)
    assert not (copy / copy_without_one(archive, copy).file).exists()


@pytest.mark.parametrize(("place", "noticed"), [("ledger/a", True), ("ledger", True), ("tap/a", False)])
def test_an_object_that_is_gone_is_noticed_as_a_hole(place: str, noticed: bool) -> None:
    hole = {"kind": "missing_records", "archive_file": place}
    report = {"verdict": "incomplete", "totals": {"lost": 0}, "findings": [hole]}
    assert Deletion("ledger/a", frozenset({("/a", "1")})).seen_by(report)["noticed"] == noticed


def test_where_nothing_can_be_deleted_the_remedy_is_told(tmp_path: Path) -> None:
    write(tmp_path, "other", {**DELIVERED, "outcome": "expired"})
    with pytest.raises(NothingToDeleteError, match="play more events"):
        copy_without_one(tmp_path, tmp_path / "copy")


@pytest.mark.parametrize(
    ("verdict", "lost", "noticed"),
    [
        ("broken", [("/a", "1"), ("/a", "1")], True),
        ("broken", [("/a", "1"), ("/b", "9")], False),
        ("broken", [], False),
        ("proven", [], False),
    ],
)
def test_only_the_objects_own_events_are_evidence(
    verdict: str, lost: list[tuple[str, str]], noticed: bool
) -> None:
    findings = [{"kind": "lost", "source": source, "id": id, "route": "r"} for source, id in lost]
    findings.append({"kind": "duplicate", "source": "/b", "id": "9", "route": "r"})
    report = {"verdict": verdict, "totals": {"lost": len(lost)}, "findings": findings}
    seen = Deletion("ledger/a", frozenset({("/a", "1"), ("/a", "2")})).seen_by(report)
    assert (seen["noticed"], seen["lost"], seen["events"]) == (noticed, len(lost), 2)
    assert seen["evidence"] == sorted({(*key, "r") for key in lost})
