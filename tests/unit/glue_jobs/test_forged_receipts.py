"""Forged receipts allow no change of the archive; those that compaction and erasure attested do."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER, Folder
from eventplane.written import Entry, Extent, WriterList
from glue_jobs.common.archive import ArchivePart
from glue_jobs.common.attestation import FileKey, attest, attest_old, open_key
from glue_jobs.common.hours import Days, Hour
from glue_jobs.common.listing import HourReceipt, Listing, publish, write_receipt
from glue_jobs.common.objects import BucketObjects, FolderObjects
from glue_jobs.delivery_audit.chain import ADDED, ALTERED, REMOVED, UNFINISHED, Chain, chain_of
from tests.fakes.s3 import FakeS3
from tests.unit.glue_jobs.test_chain import LISTED_MS, Verdicts

RAW, SEALED, RAW_TOO = (Hour(datetime(2026, 3, 1, hour, tzinfo=UTC)) for hour in (12, 13, 14))
"""An hour of raw objects, a compacted one without them, and a compacted one with them."""
A, B = (f"{RAW.raw('tap')}/{name}.json.gz" for name in "ab")
E = f"{RAW_TOO.raw('tap')}/e.json.gz"
ERASED = f"{RAW.raw('tap')}/erased.json.gz"
SEALED_RAW = f"{SEALED.raw('tap')}/c.json.gz"
COMPACTED_HOURS = (SEALED, "tap"), (SEALED, "ledger"), (RAW_TOO, "tap")
FILE = f"{SEALED.compacted('tap')}/run=1/part-0.parquet"
FILE_TOO = f"{RAW_TOO.compacted('tap')}/run=1/part-0.parquet"
NEW = f"{RAW.compacted('tap')}/run=1/part-0.parquet"
TRUE = "erasures/p/receipt-5.json"
FORGED = "erasures/q/receipt-6.json"
PLAN = "erasures/q/plan.json"


class World:
    """An archive in a folder that was compacted and audited, and the audits of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir()
        self.objects = FolderObjects(root)
        self.key = open_key(None)
        self.verdicts = Verdicts()
        for name in (A, B, ERASED, E, SEALED_RAW, f"{SEALED.raw('ledger')}/d.json.gz"):
            self.write(name)
            self.enter(name)
        self.compact(SEALED)
        self.compact(SEALED, LEDGER_FOLDER)
        self.compact(RAW_TOO, keeps_raw=True)
        assert self.audit() == ({}, set())

    def write(self, name: str, body: bytes | None = None) -> None:
        self.objects.write(name, body or name.encode())

    def enter(self, name: str, writer: str = "1-0123456789abcdef") -> None:
        """List an object as it is."""
        digest = self.digest(name).removeprefix("sha256:")
        self.objects.write(Entry(name, writer, 1, 0, 1, 5, 7, digest).name, b"")

    def digest(self, name: str) -> str:
        return {each.name: self.objects.digest(each) for each in self.objects.beneath("")}[name]

    def compact(
        self,
        hour: Hour,
        folder: Folder = TAP_FOLDER,
        run: int = 1,
        key: Any = None,
        at_ms: int | None = 1,
        *,
        keeps_raw: bool = False,
    ) -> None:
        """Compact an hour, with a receipt of `key` or an unattested one, as the job does."""
        file = f"{hour.compacted(folder.name)}/run={run}/part-0.parquet"
        inputs = [each.name for each in self.objects.beneath(hour.raw(folder.name))]
        self.write(file, f"{run} {inputs}".encode())
        digests = {name: self.digest(name) for name in inputs}
        receipt = HourReceipt(3, str(run), 1, 0, digests, {file: self.digest(file)}, at_ms)
        write_receipt(self.objects, key or self.key, folder, hour, receipt)
        publish(self.objects, folder, hour, [file])
        self.objects.delete([] if keeps_raw else inputs)

    def erase(self, name: str, bodies: dict[str, bytes], **more: Any) -> None:
        """Replace objects, and attest that an erasure did."""
        changes = {}
        for each, body in bodies.items():
            before = self.digest(each)
            self.write(each, body)
            changes[each] = [before, self.digest(each)]
        members = {"changes": changes, "erased_at_ms": 5, **more}
        self.objects.write(name, attest(self.key, name, members))

    def chain(self) -> Chain:
        """Audit the archive as the job does, but for its rows."""
        parts = {}
        self.refused = set[str]()
        for folder in (TAP_FOLDER, LEDGER_FOLDER):
            found = Listing(self.objects, self.key, folder, Days(), {})
            parts[folder.name] = ArchivePart.of(None, found)
            self.refused |= {each.name for each in found.faults if each.kind == "unattested"}
        history = self.verdicts.history()
        chain = chain_of(self.objects, self.key, history, parts, Days(), [], LISTED_MS)
        self.refused |= {*chain.attested.refused}
        return chain

    def audit(self) -> tuple[dict[str, str], set[str]]:
        """Audit the archive, file the report; returns the changes by object, and what is refused."""
        chain = self.chain()
        self.verdicts.file(chain)
        return {each.key: each.what for each in chain.changes}, self.refused

    def edit(self, name: str, copy: str | None = None, **members: Any) -> None:
        """Change members of a receipt, or of a `copy` of it, and keep its attestation."""
        self.objects.write(copy or name, json.dumps({**self.text(name), **members}).encode())

    def forge(self, name: str = FORGED, changes: Any = None, **members: Any) -> None:
        """Alter the object A, and say in a record of an erasure that this was so."""
        before = self.digest(A)
        self.write(A, b"forged")
        changes = changes or {A: [before, self.digest(A)]}
        self.objects.write(name, json.dumps({"changes": changes, "erased_at_ms": 6, **members}).encode())

    @property
    def other_key(self) -> FileKey:
        """A key that is not the jobs'."""
        return FileKey(self.root.with_name("other.key"))

    def text(self, name: str = TRUE) -> dict[str, Any]:
        """The members of a receipt with its attestation."""
        return json.loads(self.objects.read(name) or b"")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "archive")


