"""Receipts that nobody with the key has made allow nothing, and those of compaction and erasure do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER, Folder
from glue_jobs.common.archive import Part
from glue_jobs.common.attestation import FileKey, attest, attest_old, open_key
from glue_jobs.common.hours import Days, Hour
from glue_jobs.common.listing import Listing, Receipt, publish, write_receipt
from glue_jobs.common.objects import FolderObjects
from glue_jobs.delivery_audit.chain import ADDED, ALTERED, REMOVED, UNFINISHED, Chain, chain_of
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
        self.compact(SEALED)
        self.compact(SEALED, LEDGER_FOLDER)
        self.compact(RAW_TOO, keeps_raw=True)
        assert self.audit() == ({}, set())

    def write(self, name: str, body: bytes | None = None) -> None:
        self.objects.write(name, body or name.encode())

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
        receipt = Receipt(3, str(run), 1, 0, 0, digests, {file: self.digest(file)}, at_ms)
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
            receipts = tuple(plan.receipt for plan in found.plans.values() if plan.receipt)
            rows: Any = None
            read, faults, hours = tuple(found.objects), tuple(found.faults), frozenset(found.plans)
            parts[folder.name] = Part(rows, read, faults, hours, receipts)
            self.refused |= {each.name for each in faults if each.kind == "unattested"}
        history = self.verdicts.history()
        chain = chain_of(self.objects, self.key, history, parts, Days(), [], LISTED_MS)
        self.refused |= {*chain.attested.refused}
        return chain

    def audit(self) -> tuple[dict[str, str], set[str]]:
        """Audit the archive, file the report; returns the changes by object, and what is refused."""
        chain = self.chain()
        self.verdicts.file(chain)
        return {each.key: each.what for each in chain.changes}, self.refused

    def edit(self, name: str, change: Callable[[dict[str, Any]], Any], copy: str | None = None) -> None:
        """Change the members of a receipt, or of a `copy` of it, and keep its attestation."""
        members = json.loads(self.objects.read(name) or b"")
        change(members)
        self.objects.write(copy or name, json.dumps(members).encode())

    def forge(self, name: str = FORGED, changes: Any = None, **attestation: Any) -> None:
        """Alter the object A, and say in a record of an erasure that this was so."""
        before = self.digest(A)
        self.write(A, b"forged")
        members: dict[str, Any] = {"changes": changes or {A: [before, self.digest(A)]}, "erased_at_ms": 6}
        members |= {"attestation": attestation} if attestation else {}
        self.objects.write(name, json.dumps(members).encode())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "archive")


def _alter_with_the_true_receipt(world: World, **members: Any) -> None:
    world.forge()
    world.objects.delete([FORGED])
    world.edit(TRUE, lambda receipt: receipt.update(members))


def _by_another_key(world: World) -> None:
    world.forge()
    other = FileKey(world.root.parent / "other.key")
    members = json.loads(world.objects.read(FORGED) or b"")
    world.objects.write(FORGED, attest(other, FORGED, members))


def _copied_signature(world: World) -> None:
    world.forge(**json.loads(world.objects.read(TRUE) or b"")["attestation"])


def _deleted_object(world: World) -> None:
    world.forge(changes={A: [world.digest(A), None]})
    world.objects.delete([A])


def _other_object(world: World) -> None:
    """A true pair of digests, of another object."""
    world.write(A, world.objects.read(ERASED))


def _restored(world: World) -> None:
    """What the erasure removed is there again."""
    world.write(ERASED)


def _planned(world: World) -> None:
    world.forge(PLAN, {A: [world.digest(A), ""]})
    world.edit(PLAN, lambda members: members.pop("erased_at_ms"))


def _twice(world: World) -> None:
    """The members of a forged record before those of the true one, in one text."""
    world.forge()
    forged, true = world.objects.read(FORGED) or b"", world.objects.read(TRUE) or b""
    world.objects.delete([FORGED])
    world.objects.write(TRUE, forged[:-1] + b"," + true.lstrip()[1:])


def _dropped_rows(world: World) -> None:
    world.compact(RAW, at_ms=None)


def _fewer_inputs(world: World) -> None:
    world.objects.delete([A])
    world.compact(RAW, at_ms=None)


def _compacted_by_another_key(world: World) -> None:
    world.compact(RAW, key=FileKey(world.root.parent / "other.key"))


def _receipt_of(hour: Hour, folder: str) -> Callable[[World], None]:
    """A true receipt at another hour or folder, whose raw objects are gone."""

    def change(world: World) -> None:
        world.compact(RAW, at_ms=None)
        world.edit(hour.receipt(folder), lambda _: None, RAW.receipt("tap"))

    return change


def _replaced_file(world: World) -> None:
    world.write(FILE, b"forged")


def _replaced_file_with_its_digest(world: World) -> None:
    world.write(FILE, b"forged")
    world.edit(SEALED.receipt("tap"), lambda members: members["files"].update({FILE: world.digest(FILE)}))


def _removed_file(world: World) -> None:
    world.objects.delete([FILE])


EXTRA = FILE.replace("part-0", "part-1")


def _published_file(world: World) -> None:
    world.write(EXTRA)
    publish(world.objects, TAP_FOLDER, SEALED, [FILE, EXTRA])


def _added_file(world: World) -> None:
    _published_file(world)
    world.edit(SEALED.receipt("tap"), lambda members: members["files"].update({EXTRA: world.digest(EXTRA)}))


def _file_of_a_raw_hour(world: World) -> None:
    world.write(NEW)
    publish(world.objects, TAP_FOLDER, RAW, [NEW])


def _without_receipt(world: World) -> None:
    world.objects.delete([SEALED.receipt("tap")])


def _without_anything(world: World) -> None:
    world.objects.delete([SEALED.receipt("tap"), SEALED.published("tap"), FILE])


def _altered_input(world: World) -> None:
    """A raw object that a receipt names is another one, and the receipt says so."""
    world.write(E, b"forged")
    world.edit(RAW_TOO.receipt("tap"), lambda members: members["inputs"].update({E: world.digest(E)}))


def _altered_input_without_the_file(world: World) -> None:
    world.write(E, b"forged")
    shutil.rmtree(world.root / RAW_TOO.compacted("tap"))


def _stray(world: World) -> None:
    """An object outside of the hours, whose lines are read."""
    world.write("tap/date=2026-03-01/stray.json.gz")


FORGERIES: dict[str, tuple[Callable[[World], None], set[str]]] = {
    "erasure, no attestation": (World.forge, {A, FORGED}),
    "erasure, empty digest": (lambda each: each.forge(changes={A: [each.digest(A), ""]}), {A, FORGED}),
    "erasure, deletion": (_deleted_object, {A, FORGED}),
    "erasure, empty signature": (lambda each: each.forge(key="", signature=""), {A, FORGED}),
    "erasure, short signature": (lambda each: each.forge(signature="AAAA"), {A, FORGED}),
    "erasure, no text as signature": (lambda each: each.forge(signature=[1]), {A, FORGED}),
    "erasure, copied signature": (_copied_signature, {A, FORGED}),
    "erasure, other key": (_by_another_key, {A, FORGED}),
    "erasure, changed member": (
        lambda each: _alter_with_the_true_receipt(each, changes={A: [each.digest(A), ""]}),
        {A, ERASED, TRUE},
    ),
    "erasure, other time": (
        lambda each: _alter_with_the_true_receipt(each, erased_at_ms=7),
        {A, ERASED, TRUE},
    ),
    "erasure, other object": (_other_object, {A}),
    "erasure, restored": (_restored, {ERASED}),
    "erasure, other pseudonym": (lambda each: each.edit(TRUE, lambda _: None, FORGED), {FORGED}),
    "erasure, receipt as plan": (lambda each: each.edit(TRUE, lambda _: None, PLAN), {PLAN}),
    "erasure, forged plan": (_planned, {A, PLAN}),
    "erasure, members twice": (_twice, {A}),
    "erasure, cut": (lambda each: each.write(TRUE, b'{"changes": {'), {ERASED, TRUE}),
    "erasure, nested": (lambda each: each.write(FORGED, b"[" * 99_999), {FORGED}),
    "erasure, gone": (lambda each: each.objects.delete([TRUE]), {ERASED}),
    "compaction, dropped rows": (_dropped_rows, {A, B, ERASED, NEW, RAW.receipt("tap")}),
    "compaction, fewer inputs": (_fewer_inputs, {A, B, ERASED, NEW, RAW.receipt("tap")}),
    "compaction, other key": (_compacted_by_another_key, {A, B, ERASED, NEW, RAW.receipt("tap")}),
    "compaction, other hour": (_receipt_of(SEALED, "tap"), {A, B, ERASED, NEW, RAW.receipt("tap")}),
    "compaction, other folder": (_receipt_of(SEALED, "ledger"), {A, B, ERASED, NEW, RAW.receipt("tap")}),
    "compaction, replaced file": (_replaced_file, {FILE}),
    "compaction, replaced file with its digest": (
        _replaced_file_with_its_digest,
        {FILE, SEALED_RAW, SEALED.receipt("tap")},
    ),
    "compaction, removed file": (_removed_file, {FILE}),
    "compaction, published file": (_published_file, {SEALED.published("tap")}),
    "compaction, added file": (_added_file, {EXTRA, SEALED_RAW, SEALED.receipt("tap")}),
    "compaction, file of a raw hour": (_file_of_a_raw_hour, {NEW, RAW.published("tap")}),
    "compaction, no receipt": (_without_receipt, {SEALED_RAW, SEALED.published("tap")}),
    "compaction, nothing": (_without_anything, {SEALED_RAW, FILE}),
    "compaction, altered input": (_altered_input, {E, FILE_TOO, RAW_TOO.receipt("tap")}),
    "compaction, altered input and no file": (_altered_input_without_the_file, {E, FILE_TOO}),
    "stray object": (_stray, {"tap/date=2026-03-01/stray.json.gz"}),
}
"""What somebody who may write to the archive does, and everything that the next audit names."""


@pytest.mark.parametrize(("forge", "named"), FORGERIES.values(), ids=FORGERIES)
def test_no_forged_receipt_allows_a_change(
    forge: Callable[[World], None], named: set[str], world: World
) -> None:
    world.erase(TRUE, {ERASED: b"without"})
    forge(world)
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


def test_an_erasure_that_has_not_ended_is_neither_lawful_nor_held_against_anybody(world: World) -> None:
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
        world.edit(name, lambda members: members.pop("attestation"))
    _, refused = world.audit()
    assert refused == {*receipts}
    attest_old(world.objects, world.key, receipts, 9)
    assert world.audit() == ({}, set())
    text = world.objects.read(TRUE)
    attest_old(world.objects, world.key, receipts, 10)
    assert world.objects.read(TRUE) == text


def test_findings_say_since_when_and_what_to_do(world: World) -> None:
    _replaced_file(world)
    _altered_input(world)
    world.forge()
    chain = world.chain()
    details = {each.archive_file: str(each.detail) for each in chain.findings(None)}
    assert "altered since the compaction attested at 1970-01-01T00:00:00.001Z" in details[FILE]
    assert "altered since the audit of " in details[A]
    assert "removed, or named by no attested receipt any more, since the audit of " in details[FILE_TOO]
    assert "run the erasure once with --ATTEST true" in details[FORGED]
