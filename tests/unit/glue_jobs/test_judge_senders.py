"""Senders in the audit: who may send what, by which contract, and that nobody hides the loss of another."""

from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest

from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.device_reports import (
    DEVICE_CONTRACT,
    MANIFEST,
    UPLINK_INTEREST_TYPE,
    forwarder_source,
    router_source,
)
from eventplane.envelope import Sender, write_event
from eventplane.ledger import Basis
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.names import (
    AUDITOR,
    CANARY_ALARM,
    CANARY_CLIENT,
    CANARY_SOURCE,
    MONITOR,
    NOTICE,
    PLANE,
    REPLY_TYPE,
    VERDICT,
)
from eventplane.reasons import Outcome, Reason
from eventplane.sending import SendingRights
from glue_jobs.delivery_audit.rules import ContractRules
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.spark.small_archive import ALARM, NOON_MS, READING, SmallArchive
from tests.unit.glue_jobs.judging import judged, ledger_row

MINUTE_MS: Final = 60_000
MESSAGE: Final = "org.example.message.v1"
FREE: Final = "org.other.free.v1"


def with_senders(**sends: list[str] | None) -> Contract:
    """`voice` and `siren` are on the device, the others in the cloud; None: no `sends`."""
    kinds = {"device": "device", "voice": "device_service", "siren": "device_service"}
    kinds |= dict.fromkeys(("help", "care", MONITOR, AUDITOR), "cloud_service")
    participants = {
        name: {"kind": kind, "description": name}
        | ({} if sends.get(name) is None else {"sends": sends[name]})
        | ({"asks": ["org.example.question.*"]} if name == "help" else {})
        for name, kind in kinds.items()
    }
    routes = {
        "alarms": {"filter": {"exact": {"type": ALARM}}, "to": "help.inbox"},
        "readings": {"filter": {"exact": {"type": READING}}, "to": "care.inbox"},
        "down": {"filter": {"exact": {"type": MESSAGE}}, "to": "device.inbox"},
    }
    document = {"format": 5, "name": "senders", "participants": participants, "routes": routes}
    return compile_contract(document, "test")


@pytest.fixture
def archive(archive: SmallArchive) -> SmallArchive:
    archive.use(with_senders(voice=[ALARM], siren=[], care=[MESSAGE]))
    return archive


def test_a_forged_copy_does_not_hide_a_loss(archive: SmallArchive) -> None:
    lost = archive.event(ALARM, senderservice="voice")
    archive.accept(lost)
    copied = {"source": lost.source, "id": lost.id, "senderservice": "voice"}
    forged = archive.event(ALARM, home="home-2", **copied)
    archive.accept(forged, "home-2")
    archive.route(forged, "home-2")
    # Nor does a dead letter about it that the other device wrote.
    letter = archive.event(
        DEAD_LETTER_TYPE,
        home="home-2",
        id=letter_id("home-1/voice", lost.source, lost.id),
        source=router_source("home-2"),
    )
    archive.ledger.append(
        archive.record(lost, route="alarms", outcome=Outcome.DEAD_LETTERED, reason="not_taken")
    )
    archive.accept(letter, "home-2")
    to_help = {"route": "letters", "destination": "help.inbox", "outcome": Outcome.DELIVERED}
    archive.ledger.append(archive.record(letter, "home-2", **to_help))
    report = judged(archive)
    assert report.totals["lost"] == 1
    assert [each for each in report.kinds() if each[0] in ("lost", "two_senders", "duplicate")] == [
        ("lost", "home-1", "alarms"),
        ("two_senders", "home-1", "alarms"),
        ("two_senders", "home-2", "alarms"),
    ]
    named = {each.detail for each in report.findings if each.kind == "two_senders"}
    assert named == {"home-1/voice, home-2/voice"}


VOICE, SIREN = {"senderservice": "voice"}, {"senderservice": "siren"}