def _two_texts(world: World) -> None:
    """The members of a forged record before those of the true one."""
    world.forge(PLAN)
    forged, true = world.objects.read(PLAN) or b"", world.objects.read(TRUE) or b""
    world.objects.delete([PLAN])
    world.objects.write(TRUE, forged[:-1] + b"," + true.lstrip()[1:])


RECEIPT, RAW_GONE = SEALED.receipt("tap"), {A, B, ERASED, NEW, RAW.receipt("tap")}
EXTRA = FILE.replace("part-0", "part-1")
STRAY = "tap/date=2026-03-01/stray.json.gz"
_Step = Callable[[World], Any]

FORGERIES: dict[str, tuple[set[str], tuple[_Step, ...]]] = {
    # Records of erasures. The object A is altered, and ERASED was erased by the true record.
    "no attestation": ({A, FORGED}, (World.forge,)),
    "empty digest": ({A, FORGED}, (lambda w: w.forge(changes={A: [w.digest(A), ""]}),)),
    "deletion": (
        {A, FORGED},
        (lambda w: w.forge(changes={A: [w.digest(A), None]}), lambda w: w.objects.delete([A])),
    ),
    "empty signature": ({A, FORGED}, (lambda w: w.forge(attestation={"key": "", "signature": ""}),)),
    "short signature": ({A, FORGED}, (lambda w: w.forge(attestation={"signature": "AAAA"}),)),
    "signature that is no text": ({A, FORGED}, (lambda w: w.forge(attestation={"signature": [1]}),)),
    "attestation that is none": ({A, FORGED}, (lambda w: w.forge(attestation="true"),)),
    "copied signature": ({A, FORGED}, (lambda w: w.forge(attestation=w.text()["attestation"]),)),
    "other key": (
        {A, FORGED},
        (World.forge, lambda w: w.write(FORGED, attest(w.other_key, FORGED, w.text(FORGED)))),
    ),
    "changed member": ({A, ERASED, TRUE}, (lambda w: w.forge(TRUE, attestation=w.text()["attestation"]),)),
    "other time": ({ERASED, TRUE}, (lambda w: w.edit(TRUE, erased_at_ms=7),)),
    "other object": ({A}, (lambda w: w.write(A, w.objects.read(ERASED)),)),
    "other pseudonym": ({FORGED}, (lambda w: w.edit(TRUE, FORGED),)),
    "receipt as plan": ({PLAN}, (lambda w: w.edit(TRUE, PLAN),)),
    "forged plan": ({A, PLAN}, (lambda w: w.forge(PLAN, {A: [w.digest(A), ""]}),)),
    "two texts": ({A}, (_two_texts,)),
    "cut": ({ERASED, TRUE}, (lambda w: w.write(TRUE, (w.objects.read(TRUE) or b"")[:-9]),)),
    "nested": ({FORGED}, (lambda w: w.write(FORGED, b"[" * 99_999),)),
    "true record gone": ({ERASED}, (lambda w: w.objects.delete([TRUE]),)),
    "restored": ({ERASED}, (lambda w: w.write(ERASED),)),
    # Receipts of compactions.
    "dropped rows": (RAW_GONE, (lambda w: w.compact(RAW, at_ms=None),)),
    "fewer inputs": (RAW_GONE, (lambda w: w.objects.delete([A]), lambda w: w.compact(RAW, at_ms=None))),
    "compaction by another key": (RAW_GONE, (lambda w: w.compact(RAW, key=w.other_key),)),
    "receipt of another hour": (
        RAW_GONE,
        (lambda w: w.compact(RAW), lambda w: w.edit(RECEIPT, RAW.receipt("tap"))),
    ),
    "receipt of another folder": (
        RAW_GONE,
        (lambda w: w.compact(RAW), lambda w: w.edit(SEALED.receipt("ledger"), RAW.receipt("tap"))),
    ),
    "replaced file": ({FILE}, (lambda w: w.write(FILE, b"forged"),)),
    "replaced file with its digest": (
        {FILE, SEALED_RAW, RECEIPT},
        (lambda w: w.write(FILE, b"forged"), lambda w: w.edit(RECEIPT, files={FILE: w.digest(FILE)})),
    ),
    "removed file": ({FILE}, (lambda w: w.objects.delete([FILE]),)),
    "published file": (
        {SEALED.published("tap")},
        (lambda w: w.write(EXTRA), lambda w: publish(w.objects, TAP_FOLDER, SEALED, [FILE, EXTRA])),
    ),
    "added file": (
        {EXTRA, SEALED_RAW, RECEIPT},
        (
            lambda w: w.write(EXTRA),
            lambda w: publish(w.objects, TAP_FOLDER, SEALED, [FILE, EXTRA]),
            lambda w: w.edit(RECEIPT, files={each: w.digest(each) for each in (FILE, EXTRA)}),
        ),
    ),
    "file of a raw hour": (
        {NEW, RAW.published("tap")},
        (lambda w: w.write(NEW), lambda w: publish(w.objects, TAP_FOLDER, RAW, [NEW])),
    ),
    "no receipt": ({SEALED_RAW, SEALED.published("tap")}, (lambda w: w.objects.delete([RECEIPT]),)),
    "nothing": ({SEALED_RAW, FILE}, (lambda w: w.objects.delete([RECEIPT, SEALED.published("tap"), FILE]),)),
    "altered input": (
        {E, FILE_TOO, RAW_TOO.receipt("tap")},
        (lambda w: w.write(E, b"forged"), lambda w: w.edit(RAW_TOO.receipt("tap"), inputs={E: w.digest(E)})),
    ),
    "altered input and no file": (
        {E, FILE_TOO},
        (lambda w: w.write(E, b"forged"), lambda w: w.objects.delete([FILE_TOO])),
    ),
    "stray object": ({STRAY}, (lambda w: w.write(STRAY),)),
}
"""What somebody who may write to the archive does, and everything that the next audit names."""


