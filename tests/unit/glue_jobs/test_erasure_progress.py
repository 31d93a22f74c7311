"""Whose a row is, what an erasure writes down, and which old versions it knows by that."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from eventplane.archive_layout import ERASED
from eventplane.dead_letter import letter_id
from eventplane.device_reports import MANIFEST, short_digest
from glue_jobs.common.attestation import attest, open_key
from glue_jobs.common.objects import FolderObjects, OldVersions, Stored
from glue_jobs.delivery_audit.chain import ALTERED, attested_by
from glue_jobs.erasure import main as job
from glue_jobs.erasure.names import NUMBER, mark
from glue_jobs.erasure.person import Eraser, Person, Shared, TooWideError
from glue_jobs.erasure.portions import Erased, Portion, Survey
from tests.fakes.s3 import MemoryObjects

PERSON = Person("//home-1/", "home-1")
HOUR = "date=2026-03-01/hour=12"


def stored(objects: FolderObjects, name: str, content: bytes = b"with") -> Stored:
    objects.write(name, content)
    return next(each for each in objects.beneath(name.rpartition("/")[0]) if each.name == name)


def surveyed(rows: dict[str, int], redacted: dict[str, int] | None = None) -> Survey:
    remain = Counter({(name, "compressed"): 1 for name in rows})
    return Survey(Counter(rows), Counter(redacted or {}), remain)


def test_old_versions_are_those_of_whole_hours_raw_and_compacted(tmp_path: Path) -> None:
    progress = Erased(open_key(None), PERSON)
    objects = FolderObjects(tmp_path)
    compacted, findings = (
        f"compacted/tap/{HOUR}/run=abc/part-0.parquet",
        "audit/findings/date=2026-03-01/a.parquet",
    )
    progress.count(surveyed({compacted: 3}, {findings: 1}))
    progress.note(
        objects,
        [stored(objects, name) for name in (compacted, findings)],
        [stored(objects, "audit/report.json")],
    )
    prefixes = list(progress.old_versions())
    assert {f"tap/{HOUR}/", f"compacted/tap/{HOUR}/", "audit/findings/date=2026-03-01/"} <= set(prefixes)
    assert prefixes[-1] == "audit/report.json"
    # Nothing that would take in another hour, or a whole table.
    assert all("date=2026-03-01/" in each for each in prefixes[:-1])


def test_what_was_noted_outlives_an_interruption_and_is_counted_once(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    name = f"tap/{HOUR}/a.json.gz"
    first, document = stored(objects, name), stored(objects, "audit/report.json")
    cut = Erased(open_key(None), PERSON, shared=Shared(frozenset({"claim"}), {"old": "new"}))
    cut.count(surveyed({name: 5}, {name: 2}))
    cut.note(objects, [first], [document])
    before = objects.digest(first)
    objects.write(name, b"without")
    objects.delete([document.name])
    resumed = Erased.resumed(objects, open_key(None), PERSON)
    assert resumed.shared == cut.shared
    second = stored(objects, f"ledger/{HOUR}/b.json.gz")
    resumed.count(surveyed({name: 2, second.name: 1}))
    resumed.note(objects, [stored(objects, name, b"without"), second])
    resumed.settle(objects)
    assert resumed.changes[name] == [before, objects.digest(first)]
    assert resumed.changes[document.name] == [objects.digest(second), None]
    receipt = resumed.receipt(datetime(2026, 3, 2, tzinfo=UTC), OldVersions(4, 1))
    assert (receipt["old_versions"], receipt["locked_versions"]) == (4, 1)
    assert (receipt["rows"], receipt["redacted"]) == ({"ledger": 1, "tap": 5}, {"tap": 2})
    assert receipt["may_remain"] == [
        {"object": each, "rows": 1, "reason": "compressed"} for each in (second.name, name)
    ]
    assert receipt["documents"] == ["audit/report.json"]
    resumed.finish(objects, receipt)
    assert Erased.resumed(objects, open_key(None), PERSON).rows == {}
    assert Erased.resumed(objects, open_key(None), Person("//home-2/")).rows == {}


def test_the_plan_of_an_earlier_version_is_resumed(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    plan = {"format": 2, "rows": {"tap/a": 3}, "documents": ["audit/b"], "changes": {"tap/a": ["1", ""]}}
    name = f"erasures/{PERSON.pseudonym}/plan.json"
    objects.write(name, attest(open_key(None), name, plan))
    resumed = Erased.resumed(objects, open_key(None), PERSON)
    assert (resumed.rows, resumed.redacted, resumed.documents) == ({"tap/a": 3}, {}, ["audit/b"])
    assert resumed.shared == Shared()


class PowerCutError(Exception):
    pass


class CutObjects(FolderObjects):
    """A folder whose power fails at a step: before or behind a write, or within a move, as in a bucket."""

    def __init__(self, root: Path, cut: int) -> None:
        super().__init__(root)
        self._left = cut

    def write(self, name: str, body: bytes) -> None:
        self._cut(super().write, name, body)

    def move(self, name: str, target: str) -> None:
        self.write(target, self.read(name) or b"")
        self.delete([name])

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._cut(super().delete, [name])

    def _cut(self, work: Callable[..., None], *arguments: Any) -> None:
        for step in (lambda: None, lambda: work(*arguments)):
            step()
            self._left -= 1
            if self._left == 0:
                raise PowerCutError


class LocalRows:
    """Rows in memory, read as `Portion` reads those of Spark."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rdd = self
        self._rows = list(rows)

    def mapPartitions(self, made: Callable[[Iterable[Any]], Iterable[Any]]) -> LocalRows:  # noqa: N802
        return LocalRows(made(self._rows))

    def fold(self, first: Any, add: Callable[[Any, Any], Any]) -> Any:
        return add(first, *self._rows)

    def collect(self) -> list[Any]:
        return self._rows


