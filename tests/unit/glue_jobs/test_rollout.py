"""What an audit says of two contracts in force: each for its own devices, and never for long afterwards."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract.publication import HEADS, Head
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.values import timestamp_ms, timestamp_of_ms
from glue_jobs.common.attestation import open_key
from glue_jobs.delivery_audit.audit import AuditRequest
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, archived, load_history
from glue_jobs.delivery_audit.judging import usages
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.rules import Watermark
from glue_jobs.delivery_audit.small import audit_small
from tests.fakes.s3 import MemoryObjects
from tests.spark.small_archive import ALARM, DIARY, NOON_MS, READING, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import ALL_DAYS, AS_OF, ledger_row

MINUTE_MS = 60_000
BEGIN_MS, END_MS = NOON_MS + 60 * MINUTE_MS, NOON_MS + 180 * MINUTE_MS
OLD = small_contract()
NEW = small_contract(diary={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"})
SUBSCRIBED = {"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}


def audited(archive: SmallArchive) -> dict[str, Any]:
    """The report of the small audit."""
    objects, nowhere, now_ms = MemoryObjects(archive.bodies()), MemoryObjects(), timestamp_ms(AS_OF)
    request = AuditRequest(objects, nowhere, nowhere, ALL_DAYS, Watermark(now_ms), open_key(None))
    found = audit_small(replace(request, progress=lambda _: None, now_ms=lambda: now_ms))
    return report(found, found.chain, [], [])


class RolledOut:
    """A plane in which `NEW` is rolled out beside `OLD` from `BEGIN_MS` to `END_MS`."""

    def __init__(self, archive: SmallArchive, *, is_taken: bool = False, is_ended: bool = True) -> None:
        self.archive = archive
        archive.contracts = [OLD, NEW]
        self.head(BEGIN_MS, candidate=NEW.version)
        if is_ended:
            self.head(END_MS, NEW.version if is_taken else OLD.version)

    def head(self, at_ms: int, version: str = OLD.version, candidate: str | None = None) -> None:
        self.archive.heads.append(Head(OLD.version, version, None, timestamp_of_ms(at_ms), candidate))

    def send(self, at_ms: int, by: Any = OLD, follows: str | None = None, type: str = READING) -> None:
        """A device has an event accepted, by the contract that it follows; a router decides `by` another."""
        self.archive.contract = by
        named = {FOLLOWED_CONTRACT: follows} if follows else {}
        self.archive.send(type, at_ms=at_ms, **named)

    def traffic(self, *, until_ms: int = END_MS + 120 * MINUTE_MS, after: Any = OLD) -> None:
        """Devices of both contracts send all the time."""
        for at_ms in range(NOON_MS, until_ms, INTERVAL_MS):
            self.send(at_ms, after if at_ms > END_MS else OLD)
            if BEGIN_MS + MINUTE_MS < at_ms < END_MS:
                self.send(at_ms, NEW, NEW.version)

    def found(self) -> set[str]:
        """The kinds of findings that say something of a router."""
        found = audited(self.archive)["findings"]
        return {each["kind"] for each in found if each["hop"] == "router"}

    @property
    def stale(self) -> set[str]:
        return self.found() & {"stale_contract"}


@pytest.mark.parametrize("is_taken", [True, False])
def test_two_versions_in_force_accuse_nobody(archive: SmallArchive, is_taken: bool) -> None:
    plane = RolledOut(archive, is_taken=is_taken)
    plane.traffic(after=NEW if is_taken else OLD)
    assert plane.found() == set()


def test_without_heads_the_other_version_is_stale(archive: SmallArchive) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    archive.heads = []
    assert plane.stale


AMID_MS = BEGIN_MS + 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("at_ms", "by", "follows", "is_wrong"),
    [
        (AMID_MS, OLD, NEW.version, True),
        (AMID_MS, NEW, None, True),
        (AMID_MS, NEW, OLD.version, True),
        (AMID_MS, NEW, "0" * 16, True),
        (AMID_MS, OLD, "0" * 16, False),
        # While routers look, and clocks differ.
        (BEGIN_MS + MINUTE_MS, OLD, NEW.version, False),
        (END_MS + MINUTE_MS, NEW, NEW.version, False),
        # After it was given up, and everybody else knows.
        (END_MS + 60 * MINUTE_MS, NEW, NEW.version, True),
        (END_MS + 60 * MINUTE_MS, OLD, NEW.version, False),
    ],
    ids=[
        "the candidate is ignored",
        "it judges others",
        "it judges another version",
        "a forged version is honoured",
        "a forged version is ignored",
        "it has just begun",
        "it has just ended",
        "its end is not seen",
        "an event waited on the device",
    ],
)
def test_a_decision_by_the_contract_of_others_is_found(
    archive: SmallArchive, at_ms: int, by: Any, follows: str | None, is_wrong: bool
) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    plane.send(at_ms + 7, by, follows)
    assert plane.stale == ({"stale_contract"} if is_wrong else set())


def test_a_cloud_services_event_is_not_the_candidates(archive: SmallArchive) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    plane.send(AMID_MS)
    for by, found in ((OLD, set()), (NEW, {"stale_contract"})):
        archive.alter(contract_version=by.version, client_id=None, entered_by="help.outbox", sender="help")
        assert plane.stale == found


def test_what_participants_added_makes_no_other_contract(archive: SmallArchive) -> None:
    added = {"care-subscribes-alarms": SUBSCRIBED}
    old = small_contract(**added)
    new = small_contract(diary={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"}, **added)
    plane = RolledOut(archive)
    archive.contracts += [old, new]
    for at_ms in range(NOON_MS, END_MS, INTERVAL_MS):
        plane.send(at_ms, old if at_ms > AMID_MS else OLD)
        if at_ms > BEGIN_MS:
            plane.send(at_ms, new if at_ms > AMID_MS else NEW, NEW.version)
    assert plane.found() == set()
    plane.send(END_MS - 30 * MINUTE_MS, old, NEW.version)
    assert plane.stale


def test_another_deployment_ends_it_without_a_word(archive: SmallArchive) -> None:
    deployed = small_contract(more={"filter": {"exact": {"type": "org.example.more"}}, "to": "help.inbox"})
    plane = RolledOut(archive, is_ended=False)
    archive.contracts.append(deployed)
    plane.traffic(until_ms=AMID_MS)
    for at_ms in range(AMID_MS, END_MS, INTERVAL_MS):
        plane.send(at_ms, deployed)
        plane.send(at_ms, deployed, NEW.version)
    assert plane.found() == set()


@pytest.mark.parametrize(("follows", "route"), [(None, "(unrouted)"), (NEW.version, "diary")])
def test_what_is_lost_was_due_by_its_own_contract(
    archive: SmallArchive, follows: str | None, route: str
) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    named = {FOLLOWED_CONTRACT: follows} if follows else {}
    archive.accept(archive.event(DIARY, at_ms=AMID_MS, **named), at_ms=AMID_MS)
    found = audited(archive)["findings"]
    assert [each["route"] for each in found if each["kind"] == "lost"] == [route]


def _damaged(bodies: dict[str, bytes], name: str) -> None:
    bodies[name] = b"{}"


def _huge(bodies: dict[str, bytes], name: str) -> None:
    bodies[name] = json.dumps({"base": "x" * 5_000}).encode()


@pytest.mark.parametrize("spoil", [_damaged, _huge])
def test_a_damaged_head_is_named(
    archive: SmallArchive, spoil: Callable[[dict[str, bytes], str], None]
) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    bodies = archive.bodies()
    name = next(each for each in bodies if HEADS in each)
    spoil(bodies, name)
    objects = MemoryObjects(bodies)
    _, faults = load_history(objects, archived(objects), usages(map(ledger_row, archive.ledger)))
    assert [each.name for each in faults] == [name]


def test_the_history_names_each_roll_out(archive: SmallArchive) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    plane.head(END_MS + 60 * MINUTE_MS, candidate=NEW.version)
    plane.head(END_MS + 90 * MINUTE_MS, NEW.version)
    rolled = audited(archive)["roll_outs"]
    assert [(each["candidate"], each["from_ms"], each["to_ms"], each["is_taken"]) for each in rolled] == [
        (NEW.version, BEGIN_MS, END_MS, False),
        (NEW.version, END_MS + 60 * MINUTE_MS, END_MS + 90 * MINUTE_MS, True),
    ]


def test_a_replay_decides_by_the_contract_of_its_time(archive: SmallArchive) -> None:
    plane = RolledOut(archive)
    plane.traffic()
    plane.send(AMID_MS, NEW, NEW.version)
    row = archive.ledger[-1]
    again = replace(row, decided_at_ms=END_MS + 90 * MINUTE_MS, reason="replay", message_id="order")
    archive.ledger.append(again)
    assert plane.stale == set()