@pytest.mark.long
@pytest.mark.parametrize(("named", "steps"), FORGERIES.values(), ids=FORGERIES)
def test_no_forged_receipt_allows_a_change(named: set[str], steps: tuple[_Step, ...], world: World) -> None:
    world.erase(TRUE, {ERASED: b"without"})
    for step in steps:
        step(world)
    found = world.audit()
    assert {*found[0]} | found[1] == named
    # What is found stays, until the objects are restored.
    assert world.audit() == found


def test_an_older_receipt_of_the_hour_does_not_hide_what_a_later_one_has(world: World) -> None:
    copy = world.root.with_name("copy")
    shutil.copytree(world.root, copy)
    for name in (SEALED_RAW, late := SEALED_RAW.replace("c.json", "late.json")):
        world.write(name)
    world.compact(SEALED, run=2)
    # It came after its hour was audited, so it is named, until a later audit follows the chain.
    assert world.audit() == ({late: ADDED}, set())
    world.verdicts = Verdicts()
    assert world.audit() == ({}, set())
    shutil.rmtree(world.root)
    shutil.copytree(copy, world.root)
    assert world.audit() == ({late: REMOVED}, set())


MOVED = B.replace("hour=12", "hour=14")

BEFORE_AN_AUDIT: dict[str, tuple[set[str], tuple[_Step, ...]]] = {
    "nothing": (set(), ()),
    "other rows": ({A}, (lambda w: w.write(A, b"forged"),)),
    "another object": ({A}, (lambda w: w.write(A, w.objects.read(B)),)),
    "before its compaction": ({A}, (lambda w: w.write(A, b"forged"), lambda w: w.compact(RAW))),
    "before an erasure": ({A}, (lambda w: w.write(A, b"forged"), lambda w: w.erase(FORGED, {A: b"without"}))),
    "behind an erasure": ({A}, (lambda w: w.erase(FORGED, {A: b"without"}), lambda w: w.write(A, b"forged"))),
    "compacted and behind an erasure": (
        {FILE},
        (lambda w: w.erase(FORGED, {FILE: b"without"}), lambda w: w.write(FILE, b"forged")),
    ),
    "listed again": ({A}, (lambda w: w.write(A, b"forged"), lambda w: w.enter(A, "2-0123456789abcdef"))),
    "moved": (set(), (lambda w: w.objects.move(B, MOVED),)),
    "moved and replaced": ({MOVED}, (lambda w: w.objects.delete([B]), lambda w: w.write(MOVED, b"forged"))),
    "never listed": (set(), (lambda w: w.write(A.replace("a.json", "unlisted.json")),)),
    "an entry is garbage": (set(), (lambda w: w.write(f"written/{A}.0.json.gz"),)),
    "erased": (set(), (lambda w: w.erase(FORGED, {A: b"without", FILE: b"other"}),)),
    "erased and compacted": (set(), (lambda w: w.erase(FORGED, {A: b"without"}), lambda w: w.compact(RAW))),
}
"""What is done to objects before the first audit of their window, and what that names."""


