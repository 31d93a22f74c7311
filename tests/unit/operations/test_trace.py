"""`trace SOURCE ID`: the steps of one event, from the archive and the queues."""

import gzip
import json
import re
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.account import Account, Fate
from eventplane.contract import Contract, Downlink
from eventplane.contract.publication import Head, head_name, head_text
from eventplane.dead_letter import letter_id
from eventplane.device_reports import ACKNOWLEDGED
from eventplane.downlink.device import Acknowledgement, AckStatus, to_data
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.ledger import HandoverRecord, to_line
from eventplane.reasons import Outcome
from eventplane.trace_context import context_of
from eventplane.values import timestamp_of_ms
from operations.archive import Days, FolderArchive
from operations.command import DONE, END_UNKNOWN, FAILED
from operations.letters import Letter, read_letter
from operations.search import in_tap, sources_of
from operations.trace import Trace, traces
from tests.plane import plane_contract
from tests.small_contract import with_changes
from tests.unit.operations.support import (
    ACCEPTED_MS,
    DECIDED_MS,
    HOME,
    INBOX,
    ROUTER,
    Folder,
    MemoryArchive,
    Plane,
    Run,
    RunJson,
    device_letter,
    event,
    ledger_line,
    letter,
    letter_of_event,
    queue_message,
    tap_line,
    tap_refusal_line,
)

SOURCE = "/homes/1/health"
ANALYTICS = "care-analytics.inbox"
ROUTE = ("readings-to-care-analytics", ANALYTICS)
TO_OPERATIONS = ("dead-letters-to-operations", "operations.inbox")
ALARM_ROUTE = ("alarms-to-alarm-centre", "alarm-centre.inbox")
CONTRACT = plane_contract()
DAY = date(2026, 1, 1)

SENT = event("17")
ALARM = event("17", "org.eventplane.alarm.clinical.v1")
OWN = Sender(service="somebody-of-an-older-contract")
BYTES = b'{"source": "/homes/1/health", "id": "17"}'
REPORT = device_letter(BYTES, "missing_attribute", "health-service.outbox", "d")
DELIVERED = ledger_line(SENT, Outcome.DELIVERED, route=ROUTE)
REFUSED = ledger_line(SENT, Outcome.DEAD_LETTERED, reason="payload_invalid")


def told(dead: object, sender: Sender = ROUTER) -> str:
    """The line of a dead letter that came to operations."""
    return ledger_line(dead, Outcome.DELIVERED, route=TO_OPERATIONS, sender=sender)  # type: ignore[arg-type]


def found(archive: MemoryArchive, *letters: Letter, contract: Contract = CONTRACT) -> list[Trace]:
    return traces((SOURCE, "17"), Days(archive, DAY, DAY), letters, contract)


@dataclass(frozen=True)
class Story:
    """The steps of the event's only trace, what became of it by inbox, what archive and queues have, and the
    beginnings of what is missing. The tap has the event where nothing is said of it."""

    steps: str
    accounts: str
    tap: tuple[str, ...] = (tap_line(SENT.json),)
    ledger: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    handovers: tuple[str, ...] = ()
    letters: tuple[Letter, ...] = ()


def given_up(by: str, channel: str = ALARM_ROUTE[1], reason: str = "ConnectionError") -> Envelope:
    """The dead letter by which the reader `by` says that it gave the alarm up."""
    author = Sender(service=by)
    lost = ALARM.stamped(**HOME.attributes).json.encode()
    return letter(lost, reason, channel, LETTER_ID, sender=HOME, written_by=author)


def again(**more: Any) -> str:
    """The line of a redrive of the alarm, a minute after it was given up."""
    row = json.loads(TO_CENTRE) | {"decided_at_ms": DECIDED_MS + 60_000, "reason": "redrive", **more}
    return json.dumps(row)


def handed(outcome: Outcome, reason: str | None) -> str:
    end = HandoverRecord(
        DECIDED_MS + 9, DECIDED_MS, ALARM_ROUTE[1], CONTRACT.version, *ALARM.claim, ALARM.type, outcome,
        reason, 404, 1, "m-2", ALARM_ROUTE[0], str(HOME),
    )  # fmt: skip
    return to_line(end)


DOWN = ("down-to-devices", "device.inbox")
CARERS = Sender(service="carers")
MESSAGE = event("17", "org.eventplane.home.message.v1")