@pytest.mark.parametrize(
    ("event", "reason", "kind"),
    [
        (VOICE, None, None),
        (SIREN, None, "not_allowed"),
        (SIREN, Reason.SENDER_NOT_ALLOWED, "dead_lettered"),
        (VOICE, Reason.SENDER_NOT_ALLOWED, "lost"),
        ({**VOICE, "senderdevice": "home-2"}, Reason.RESERVED_ATTRIBUTE, "dead_lettered"),
        (VOICE, Reason.RESERVED_ATTRIBUTE, "lost"),
        ({**VOICE, "data": "x" * (MAX_SENT_EVENT_BYTES - 100)}, Reason.TOO_LARGE, "dead_lettered"),
        ({**VOICE, "data": "x" * 1_000}, Reason.TOO_LARGE, "lost"),
    ],
)
def test_only_allowed_deliveries_and_refusals_are_believed(
    archive: SmallArchive, event: dict[str, Any], reason: Reason | None, kind: str | None
) -> None:
    if reason is None:
        archive.send(ALARM, **event)
    else:
        archive.refuse_event(archive.event(ALARM, **event), reason)
    assert judged(archive).kinds() == ([(kind, "home-1", "alarms")] if kind else [])


def test_a_dead_letter_that_another_sender_wrote_proves_no_refusal(archive: SmallArchive) -> None:
    archive.refuse_event(archive.event(ALARM, **SIREN), Reason.SENDER_NOT_ALLOWED)
    archive.alter(sender="care", client_id=None, entered_by="care.outbox")
    assert judged(archive).kinds() == [("lost", "home-1", "alarms")]


def test_devices_send_nothing_down(archive: SmallArchive) -> None:
    archive.use(with_senders())
    archive.send(MESSAGE)
    on_route = {"route": "down", "destination": "device.inbox"}
    archive.refuse_event(archive.event(MESSAGE, "home-2"), Reason.SENDER_NOT_ALLOWED, "home-2", **on_route)
    up = {"route": "readings", "destination": "care.inbox"}
    archive.refuse_event(archive.event(READING, "home-3"), Reason.SENDER_NOT_ALLOWED, "home-3", **up)
    assert judged(archive).kinds() == [
        ("dead_lettered", "home-2", "down"),
        ("lost", "home-3", "readings"),
        ("not_allowed", "home-1", "down"),
    ]


def test_what_was_decided_unseen_must_be_decided_again(archive: SmallArchive) -> None:
    in_force = archive.contract
    alarms = contract_document(in_force)["routes"]["alarms"]
    at_hand = with_changes(in_force, {"routes/old": {**alarms, "to": "care.inbox"}})
    archive.contracts = [in_force, at_hand]
    again, never, vanished = (
        archive.event(ALARM, home, senderservice="voice") for home in ("home-1", "home-2", "home-3")
    )
    for event, home in ((again, "home-1"), (never, "home-2")):
        archive.accept(event, home)
        archive.contract = at_hand
        archive.route(event, home)
    archive.ledger = [replace(row, basis=Basis.BUNDLED) for row in archive.ledger]
    archive.contract = in_force
    archive.route(again)
    archive.alter(decided_at_ms=NOON_MS + MINUTE_MS, attempt=2)
    # Without a row it is due by what was in force: the contract at hand never was.
    archive.accept(vanished, "home-3", NOON_MS + 2 * MINUTE_MS)
    report = judged(archive)
    assert report.kinds() == [
        ("duplicate", "home-1", "alarms"),
        ("lost", "home-3", "alarms"),
        ("unconfirmed", "home-2", "alarms"),
    ]


def test_a_successors_decision_confirms(archive: SmallArchive) -> None:
    archive.send(ALARM, senderservice="voice")
    by_successor = {"basis": Basis.BUNDLED, "decided_at_ms": NOON_MS + MINUTE_MS, "attempt": 2}
    archive.ledger.append(replace(archive.ledger[-1], **by_successor))
    assert judged(archive).kinds() == [("duplicate", "home-1", "alarms")]