@pytest.mark.parametrize(("named", "steps"), BEFORE_AN_AUDIT.values(), ids=BEFORE_AN_AUDIT)
def test_the_first_audit_finds_changes(named: set[str], steps: tuple[_Step, ...], world: World) -> None:
    world.verdicts = Verdicts()
    for step in steps:
        step(world)
    details = {each.archive_file: str(each.detail) for each in world.chain().findings(None)}
    assert {*details} == named
    assert named == {FILE} or all(
        "its writer 1-0123456789abcdef listed it with 1 rows" in each for each in details.values()
    )
    found, refused = world.audit()
    assert ({*found}, refused) == (named, set())
    assert world.audit() == (found, refused)


def test_in_a_bucket_the_list_is_compared_by_what_a_listing_shows() -> None:
    s3 = FakeS3()
    s3.create_bucket(Bucket="archive")
    objects, key = BucketObjects(s3, "archive"), open_key(None)
    names = [RAW.raw("tap") + f"/{name}.json.gz" for name in "abcd"]
    writer = WriterList(1, "0" * 16)
    for name in names:
        etag = s3.put_object(Bucket="archive", Key=name, Body=name.encode())["ETag"].strip('"')
        mark = f"{etag}-{len(name)}" if name != names[3] else f"{'f' * 32}-{len(name)}"
        entry = writer.next(name, Extent(1, 5, 7), sha256(name.encode()).hexdigest(), mark)
        objects.write(entry.name, b"")
        writer.kept(entry)
    objects.write(names[1], b"forged")
    before = next(objects.digest(each) for each in objects.beneath("tap") if each.name == names[2])
    objects.write(names[2], b"without")
    digests = {each.name: objects.digest(each) for each in objects.beneath("tap")}
    members = {"changes": {names[2]: [before, digests[names[2]]]}, "erased_at_ms": 5}
    objects.write(TRUE, attest(key, TRUE, members))
    found = Listing(objects, key, TAP_FOLDER, Days(), {})
    parts = {"tap": ArchivePart.of(None, found)}
    chain = chain_of(objects, key, Verdicts().history(), parts, Days(), [], LISTED_MS)
    assert {each.key: each.what for each in chain.changes} == {names[1]: ALTERED}


