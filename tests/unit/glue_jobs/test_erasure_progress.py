"""What an erasure writes down, and which old versions it knows by that."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from glue_jobs.common.attestation import open_key
from glue_jobs.common.objects import FolderObjects, OldVersions, Stored
from glue_jobs.erasure.person import Person, TooWideError
from glue_jobs.erasure.portions import Progress

PERSON = Person("//home-1/", "home-1")
HOUR = "date=2026-03-01/hour=12"


def stored(objects: FolderObjects, name: str, content: bytes = b"with") -> Stored:
    objects.write(name, content)
    return next(each for each in objects.beneath(name.rpartition("/")[0]) if each.name == name)


def test_old_versions_are_those_of_whole_hours_raw_and_compacted(tmp_path: Path) -> None:
    progress = Progress(open_key(None), PERSON)
    objects = FolderObjects(tmp_path)
    rows = {
        stored(objects, f"compacted/tap/{HOUR}/run=abc/part-0.zstd.parquet"): 3,
        stored(objects, "audit/findings/date=2026-03-01/part-0.parquet"): 1,
    }
    progress.note(objects, rows, [stored(objects, "audit/report.json")])
    prefixes = list(progress.old_versions())
    assert {f"tap/{HOUR}/", f"compacted/tap/{HOUR}/", "audit/findings/date=2026-03-01/"} <= set(prefixes)
    assert prefixes[-1] == "audit/report.json"
    # Nothing that would take in another hour, or a whole table.
    assert all("date=2026-03-01/" in each for each in prefixes[:-1])


def test_what_was_noted_outlives_an_interruption_and_is_counted_once(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    name = f"tap/{HOUR}/a.json.gz"
    first, document = stored(objects, name), stored(objects, "audit/report.json")
    Progress(open_key(None), PERSON).note(objects, {first: 5}, [document])
    before = objects.digest(first)
    objects.write(name, b"without")
    objects.delete([document.name])
    resumed = Progress.resumed(objects, open_key(None), PERSON)
    second = stored(objects, f"ledger/{HOUR}/b.json.gz")
    resumed.note(objects, {stored(objects, name, b"without"): 2, second: 1})
    resumed.settle(objects)
    assert resumed.changes[name] == [before, objects.digest(first)]
    assert resumed.changes[document.name] == [objects.digest(second), None]
    receipt = resumed.receipt(datetime(2026, 3, 2, tzinfo=UTC), OldVersions(4, 1))
    assert (receipt["old_versions"], receipt["locked_versions"]) == (4, 1)
    assert receipt["rows"] == {"ledger": 1, "tap": 5}
    assert receipt["documents"] == ["audit/report.json"]
    resumed.finish(objects, receipt)
    assert Progress.resumed(objects, open_key(None), PERSON).rows == {}
    assert Progress.resumed(objects, open_key(None), Person("//home-2/")).rows == {}


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ('{"source":"//home-1/bell"}', True),
        (r'{"event":"{\"source\":\"//home-1/bell\"}"}', True),
        ('{"client_id":"home-1"}', True),
        (r'{"event":"{\"device\":\"home-1\"}"}', True),
        ("home-1.1772366400000.3.disconnected", True),
        ('{"subject":"/devices/home-1/router"}', True),
        (base64.b64encode(b'{"sender":"home-1/voice"}').decode(), True),
        (base64.b64encode(b'{"sender":"home-17/voice"}').decode(), False),
        ("home-17 home-1-annex my-home-1 home-1_2", False),
        ('{"source":"//home-10/bell","client_id":"home-10"}', False),
    ],
)
def test_a_text_names_the_person_or_somebody_else(text: str, is_named: bool) -> None:
    assert PERSON.is_named_in(text) is is_named


@pytest.mark.parametrize("source", ["", "/", "//", "//a", "urn"])
def test_a_prefix_of_everybody_is_refused(source: str) -> None:
    with pytest.raises(TooWideError):
        Person(source)