def rows_in_memory(portion: Portion, _: object, objects: FolderObjects) -> LocalRows:
    texts = ((each.name, gzip.decompress(objects.read(each.name) or b"").decode()) for each in portion.stored)
    return LocalRows(Row(value=line, file=name) for name, text in texts for line in text.splitlines())


def erase(objects: FolderObjects, home: str, hour: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job, but for the search that follows it."""
    with monkeypatch.context() as patched:
        patched.setattr(job, "open_archive", lambda _: objects)
        patched.setattr(job, "job_session", lambda: None)
        patched.setattr(job, "naming", lambda *_: [])
        patched.setattr(Portion, "rows", rows_in_memory)
        job.main(["--INPUT", "", "--SOURCE", f"//{home}/"], datetime(2026, 3, 2, hour, tzinfo=UTC))


@pytest.mark.long
@pytest.mark.parametrize("between", ["nothing", "another erasure", "a foreign write"])
def test_a_kill_at_any_step(between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign, is_cut = f"tap/{HOUR}/a.json.gz", True
    for cut in count(1):
        objects = FolderObjects(_made(tmp_path / str(cut)))
        for name in ("a", "b"):
            rows = (tap_line(f"home-{at}", subject=f"home-1 home-2 of {name}") for at in (1, 2, 3))
            objects.write(f"tap/{HOUR}/{name}.json.gz", gzip.compress("\n".join(rows).encode()))
        objects.write("audit/report.json", b'{"of":"home-1"}')
        before = {each.name: objects.digest(each) for each in objects.beneath("")}
        try:
            erase(CutObjects(tmp_path / str(cut), cut), "home-1", 1, monkeypatch)
            is_cut = False
        except PowerCutError:
            pass
        if between == "another erasure":
            erase(objects, "home-2", 2, monkeypatch)
        elif between == "a foreign write":
            objects.write(foreign, gzip.compress(tap_line("home-4").encode()))
        erase(objects, "home-1", 3, monkeypatch)
        now = {each.name: objects.digest(each) for each in objects.beneath("")}
        attested = attested_by(open_key(None), objects, [])
        changes = {name: attested.change(name, old, now.get(name), "then") for name, old in before.items()}
        if between == "a foreign write":
            change = changes.pop(foreign)
            assert change.what == ALTERED
        assert {each for each in changes.values() if each} == set()
        assert attested.unfinished == {}
        if not is_cut:
            break
    assert cut > 20


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


EVENT = {"specversion": "1.0", "id": "1", "source": "//home-2/bell", "type": "org.example.a.v1"}


def tap_line(client_id: str, **members: object) -> str:
    event = json.dumps({**EVENT, **members})
    return json.dumps(
        {"accepted_at_ms": 1, "client_id": client_id, "topic": f"devices/{client_id}", "event": event}
    )


def row_of(line: str) -> dict[str, object]:
    members = json.loads(line)
    event = json.loads(members.pop("event"))
    return {**members, **event}


@pytest.mark.parametrize(
    "members",
    [
        {"client_id": "home-1"},
        {"thing": "home-1", "state": "provisioned"},
        {"client_id": "home-1", "sender": "home-1/voice", "source": "//relay", "id": "1"},
        {"client_id": None, "sender": "home-1/voice", "source": "//relay", "id": "1"},
        {"client_id": "home-1", "sender": "eventplane", "source": "//router", "id": "dead"},
        {"device": "home-1", "kind": "lost", "source": "//relay"},
        {"body": '{"data":"AAAA","clientid":"home-1"}', "reason": "bad_frame"},
        {"line_text": '{"accepted_at_ms":1,"client_id":"home-1","event":"{\\"client_id\\":\\"home-2'},
    ],
)
def test_a_row_of_the_person_s_device_is_the_person_s(members: dict[str, object]) -> None:
    assert Eraser(PERSON).row(members).own


@pytest.mark.parametrize(
    "members",
    [
        {"client_id": "home-2", "source": "//home-1/bell", "id": "1"},
        {"client_id": "home-2", "sender": "home-1/voice", "source": "//home-1/bell", "id": "1"},
        {"client_id": None, "sender": "care", "source": "//home-1/bell", "id": "home-1.1"},
        {"client_id": None, "sender": "presence-monitor", "source": "/presence", "id": "home-1.1.3.quiet"},
        {"client_id": "home-1:2", "subject": "//home-1"},
        {"client_id": "HOME-1", "subject": "home-1"},
        {"device": None, "detail": "as home-1 said"},
        {"line_text": '{"client_id":"home-2","event":"{\\"client_id\\":\\"home-1\\"'},
        {"text": '{"event":"//home-1/x'},
    ],
)
def test_a_row_of_another_party_is_redacted_and_stays(members: dict[str, object]) -> None:
    change = Eraser(PERSON).row(members)
    assert not change.own
    assert change.members
    assert {*change.members} <= {*members}
    assert not any(Eraser(PERSON).names(str(value)) for value in {**members, **change.members}.values())


@pytest.mark.parametrize(
    "members",
    [
        {"client_id": 5, "sender": ["home-1"], "event": {"of": "home-1"}},
        {"client_id": {"home-1": 1}, "event": 5, "source": None, "id": 7},
        {"outcome": "dead_lettered", "sender": 1, "source": [], "id": "home-1"},
        {"line_text": "[" * 999 + '"home-1"'},
        {"event": '{"id":"home-1","data":', "digest": 5},
    ],
)
def test_a_row_of_other_types_is_redacted_and_stops_nothing(members: dict[str, object]) -> None:
    line, change = Eraser(PERSON).line(json.dumps(members))
    assert not change.own
    assert not Eraser(PERSON).names(line)
    assert json.loads(line).keys() >= members.keys()


@pytest.mark.parametrize(
    ("source", "is_claimed"),
    [("//home-1/bell", True), ("//home-1", True), ("//home-1:2/bell", False), ("//home-10/", False)],
)
def test_a_source_of_the_person(source: str, is_claimed: bool) -> None:
    assert Person("//home-1").claims(source) is is_claimed


def test_a_redacted_event_keeps_its_identity_its_other_text_and_its_digest() -> None:
    line = tap_line("home-2", subject="/devices/home-1/bell", data={"note": "home-1 is ill", "n": [1.50, 2]})
    redacted, change = Eraser(PERSON).line(line)
    before, after = row_of(line), row_of(redacted)
    assert after.pop("digest") == short_digest(json.loads(line)["event"].encode())
    assert {name for name in before if before[name] != after[name]} == {"subject", "data"}
    assert str(after["data"]["note"]).endswith(" is ill")  # type: ignore[index]
    assert "[1.5, 2]" in json.loads(redacted)["event"]
    assert (change.own, change.may_remain, change.shared) == (False, frozenset(), Shared())
    assert Eraser(PERSON).line(redacted)[0] == redacted
    other = Eraser(Person("//ill.example/", "bell"))
    assert json.loads(other.line(redacted)[0])["digest"] == json.loads(redacted)["digest"]


@pytest.mark.parametrize(
    "members",
    [
        {"source": "//home-1/bell", "data": {"pulse": 80}},
        {"source": "//home-1/bell", "data_base64": "cHVsc2U="},
        {"source": "//ingest", "data": {"sender": {"device": "home-1"}, "original_base64": "cHVsc2U="}},
    ],
)
def test_the_data_of_a_source_of_the_person_goes_whoever_sent_it(members: dict[str, object]) -> None:
    name = next(each for each in members if each.startswith("data"))
    texts = set()
    for more in ({}, {"subject": "x"}):
        redacted, change = Eraser(PERSON).line(tap_line("home-2", **members, **more))
        assert not change.own
        assert "pulse" not in redacted
        assert "cHVsc2U" not in redacted
        texts.add(str(row_of(redacted)[name]))
    assert len(texts) == 1


def test_what_others_share_with_the_person_s_rows_stays_together() -> None:
    """An event of another under the person's names was refused: its letter, and the person's own event."""
    ledger = {"sender": "home-2/voice", "client_id": "home-2", "source": "//home-1/bell", "id": "home-1.7"}
    refused = {**ledger, "outcome": "dead_lettered", "reason": "payload_invalid"}
    shared = Eraser(PERSON).row(refused).shared
    ((old, new),) = shared.letters.items()
    assert old == letter_id("home-2/voice", "//home-1/bell", "home-1.7")
    eraser = Eraser(PERSON, shared)
    said = {**refused, **eraser.row(refused).members}
    assert new == letter_id(said["sender"], said["source"], said["id"])
    letter = {"sender": "eventplane", "client_id": "home-2", "source": "//router", "id": old}
    assert eraser.row(letter).members == {"id": new}
    own = {**ledger, "sender": "home-1/voice", "client_id": "home-1"}
    assert Eraser(PERSON).row(own).own
    kept = eraser.row(own)
    assert not kept.own
    assert {name: kept.members[name] for name in ("source", "id")} == {
        name: said[name] for name in ("source", "id")
    }


@pytest.mark.parametrize("client", ["1234", "123456789012345"])
@pytest.mark.parametrize(
    ("members", "may_remain"),
    [
        ({"devicesequence": "{}", "sequence": "{}", "routerhops": 0, "orderin": "a/low/12345678/{}"}, False),
        ({"type": MANIFEST, "data": {"first": 0, "version": "{}", "list": [0]}}, False),
        ({"data": {"serial": 0}}, True),
        ({"data": '{"list":[0]}'}, True),
        ({"data_base64": "eyJhIjogMH0="}, False),
    ],
)
def test_equal_numbers_of_others_stay(client: str, members: dict[str, Any], may_remain: bool) -> None:
    text = json.dumps(members).replace("0", client).replace("{}", client)
    line = tap_line("home-2", **json.loads(text))
    row = {**json.loads(line), "attempt": int(client), "devicesequence": client}
    change = Eraser(Person("//home-1/", client)).line(json.dumps(row))
    assert change[0] == json.dumps(row)
    assert change[1].may_remain == ({NUMBER} if may_remain and len(client) > 6 else set())


def test_a_device_with_a_number_as_its_name_has_the_mark_of_an_erased_one() -> None:
    eraser = Eraser(Person("//home-1/", "4829173"))
    line, change = eraser.line(tap_line("home-2", subject="4829173", replydevice="4829173"))
    assert not change.own
    assert row_of(line)["replydevice"] == mark("4829173")
    assert mark("4829173").startswith(ERASED)


@pytest.mark.parametrize("source", ["", "/", "//", "//a", "urn"])
def test_a_prefix_of_everybody_is_refused(source: str) -> None:
    with pytest.raises(TooWideError):
        Person(source)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"routes":{"to-care":1}',
        b'["to-care"]',
        b'{"routes":[1]}',
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_an_unreadable_contract_ends_no_erasure(body: bytes) -> None:
    """Whatever such a one quotes may still be a name of it, and of everybody's rows."""
    objects = MemoryObjects({"contracts/0.json": body})
    job.refuse_names_of_the_contract(objects, Person("//home-1/", "home-1"))
    if b"to-care" in body:
        with pytest.raises(TooWideError):
            job.refuse_names_of_the_contract(objects, Person("//home-1/", "to-care"))