def answered(sender: str) -> str:
    """The line of a device's answer to the message, of which it says who sent it."""
    version = {"uid": "", "version": 1, "order": 1, "fence": 0, "result": AckStatus.STORED}
    kind, names = Downlink.COMMAND, {"source": SOURCE, "id": "17"}
    given = Acknowledgement(kind=kind, key="command/a/b", sender=sender, **names, **version)  # type: ignore[arg-type]
    own = {"id": f"answer-{sender}", "source": "/devices/home-1/forwarder", "type": ACKNOWLEDGED}
    line = json.loads(tap_line(write_event(own, to_data([given], "e1")).json))
    return json.dumps({**line, "accepted_at_ms": DECIDED_MS + 9, "message_id": sender})


REASONS = ("missing_attribute", "not_utf8")
NO_EVENTS = [letter(b"", each, id=f"m-1.{index}") for index, each in enumerate(REASONS)]
LETTER_ID = letter_id(str(HOME), *ALARM.claim)
TO_CENTRE = ledger_line(ALARM, Outcome.DELIVERED, route=ALARM_ROUTE)
# By a contract that is not in the archive nor here, an alarm is due where it was routed.
AT_CENTRE = {"tap": (tap_line(ALARM.json),), "ledger": (TO_CENTRE,)}
BY_CENTRE = told(given_up("alarm-centre"), Sender(service="alarm-centre"))
OTHERS = "care-analytics.inbox: unknown, family-app.inbox: unknown"
IN_CARE = "care-analytics.inbox: in the inbox"
REFUSED_BY = "refused by the router of device.outbox: payload_invalid"
NO_TAP = ("a router has decided, and the tap has nothing",)
STORIES = {
    "it was delivered": Story(
        "recorded, accepted, in the inbox",
        IN_CARE,
        (tap_line(event("16").json), tap_line(event("17", recordedtime="2025-12-31T23:59:59Z").json, 1)),
        (DELIVERED,),
    ),
    "it had expired": Story(
        "accepted, expired",
        "care-analytics.inbox: expired: expirytime",
        ledger=(ledger_line(SENT, Outcome.EXPIRED, route=ROUTE, reason="expirytime"),),
    ),
    "its reader wants others": Story(
        "accepted, dropped",
        "care-analytics.inbox: dropped: no_interest",
        ledger=(ledger_line(SENT, Outcome.NO_INTEREST, route=ROUTE, reason="no_interest"),),
    ),
    "a newer router has another end": Story(
        "accepted, unknown",
        "care-analytics.inbox: unknown",
        ledger=(DELIVERED.replace('"delivered"', '"postponed"'),),
    ),
    "its batch was archived twice": Story(
        "accepted, in the inbox", IN_CARE, (tap_line(SENT.json),) * 2, (DELIVERED,) * 2
    ),
    "it was refused": Story(
        "accepted, refused, its dead letter in the inbox",
        f"care-analytics.inbox: {REFUSED_BY}",
        ledger=(REFUSED, told(letter_of_event(SENT))),
    ),
    "a copy of it was refused": Story(
        "accepted, in the inbox, refused, its dead letter in the inbox",
        IN_CARE,
        ledger=(DELIVERED, REFUSED, told(letter_of_event(SENT))),
    ),
    "its dead letter went nowhere": Story(
        "accepted, refused",
        f"care-analytics.inbox: {REFUSED_BY}",
        ledger=(REFUSED,),
        missing=("no record that its dead letter was delivered",),
    ),
    "it was no event and has its names": Story(
        "accepted, no event, refused, its dead letter in the inbox",
        "every inbox: refused by the router of device.outbox: missing_attribute",
        (tap_refusal_line(BYTES, REASONS[0]), tap_refusal_line(b"\xff", REASONS[1], 1)),
        (
            *(ledger_line(None, Outcome.DEAD_LETTERED, reason=each) for each in REASONS),
            *map(told, NO_EVENTS),
        ),
    ),
    "the device made its dead letter": Story(
        "dead letter of the device, its dead letter in the inbox",
        "every inbox: refused by home-1: missing_attribute",
        (tap_line(REPORT.json),),
        (told(REPORT, Sender("home-1", "device")),),
    ),
    "a reader in the home gave it up": Story(
        "dead letter of the device",
        "call-service.inbox: given up by call-service: refused",
        (tap_line(device_letter(BYTES, "refused", "call-service.inbox", "d").json),),
    ),
    "a cloud service sent it": Story(
        "refused, its dead letter in the inbox",
        f"every inbox: {REFUSED_BY}",
        tap=(),
        ledger=(
            ledger_line(SENT, Outcome.DEAD_LETTERED, reason="payload_invalid", sender=OWN),
            told(letter_of_event(SENT, OWN)),
        ),
        missing=NO_TAP,
    ),
    "it never came": Story("", "every inbox: unknown", (tap_line(event("16").json),)),
    "no router has decided": Story("accepted", "care-analytics.inbox: unknown"),
    "the tap has lost it": Story("in the inbox", IN_CARE, tap=(), ledger=(DELIVERED,), missing=NO_TAP),
    "routes are missing by the contract that decided": Story(
        "accepted, in the inbox",
        f"alarm-centre.inbox: in the inbox, {OTHERS}",
        (tap_line(ALARM.json),),
        (ledger_line(ALARM, Outcome.DELIVERED, route=ALARM_ROUTE, contract_version=CONTRACT.version),),
    ),
    "a dead letter of one route hides no other": Story(
        "accepted, refused, its dead letter in the inbox",
        f"alarm-centre.inbox: refused by the router of device.outbox: not_taken, {OTHERS}",
        (tap_line(ALARM.json),),
        (
            ledger_line(
                ALARM,
                Outcome.DEAD_LETTERED,
                route=ALARM_ROUTE,
                reason="not_taken",
                contract_version=CONTRACT.version,
            ),
            told(letter_of_event(ALARM)),
        ),
    ),
    "a replay adds no debts of its own contract": Story(
        "accepted, in the inbox, in the inbox",
        f"{IN_CARE}, new.inbox: in the inbox: replay",
        ledger=(
            ledger_line(SENT, Outcome.DELIVERED, route=ROUTE, contract_version=CONTRACT.version),
            ledger_line(SENT, Outcome.DELIVERED, route=("new", "new.inbox"), reason="replay"),
        ),
    ),
    "its reader gave it up": Story(
        "accepted, in the inbox, its dead letter in the inbox",
        f"alarm-centre.inbox: given up by alarm-centre: ConnectionError, {OTHERS}",
        AT_CENTRE["tap"],
        (TO_CENTRE, BY_CENTRE),
    ),
    "it was redriven into the inbox of who gave it up": Story(
        "accepted, in the inbox, its dead letter in the inbox, in the inbox",
        f"alarm-centre.inbox: in the inbox: redrive, {OTHERS}",
        AT_CENTRE["tap"],
        (TO_CENTRE, BY_CENTRE, again()),
    ),
    "another's letter about it says nothing of that inbox": Story(
        "accepted, in the inbox, its dead letter in the inbox, waits since",
        f"alarm-centre.inbox: in the inbox, {OTHERS}",
        AT_CENTRE["tap"],
        (TO_CENTRE, told(given_up("carers"), Sender(service="carers"))),
        letters=(read_letter(queue_message(given_up("carers")), "operations-inbox-dlq", "operations.inbox"),),
    ),
    "the downlink refused it": Story(
        "in the inbox, its dead letter in the inbox",
        f"{DOWN[1]}: given up by downlink: unknown_device",
        tap=(),
        ledger=(
            ledger_line(MESSAGE, Outcome.DELIVERED, route=DOWN, sender=CARERS),
            told(
                letter(b"", "unknown_device", DOWN[1], letter_id("carers", *MESSAGE.claim)),
                Sender(service="downlink"),
            ),
        ),
        missing=NO_TAP,
    ),
    "a device answered": Story(
        "in the inbox, stored by home-1",
        f"{DOWN[1]}: in the inbox",
        tap=(answered("carers"), answered("thief")),
        ledger=(ledger_line(MESSAGE, Outcome.DELIVERED, route=DOWN, sender=CARERS),),
        missing=NO_TAP,
    ),
    "its queue gave it up": Story(
        "accepted, in the inbox, waits since",
        f"alarm-centre.inbox: given up by alarm-centre: receives_exhausted, {OTHERS}",
        letters=(read_letter(queue_message(ALARM.stamped(**HOME.attributes)), "dlq", ALARM_ROUTE[1]),),
        **AT_CENTRE,
    ),
    "the router's queue gave it up": Story(
        "accepted, waits since",
        "care-analytics.inbox: waiting in ingest-dlq: receives_exhausted; redrive it",
        letters=(read_letter(queue_message(SENT.stamped(**HOME.attributes)), "ingest-dlq", "device.outbox"),),
    ),
    "an endpoint took it": Story(
        "accepted, in the inbox, taken by alarm-centre",
        f"alarm-centre.inbox: handled by alarm-centre, {OTHERS}",
        handovers=(handed(Outcome.DELIVERED, None),),
        **AT_CENTRE,
    ),
    "an endpoint refused it": Story(
        "accepted, in the inbox, given up",
        f"alarm-centre.inbox: given up by alarm-centre: endpoint_refused, {OTHERS}",
        handovers=(handed(Outcome.DEAD_LETTERED, "endpoint_refused"),),
        **AT_CENTRE,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_each_event_has_its_steps_in_order_its_account_and_names_what_is_missing(name: str) -> None:
    story, archive = STORIES[name], MemoryArchive()
    for folder in ("tap", "ledger", "handovers"):
        archive.write(f"{folder}/date={DAY}/one.json.gz", *getattr(story, folder))
    (trace,) = found(archive, *story.letters)
    assert ", ".join(each.what for each in trace.stations) == story.steps
    told = [
        f"{each.inbox or 'every inbox'}: {each.fate if each.fate == 'unknown' else each}"
        for each in trace.accounts
    ]
    assert ", ".join(told) == story.accounts
    assert all(one.startswith(begin) for one, begin in zip(trace.missing, story.missing, strict=True))
    # What decides the exit status, and whether --follow goes on.
    has = partial(re.search, string=story.accounts)
    is_open = story.missing or has("in the inbox|waiting|unknown")
    assert trace.status == (FAILED if has("refused|given up") else END_UNKNOWN if is_open else DONE)
    assert trace.is_open is bool(story.missing or has("waiting|unknown"))


def test_an_event_whose_raw_lines_may_have_left_is_not_said_to_have_never_come() -> None:
    archive = MemoryArchive()
    for hour in ("11", "12"):
        archive.write(f"compacted/tap/date={DAY}/hour={hour}/run=1/rows.parquet")
        archive.write(f"published/tap/date={DAY}/hour={hour}/files")
        archive.write(f"compactions/tap/date={DAY}/hour={hour}/receipt.json")
        archive.write(f"tap/date={DAY}/hour={hour}/one.json.gz", tap_line(event("16").json))
    assert found(archive)[0].accounts[0].why.startswith("it never reached the tap")
    del archive.objects[f"tap/date={DAY}/hour=11/one.json.gz"]
    (account,) = found(archive)[0].accounts
    assert account.why.startswith(
        f"not found, and it may have reached the tap: raw lines up to {DAY} have left"
    )


def test_an_undecided_event_was_due_by_its_candidate() -> None:
    archive = MemoryArchive()
    new = with_changes(
        CONTRACT, {"routes/more": {"filter": {"prefix": {"type": "org."}}, "to": "operations.inbox"}}
    )
    archive.write(f"tap/date={DAY}/1", tap_line(SENT.stamped(devicecontract=new.version).json))
    archive.objects[f"contracts/{new.version}.json"] = new.canonical

    def due() -> set[str]:
        return {each.inbox for each in found(archive)[0].accounts}

    # A device can name what it likes.
    assert due() == {ANALYTICS}
    at = timestamp_of_ms(ACCEPTED_MS - 1)
    offered = Head(CONTRACT.version, CONTRACT.version, None, at, new.version)
    archive.objects["contracts/heads/damaged"] = b"{"
    for head, inboxes in (
        (replace(offered, published_at=timestamp_of_ms(ACCEPTED_MS + 1)), {ANALYTICS}),
        (offered, {ANALYTICS, "operations.inbox"}),
    ):
        archive.objects[f"contracts/{head_name(head)}"] = head_text(head)
        assert due() == inboxes


def test_two_senders_of_the_same_names_have_a_trace_each() -> None:
    forged, thief = event("17", subject="forged"), Sender("home-2")
    archive = MemoryArchive()
    archive.write(f"tap/date={DAY}/1", tap_line(forged.json, device="home-2"), tap_line(SENT.json))
    refused = ledger_line(forged, Outcome.DEAD_LETTERED, reason="sender_not_allowed", sender=thief)
    archive.write(f"ledger/date={DAY}/1", refused, told(letter_of_event(forged, thief)), DELIVERED)
    waits = read_letter(queue_message(SENT.stamped(**HOME.attributes)), "dlq", None)
    assert {each.sender: [one.what for one in each.stations] for each in found(archive, waits)} == {
        "home-1/": ["accepted", "in the inbox", "waits since"],
        "home-2/": ["accepted", "refused", "its dead letter in the inbox"],
    }


@pytest.mark.parametrize("carried", [{}, {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}])
def test_an_event_s_trace_is_named(carried: dict[str, str]) -> None:
    sent, archive = event("17", **carried), MemoryArchive()
    archive.write(f"tap/date={DAY}/1", tap_line(sent.json))
    (trace,) = found(archive)
    assert trace.trace_id == ("a" * 32 if carried else context_of(sent).trace_id)


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=8)


@given(source=NAMES, id=NAMES, escaped=st.booleans())
def test_an_event_is_found_however_it_spells_its_names(source: str, id: str, escaped: bool) -> None:
    text = json.dumps({"source": source, "id": id, "type": "t", "specversion": "1.0"}, ensure_ascii=escaped)
    if escaped:
        text = text.replace("/", "\\/")
    line = tap_line(text).encode()
    assert in_tap((source, id))(line) is not None
    assert in_tap((source, id + "x"))(line) is None


def test_an_escape_for_a_plain_letter_hides_nothing() -> None:
    written = parse_event('{"specversion": "1.0", "source": "/s", "id": "\\u0061b", "type": "t"}')
    assert in_tap(("/s", "ab"))(tap_line(written.json).encode()) is not None


def test_an_id_alone_finds_every_source_also_in_the_originals_of_dead_letters() -> None:
    other = write_event({**SENT.attributes, "source": "/homes/2"}, {})
    archive = MemoryArchive()
    archive.write(
        f"tap/date={DAY}/1", tap_line(SENT.json), tap_refusal_line(BYTES.replace(b"1/", b"3/"), "x")
    )
    archive.write(f"ledger/date={DAY}/1", ledger_line(other, Outcome.DELIVERED, route=ROUTE))
    days = Days(archive, DAY, DAY)
    assert sources_of("17", days) == {SOURCE, "/homes/2", "/homes/3/health"}
    assert sources_of("18", days) == set()


DAYS = ("--from", "2026-03-02", "--to", "2026-03-02")


def test_the_command_prints_the_steps_of_the_days_that_it_is_asked_for(
    folder: Folder, run: Run, run_json: RunJson
) -> None:
    for day in ("2026-03-01", "2026-03-02", "2026-03-03"):
        folder.write("tap", [tap_line(event(day).json)], date=day)
    folder.write("ledger", [ledger_line(event("2026-03-02"), Outcome.DELIVERED, route=ROUTE)], "2026-03-02")
    status, out, err = run("trace", SOURCE, "2026-03-02", *DAYS, *folder.named)
    assert (status, err) == (3, "")
    head, _, accepted, delivered, account, missing = out.splitlines()
    assert missing.startswith("missing: care-analytics.inbox: care-analytics leaves no receipts")
    assert account == "care-analytics.inbox: in the inbox"
    assert head.startswith(f"id 2026-03-02 of {SOURCE}, sent by home-1/, trace ")
    assert accepted.startswith("2026-01-01 00:00:00.000  IoT Core ")
    assert re.search("accepted +device home-1", accepted)
    assert "readings-to-care-analytics -> care-analytics.inbox" in delivered
    for day, steps in (("2026-03-01", 0), ("2026-03-02", 2), ("2026-03-03", 0)):
        (only,) = run_json("trace", day, *DAYS, *folder.named)["events"]
        assert len(only["stations"]) == steps
    assert run("trace", "2026-03-03", *DAYS, *folder.named)[0] == 3
    folder.write("tap", [tap_line(event("2026-03-02").json, device="home-2")], "2026-03-02", name="two")
    out = run("trace", "2026-03-02", *DAYS, *folder.named)[1]
    assert out.startswith("2 senders have sent events of these names")


def test_an_id_of_many_sources_needs_one(folder: Folder, run: Run) -> None:
    sent = [write_event({**SENT.attributes, "source": f"/homes/{each}"}, {}) for each in range(17)]
    folder.write("tap", [tap_line(each.json) for each in sent], "2026-03-02")
    status, out, err = run("trace", "17", *DAYS, *folder.named)
    assert (status, out, "17 sources have an event of this id (/homes/0, " in err) == (2, "", True)
    assert run("trace", "/homes/0", "17", *DAYS, *folder.named)[0] == 3


def test_a_damaged_object_hides_no_other(folder: Folder, run: Run) -> None:
    whole = gzip.compress(tap_line(event("18").json).encode() * 50)
    folder.put("tap/date=2026-03-02/cut.json.gz", whole[: len(whole) // 2])
    folder.write("tap", ["no json, but about 17", tap_line(SENT.json)], "2026-03-02", name="whole")
    folder.write("ledger", [DELIVERED], "2026-03-02")
    status, out, err = run("trace", SOURCE, "17", *DAYS, *folder.named)
    assert (status, "accepted" in out) == (3, True)
    assert "cut.json.gz could not be read to its end" in err
    assert "whole.json.gz could not be read" in err


def test_dead_letter_queues_are_searched_and_no_queue_that_another_reads(
    plane: Plane, run: Run, run_json: RunJson
) -> None:
    plane.send(f"{INBOX}-dlq", SENT.stamped(**HOME.attributes))
    plane.send(f"{INBOX}-dlq", event("18"))
    plane.send("operations-inbox", letter(BYTES, "missing_attribute"))
    (only,) = run_json("trace", SOURCE, "17")["events"]
    assert [each["where"] for each in only["stations"]] == [f"eventplane-test-{INBOX}-dlq"]
    assert only["accounts"] == [
        Account(ANALYTICS, Fate.GIVEN_UP, "care-analytics", "receives_exhausted").document()
    ]
    assert [run("trace", SOURCE, "17", *more)[0] for more in ([], ["--follow"])] == [1, 1]
    assert len(plane.received(f"{INBOX}-dlq")) == 2
    (unread,) = plane.received("operations-inbox")
    assert unread["Attributes"]["ApproximateReceiveCount"] == "1"


def test_following_prints_each_step_once_until_all_is_known(
    folder: Folder, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [
        lambda: folder.write("tap", [tap_line(SENT.json)], "2026-03-02"),
        lambda: folder.write("ledger", [DELIVERED], "2026-03-02"),
    ]
    monkeypatch.setattr("operations.system.sleep", lambda _: later.pop(0)())
    status, out, err = run("trace", "17", "--follow", "--json", *DAYS, *folder.named)
    assert (status, err.count("\n"), err[:9]) == (3, 1, "missing: ")
    told = [json.loads(line) for line in out.splitlines()]
    assert [each.get("what") or each["inbox"] for each in told] == ["accepted", "in the inbox", ANALYTICS]


def test_following_reads_each_object_once(folder: Folder, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("tap", [tap_line(SENT.json)], "2026-03-02")
    read: list[str] = []
    opened = FolderArchive.open
    monkeypatch.setattr(
        FolderArchive, "open", lambda archive, name: (read.append(name), opened(archive, name))[1]
    )
    looks: list[int] = []

    def sleep(_: float) -> None:
        looks.append(sum(name.startswith("tap/") for name in read))
        folder.write("ledger", [DELIVERED] * (len(looks) == 3), "2026-03-02", f"object-{len(looks)}")

    monkeypatch.setattr("operations.system.sleep", sleep)
    assert run("trace", "17", "--follow", *DAYS, *folder.named)[0] == 3
    # For its sources, its own line, and the reports of its home.
    assert looks == [3, 3, 3]


def test_following_ends_in_time_with_what_is_missing(folder: Folder, run: Run) -> None:
    folder.write("tap", [tap_line(SENT.json)], "2026-03-02")
    words = ("--follow", "--timeout", "0.1", *DAYS, *folder.named)
    status, out, err = run("trace", "17", *words)
    assert (status, err, out.count("\n")) == (3, "", 2)
    assert "care-analytics.inbox: unknown: no router has decided" in out


@pytest.mark.parametrize(
    "words", [["a", "b", "c"], ["17", "--timeout", "1"], ["17", "--from", "2026-03-02", "--to", "2026-03-01"]]
)
def test_wrong_words_are_refused(folder: Folder, run: Run, words: list[str]) -> None:
    status, out, err = run("trace", *words, *folder.named)
    assert (status, out, err.count("\n")) == (2, "", 1)