@pytest.mark.parametrize("audits", [False, True], ids=["at once", "with audits between"])
def test_what_compaction_and_erasure_attest_is_lawful_in_any_order(audits: bool, world: World) -> None:
    def audited() -> None:
        if audits:
            assert world.audit() == ({}, set())

    world.erase(TRUE, {ERASED: b"without", FILE: b"file without"})
    audited()
    world.erase("erasures/r/receipt-7.json", {ERASED: b"without both", E: b"e without"}, erased_at_ms=7)
    audited()
    world.compact(RAW, keeps_raw=True)
    audited()
    world.erase("erasures/s/receipt-8.json", {A: b"a without", NEW: b"new without"}, erased_at_ms=8)
    world.objects.delete([A, B, ERASED])
    audited()
    assert world.audit() == ({}, set())


def test_an_erasure_that_has_not_ended_is_neither_lawful_nor_an_alteration(world: World) -> None:
    before = world.digest(A)
    plan: dict[str, Any] = {"changes": {A: [before, ""], B: [world.digest(B), ""]}}
    world.objects.write(PLAN, attest(world.key, PLAN, plan))
    assert world.audit() == ({}, set())
    world.write(A, b"without")
    assert world.audit() == ({A: UNFINISHED}, set())
    # A plan that has the digest allows no other.
    plan["changes"][A] = [before, "sha256:other"]
    world.objects.write(PLAN, attest(world.key, PLAN, plan))
    assert world.audit() == ({A: ALTERED}, set())
    world.objects.delete([PLAN])
    for after, found in (("", {A: ALTERED}), (world.digest(A), {})):
        ended = {"changes": {A: [before, after]}, "erased_at_ms": 6}
        world.objects.write(FORGED, attest(world.key, FORGED, ended))
        assert world.audit() == (found, set())


def test_receipts_of_older_versions_are_attested_once_by_an_operator(world: World) -> None:
    world.erase(TRUE, {ERASED: b"without"})
    receipts = [TRUE, *(each.receipt(name) for each, name in COMPACTED_HOURS)]
    for name in receipts:
        world.edit(name, attestation=None)
    _, refused = world.audit()
    assert refused == {*receipts}
    attest_old(world.objects, world.key, receipts, 9)
    assert world.audit() == ({}, set())
    text = world.objects.read(TRUE)
    attest_old(world.objects, world.key, receipts, 10)
    assert world.objects.read(TRUE) == text


def test_findings_say_since_when_and_what_to_do(world: World) -> None:
    world.write(FILE, b"forged")
    world.edit(RAW_TOO.receipt("tap"), run="2")
    world.forge()
    chain = world.chain()
    details = {each.archive_file: str(each.detail) for each in chain.findings(None)}
    assert "altered since the compaction attested at 1970-01-01T00:00:00.001Z" in details[FILE]
    assert "altered since its writer 1-0123456789abcdef listed it with 1 rows of " in details[A]
    assert "removed, or named by no attested receipt any more, since the audit of " in details[FILE_TOO]
    assert "run the erasure once with --ATTEST true" in details[FORGED]