def test_a_contract_beside_its_successor_is_stale_after_a_while(archive: SmallArchive) -> None:
    old, new = archive.contract, with_senders(voice=[ALARM], siren=[], care=[MESSAGE], help=[])
    archive.contracts = [old, new]
    archive.send(ALARM, at_ms=NOON_MS, senderservice="voice")
    for minute in range(5, 60, 5):
        archive.contract = new
        archive.send(ALARM, at_ms=NOON_MS + minute * MINUTE_MS, senderservice="voice")
        archive.contract = old
        if minute in (10, 40):
            archive.send(ALARM, "home-2", at_ms=NOON_MS + minute * MINUTE_MS, senderservice="voice")
        if minute == 45:  # a replay decides by the contract of then
            archive.send(ALARM, "home-3", at_ms=NOON_MS + minute * MINUTE_MS, senderservice="voice")
            archive.alter(reason="replay")
    (stale,) = judged(archive).findings
    assert (stale.kind, stale.device, stale.contract_version, stale.at_ms) == (
        "stale_contract",
        "home-2",
        old.version,
        NOON_MS + 40 * MINUTE_MS,
    )


def test_the_audit_decides_as_the_rights_do(archive: SmallArchive) -> None:
    contracts = [
        with_senders(voice=[ALARM], siren=[], care=[MESSAGE, DEVICE_CONTRACT]),
        with_senders(
            voice=["org.example.*"], device=["org.eventplane.device.*"], help=[UPLINK_INTEREST_TYPE]
        ),
        with_senders(),
    ]
    senders = [
        *(
            Sender("home-1", name)
            for name in ("", "device", "voice", "siren", "help", "nobody", "x/voice", "/")
        ),
        *(
            Sender(service=name)
            for name in ("help", "care", "voice", "device", MONITOR, AUDITOR, PLANE, "", "x")
        ),
    ]
    types = [ALARM, READING, MESSAGE, FREE, "org.example.question.v1", REPLY_TYPE, MANIFEST, NOTICE, VERDICT]
    types += [DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, DEAD_LETTER_TYPE]
    sources = [
        "/s",
        *(name(home) for name in (forwarder_source, router_source) for home in ("home-1", "home-2")),
    ]
    by_version = {each.version: ContractRules(each, at) for at, each in enumerate(contracts)}
    (known,) = archive.route(archive.event())
    decided = set()
    for contract, sender, type, source in product(contracts, senders, types, sources):
        own = {"channel": f"{sender.service}.outbox"}  # what the ledger does not have
        event = write_event({"id": "1", "source": source, "type": type, **sender.attributes}, own)
        is_allowed = SendingRights(contract).refusal(event) is None
        row = replace(known, sender=str(sender), type=type, source=source)
        found = by_version[contract.version].may_send(ledger_row(row))
        assert found == is_allowed, (str(sender), type, source)
        decided.add(found)
    assert decided == {True, False}


def test_the_canarys_alarms_are_expected_and_accuse_nobody(archive: SmallArchive) -> None:
    archive.use(shipped_contract())

    def alarm(id: str, home: str) -> None:
        event = write_event(
            {"id": id, "source": CANARY_SOURCE, "type": CANARY_ALARM}, {"sent_at_ms": NOON_MS}
        )
        archive.accept(event, home)
        if id != "lost":
            archive.route(event, home)

    alarm("1", CANARY_CLIENT)
    # One in its name that a device sends has no route, and one that a router loses is lost as any event is.
    alarm("2", "home-1")
    assert judged(archive).findings == []
    alarm("lost", CANARY_CLIENT)
    (finding,) = judged(archive).findings
    assert (finding.kind, finding.device, finding.route) == ("lost", CANARY_CLIENT, "canary-to-canary")
