"""`eventplane contract rehearse`: a day of the archive, judged by a new contract."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.contract.subscription import Subscription, subscribed_routes, with_subscriptions
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.ledger import CONTRACTS, LEDGER, TAP, LedgerRecord, to_line
from eventplane.names import PLANE
from eventplane.reasons import REPLAY, Outcome
from eventplane.values import timestamp_of_ms
from glue_jobs.delivery_audit.contracts import ContractHistory, Use
from glue_jobs.delivery_audit.expect import attributes_of, expected_routes
from lab.archive_generator.flows import MOTION, audited_contracts
from lab.archive_generator.generator import Scale, generate
from operations.archive import Days, FolderArchive, json_object
from tests.small_contract import small_document, with_changes
from tests.unit.operations.support import ACCEPTED_MS, Folder, Plane, Run, line

DAY = "2026-01-01"
ALARM, NOTE, CALL = "org.example.alarm.v1", "org.example.note.v1", "org.example.call.v1"
PLAIN = small_document(
    {
        "device": "device",
        "bell": {"kind": "device_service", "sends": [ALARM, NOTE]},
        "chime": {"kind": "device_service", "sends": []},
        "desk": {"kind": "cloud_service", "sends": [CALL]},
        "shop": {"kind": "cloud_service", "sends": []},
        "operations": {"kind": "cloud_service", "sends": []},
    },
    {
        "up": ({"prefix": {"type": "org."}}, "device.outbox"),
        "rings": ({"exact": {"type": ALARM}}, "chime.inbox"),
        "alarms": ({"exact": {"type": ALARM}}, "desk.inbox"),
        "notes": ({"exact": {"type": NOTE}}, "shop.inbox"),
        "calls": ({"exact": {"type": CALL}}, "shop.inbox"),
        "letters": ({"exact": {"type": DEAD_LETTER_TYPE}}, "operations.inbox"),
    },
    {ALARM: {"priority": "urgent"}, NOTE: {}, CALL: {"priority": "urgent"}},
)


OLD = compile_contract(PLAIN, "plain")


def changed(changes: dict[str, Any]) -> Contract:
    return with_changes(OLD, changes)


def sent(id: str, type: str, **more: Any) -> Envelope:
    recorded = {"recordedtime": timestamp_of_ms(ACCEPTED_MS - 5_000), "senderservice": "bell"}
    return write_event({"id": id, "source": "/homes/1/bell", "type": type, **recorded, **more}, {"value": 1})


def decided(event: Envelope, delay_ms: int = 40, **more: Any) -> str:
    """Return a row of the ledger about an event of `home-1`."""
    members: dict[str, Any] = {
        "decided_at_ms": ACCEPTED_MS + delay_ms,
        "entered_at_ms": ACCEPTED_MS,
        "entered_by": "device.outbox",
        "contract_version": OLD.version,
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "priority": "normal",
        "client_id": "home-1",
        "route": "r",
        "destination": "desk.inbox",
        "outcome": Outcome.DELIVERED,
        "reason": None,
        "attempt": 1,
        "message_id": "m",
        "sender": "home-1/bell",
    }
    return to_line(LedgerRecord(**{**members, **more}))


def called(id: str, destination: str | None = "shop.inbox", **more: Any) -> str:
    """Return a row about a call of the desk, of which the archive has no more."""
    event = write_event({"id": id, "source": "/desk", "type": CALL})
    of_desk = {"entered_by": "desk.outbox", "client_id": None, "sender": "desk", "priority": "urgent"}
    return decided(event, **{**of_desk, "destination": destination, **more})


@dataclass
class Day:
    """A day of an archive, and the command on it."""

    folder: Folder
    run: Run

    def rehearse(self, changes: dict[str, Any], *words: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the result for the plane's contract with `changes`."""
        file = self.folder.root / "new.json"
        file.write_bytes(changed(changes).canonical)
        status, out, err = self.words(str(file), "--json", *words)
        return status, json.loads(out) if out else {"error": err}

    def words(self, *words: str) -> tuple[int, str, str]:
        more = [] if "--date" in words else ["--date", DAY]
        more += [] if "--archive" in words else self.folder.named
        return self.run("contract", "rehearse", *words, *more, "--jobs", "1")


ALARM_EVENT, NOTE_EVENT = sent("1", ALARM), sent("2", NOTE, subject="a")


@pytest.fixture
def day(folder: Folder, run: Run) -> Day:
    """A day with an alarm, and a note that was decided two minutes late."""
    folder.write(TAP, [line(ALARM_EVENT), line(NOTE_EVENT)], DAY)
    folder.write(LEDGER, [decided(ALARM_EVENT), decided(NOTE_EVENT, 120_000)], DAY)
    folder.put(f"{CONTRACTS}/{OLD.version}.json", OLD.canonical)
    return Day(folder, run)


def rows(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (each["kind"], each["to"], each["type"], each["before"], each["after"]) for each in result["changes"]
    ]


def test_the_same_contract_changes_nothing(day: Day) -> None:
    status, found = day.rehearse({})
    assert (status, found["changes"], found["events"]) == (0, [], 2)
    assert found["old"] == found["new"] == OLD.version
    assert [(each["inbox"], each["before"], each["after"]) for each in found["deliveries"]] == [
        ("chime.inbox", 1, 1),
        ("desk.inbox", 1, 1),
        ("shop.inbox", 1, 1),
    ]


@pytest.mark.parametrize(
    ("changes", "expected", "status"),
    [
        ({"routes/alarms": None}, [("fewer", "desk.inbox", ALARM, "alarms", "no route takes it")], 1),
        ({"routes/rings": None}, [("fewer", "chime.inbox", ALARM, "rings", "no route takes it")], 1),
        ({"routes/notes": None}, [("fewer", "shop.inbox", NOTE, "notes", "no route takes it")], 0),
        (
            {
                "routes/more": {
                    "filter": {"sql": f"type = '{NOTE}' AND subject LIKE 'a%'"},
                    "to": "desk.inbox",
                }
            },
            [("more", "desk.inbox", NOTE, "no route takes it", "more")],
            0,
        ),
        (
            {"routes/more": {"filter": {"exact": {"type": ALARM}}, "to": "shop.inbox"}},
            [("more", "shop.inbox", ALARM, "no route takes it", "more")],
            0,
        ),
        (
            {"participants/shop/inbox": {"expiry_s": 60}},
            [("fewer", "shop.inbox", NOTE, "notes", "channel_expiry")],
            0,
        ),
        (
            {"participants/shop/inbox": {"expiry_s": 600}},
            [("expiry", "shop.inbox", NOTE, "never", "600 s")],
            0,
        ),
        # It was in the home for five seconds, by its device's clock.
        (
            {"participants/bell/outbox": {"expiry_s": 5}},
            [
                ("fewer", "desk.inbox", ALARM, "alarms", "channel_expiry"),
                ("expiry", "chime.inbox", ALARM, "never", "5 s"),
                ("fewer", "shop.inbox", NOTE, "notes", "channel_expiry"),
            ],
            1,
        ),
        (
            {"participants/shop/inbox": {"transport": "sqs_fifo", "ordering": "source"}},
            [("order", "shop.inbox", NOTE, "none", "source")],
            0,
        ),
        (
            {"event_types/org.example.note.v1/delivery_guarantee": "best_effort"},
            [("guarantee", "shop.inbox", NOTE, "at_least_once", "best_effort")],
            0,
        ),
        (
            {f"event_types/{NOTE}/priority": "low"},
            [("priority", "shop.inbox", NOTE, "normal", "low")],
            0,
        ),
        (
            {"participants/bell/sends": [ALARM], "participants/chime/sends": [NOTE]},
            [
                ("fewer", "shop.inbox", NOTE, "notes", "sender_not_allowed"),
                ("more", "operations.inbox", DEAD_LETTER_TYPE, "no route takes it", "letters"),
                ("refused", "bell.outbox", NOTE, "allowed", "sender_not_allowed"),
            ],
            0,
        ),
        (
            {
                f"event_types/{NOTE}/schemas": [{"$id": "urn:a:note", "required": ["other"]}],
                f"event_types/{NOTE}/schema_check": "known",
            },
            [
                ("fewer", "shop.inbox", NOTE, "notes", "payload_invalid"),
                ("more", "operations.inbox", DEAD_LETTER_TYPE, "no route takes it", "letters"),
                ("refused", "bell.outbox", NOTE, "allowed", "payload_invalid"),
            ],
            0,
        ),
        # Another participant in the place of the desk.
        (
            {
                "participants/desk": None,
                "participants/guard": {"kind": "cloud_service", "description": "d", "sends": [CALL]},
                "routes/alarms/to": "guard.inbox",
            },
            [
                ("fewer", "desk.inbox", ALARM, "alarms", "no route takes it"),
                ("more", "guard.inbox", ALARM, "no route takes it", "alarms"),
            ],
            1,
        ),
        (
            {"routes/up/filter": {"exact": {"type": ALARM}}},
            [("fewer", "shop.inbox", NOTE, "notes", "no route takes it")],
            0,
        ),
    ],
)
def test_a_change_is_found(
    day: Day, changes: dict[str, Any], expected: list[tuple[Any, ...]], status: int
) -> None:
    found_status, found = day.rehearse(changes)
    assert sorted(rows(found)) == sorted(expected)
    assert (found_status, found["alarm_loses_reader"]) == (status, status == 1)
    for each in found["changes"]:
        named = each["examples"][0]
        assert (named["sender"], named["source"]) == ("home-1/bell", "/homes/1/bell")
        assert each["type"] == DEAD_LETTER_TYPE or named["id"] == ("1" if each["type"] == ALARM else "2")


FIFO = {"transport": "sqs_fifo", "ordering": "source"}


@pytest.mark.parametrize(
    ("before", "changes", "kind", "inbox"),
    [
        ({}, {f"event_types/{ALARM}/delivery_guarantee": "best_effort"}, "guarantee", "desk.inbox"),
        ({}, {f"event_types/{ALARM}/priority": "normal"}, "priority", "desk.inbox"),
        ({}, {"participants/desk/inbox": {"expiry_s": 60}}, "expiry", "desk.inbox"),
        ({}, {"participants/desk/inbox": {"retention_s": 600}}, "retention", "desk.inbox"),
        ({"participants/desk/inbox": FIFO}, {}, "order", "desk.inbox"),
        ({}, {"participants/shop/inbox": {"retention_s": 600}}, "retention", "shop.inbox"),
    ],
)
def test_an_alarm_worth_less_is_harm(
    day: Day, before: dict[str, Any], changes: dict[str, Any], kind: str, inbox: str
) -> None:
    """Of events that are devices' and of those of services in the cloud."""
    day.folder.write(LEDGER, [decided(ALARM_EVENT), called("c1")], DAY)
    old = day.folder.root / "old.json"
    old.write_bytes(changed(before).canonical)
    status, found = day.rehearse(changes, "--old", str(old))
    harm = {(each["kind"], each["to"]): each["harm"] for each in found["changes"] if each["harm"]}
    assert (status, found["alarm_loses_reader"]) == (1, False)
    assert f"for {inbox} " in harm[kind, inbox]
    _, text, _ = day.words(str(day.folder.root / "new.json"), "--old", str(old))
    assert harm[kind, inbox] in text


@pytest.mark.parametrize(
    "changes",
    [
        {"participants/desk/inbox": {"expiry_s": 3_600}},
        {"participants/desk/inbox": {"retention_s": 1_209_600}},
        {"participants/desk/inbox": FIFO},
    ],
)
def test_an_alarm_that_is_worth_as_much_is_no_harm(day: Day, changes: dict[str, Any]) -> None:
    assert day.rehearse(changes)[0] == 0


def test_a_refused_payload_stays_refused(day: Day) -> None:
    reason = {
        "reason": "payload_invalid",
        "outcome": Outcome.DEAD_LETTERED,
        "route": None,
        "destination": None,
    }
    letter = write_event(
        {
            "id": "l",
            "source": "/eventplane/cloud/router",
            "type": DEAD_LETTER_TYPE,
            "deadletterreason": "payload_invalid",
        }
    )
    about = {"sender": PLANE, "destination": "operations.inbox", "dead_letter_reason": "payload_invalid"}
    day.folder.write(
        LEDGER, [decided(ALARM_EVENT), decided(NOTE_EVENT, **reason), decided(letter, **about)], DAY
    )
    status, found = day.rehearse({"routes/notes": None})
    assert (status, found["changes"]) == (0, [])
    assert {each["inbox"]: each["after"] for each in found["deliveries"]}["operations.inbox"] == 1


def test_of_calls_the_ledger_has_names(day: Day) -> None:
    replayed = called("c2", reason=REPLAY)
    day.folder.write(LEDGER, [decided(ALARM_EVENT), called("c1"), called("c1"), replayed], DAY)
    status, found = day.rehearse({"routes/calls/to": "operations.inbox"})
    assert status == 1
    assert rows(found)[:2] == [
        ("fewer", "shop.inbox", CALL, "calls", "no route takes it"),
        ("more", "operations.inbox", CALL, "no route takes it", "calls"),
    ]
    assert [each["count"] for each in found["changes"][:2]] == [2, 1]
    assert day.rehearse({"participants/shop/inbox": {"expiry_s": 60}})[1]["changes"][0]["after"] == "60 s"
    assert day.rehearse({"participants/desk/sends": []})[0] == 1


@pytest.mark.parametrize(
    ("before", "after", "unknown"),
    [
        ({"exact": {"type": CALL}}, {"exact": {"subject": "now"}}, ["shop.inbox"]),
        ({"exact": {"subject": "now"}}, {"exact": {"subject": "then"}}, ["shop.inbox"]),
        ({"exact": {"subject": "now"}}, {"prefix": {"type": "org."}}, []),
        ({"exact": {"subject": "now"}}, {"exact": {"subject": "now"}}, []),
    ],
)
def test_what_a_filter_asks_besides_is_not_known(
    day: Day, before: dict[str, Any], after: dict[str, Any], unknown: list[str]
) -> None:
    """That is no loss, and no promise either."""
    day.folder.write(
        LEDGER, [decided(ALARM_EVENT), called("c1"), called("c2", None, outcome="unrouted")], DAY
    )
    old = day.folder.root / "old.json"
    old.write_bytes(changed({"routes/calls/filter": before}).canonical)
    status, found = day.rehearse({"routes/calls/filter": after}, "--old", str(old))
    assert (status, [each["inbox"] for each in found["unknown"]]) == (3 if unknown else 0, unknown)


@pytest.mark.parametrize("order", [1, -1])
def test_each_delivery_is_judged_by_its_row(day: Day, order: int) -> None:
    """Two inboxes got the calls, one of them twice, and both get all of them by the new contract."""
    calls = {"routes/more": {"filter": {"exact": {"type": CALL}}, "to": "operations.inbox"}}
    wider = {"routes/calls/filter": {"prefix": {"type": "org.example.call."}}}
    old = day.folder.root / "old.json"
    old.write_bytes(changed(calls).canonical)
    came = [called("c1"), called("c1", "operations.inbox"), called("c1")]
    day.folder.write(LEDGER, [decided(ALARM_EVENT), *came[::order]], DAY)
    status, found = day.rehearse({**calls, **wider}, "--old", str(old))
    assert (status, found["unknown"], found["changes"]) == (0, [], [])


def test_an_hour_that_the_tap_lacks_is_named(day: Day) -> None:
    """Without the events themselves nothing says that no alarm loses a reader."""
    day.folder.write(TAP, [], DAY)
    day.folder.write(LEDGER, [decided(ALARM_EVENT), called("c1")], DAY)
    status, found = day.rehearse({"routes/alarms": None})
    assert (status, list(found["damaged"])) == (3, ["tap/date=2026-01-01/hour=00"])


def test_payloads_of_calls_are_not_known(day: Day) -> None:
    day.folder.write(LEDGER, [decided(ALARM_EVENT), called("c1")], DAY)
    schemas = {
        f"event_types/{CALL}/schemas": [{"$id": "urn:a:call"}],
        f"event_types/{CALL}/schema_check": "strict",
    }
    status, found = day.rehearse(schemas)
    assert (status, found["unknown"][0]["count"]) == (3, 1)


def hooked(name: str) -> Subscription:
    request = json.dumps({"protocol": "HTTP", "sink": "https://example.org/"})
    return Subscription(name, "hook", json.dumps({"exact": {"type": ALARM}}), "", request)


@pytest.mark.parametrize("is_of_device", [True, False])
def test_each_webhook_is_a_reader(day: Day, is_of_device: bool) -> None:
    """All of them share an inbox."""
    service = {"kind": "cloud_service", "description": "d", "sends": []}
    may = {"participants/operations/may_subscribe": {"exact": {"type": ALARM}}}
    hooks = {"participants/subscribers": service, "participants/guard": {**service, "sends": [ALARM]}, **may}
    old, refused = with_subscriptions(changed(hooks), [hooked("desk"), hooked("operations")])
    assert not refused
    file = day.folder.root / "old.json"
    file.write_bytes(old.canonical)
    if not is_of_device:
        event = write_event({"id": "1", "source": "/guard", "type": ALARM})
        of_guard = {"entered_by": "guard.outbox", "client_id": None, "sender": "guard", "priority": "urgent"}
        to_hooks = (
            decided(event, **of_guard, destination="subscribers.inbox", route=each.name)
            for each in subscribed_routes(old)
        )
        day.folder.write(TAP, [], DAY)
        day.folder.write(LEDGER, [*to_hooks], DAY)
    status, found = day.rehearse(
        {**hooks, "participants/desk/may_subscribe": {"exact": {"type": NOTE}}}, "--old", str(file)
    )
    (lost,) = [each for each in found["changes"] if each["is_reader"]]
    assert (status, lost["kind"], lost["to"]) == (1, "fewer", f"subscribers.inbox {hooked('desk').route}")
    (to,) = [each for each in found["deliveries"] if each["inbox"] == "subscribers.inbox"]
    assert (to["before"], to["after"]) == (2, 1)


def test_hops_are_counted_of_each_event(day: Day) -> None:
    day.folder.write(TAP, [line(ALARM_EVENT), line(sent("3", ALARM, routerhops=16))], DAY)
    found = day.rehearse({})[1]["deliveries"]
    assert [each["before"] for each in found if each["inbox"] == "desk.inbox"] == [1]


def test_two_processes_find_the_same(day: Day) -> None:
    day.folder.write(TAP, [line(sent(f"n{at}", NOTE)) for at in range(3)], DAY, "two")
    changes = {"routes/notes": None}
    one, two = day.rehearse(changes), day.rehearse(changes, "--jobs", "2")
    assert one == two
    assert one[1]["changes"][0]["count"] == 4


def test_the_text_is_for_people(day: Day) -> None:
    file = day.folder.root / "new.json"
    file.write_bytes(changed({"routes/alarms": None}).canonical)
    status, out, err = day.words(str(file))
    assert status == 1
    assert "alarms: 1 deliveries (desk.inbox) lose a reader, none gain one" in out
    assert "1 of /homes/1/bell" in out
    assert "tap: 1 of 1 objects, 2 events" in err
    assert "cost of the queues: 0.0000 -> 0.0000 USD" in out


def test_a_damaged_line_is_named(day: Day) -> None:
    lines = [
        line(ALARM_EVENT),
        "{",
        json.dumps({"event": "{}"}),
        line(NOTE_EVENT).replace('"accepted_at_ms":1', '"accepted_at_ms":-1'),
    ]
    name = day.folder.write(TAP, lines, DAY)
    status, found = day.rehearse({})
    assert (status, list(found["damaged"]), found["events"]) == (3, [name], 1)
    day.folder.put(name, b"no gzip")
    assert day.rehearse({})[0] == 3
    day.folder.write(
        LEDGER, [decided(ALARM_EVENT), "[]", decided(ALARM_EVENT).replace('"id":"1"', '"id":1')], DAY
    )
    assert len(day.rehearse({})[1]["damaged"]) == 3
    half = decided(ALARM_EVENT, entered_by="desk.outbox", sender="desk").replace('"id":"1"', r'"id":"\ud800"')
    day.folder.write(LEDGER, [decided(ALARM_EVENT), half], DAY)
    assert len(day.rehearse({"routes/alarms": None})[1]["damaged"]) == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--date", "2026-01-05"], "the archive has no events of 2026-01-05 to rehearse on"),
        (["--date", "yesterday"], "is no day"),
        (["--date", "9999-12-31"], "is no day"),
        (["--archive", "/nowhere"], "/nowhere"),
        (["--old", "missing.json"], "missing.json"),
        (["--jobs", "0"], "is no whole number above 0"),
    ],
)
def test_wrong_words_exit_with_2(day: Day, words: list[str], says: str) -> None:
    file = day.folder.root / "new.json"
    file.write_bytes(OLD.canonical)
    status, out, err = day.words(str(file), *words)
    assert (status, out) == (2, "")
    assert says in err


def test_a_wrong_contract_exits_with_2(day: Day) -> None:
    file = day.folder.root / "new.yaml"
    file.write_text("format: 8\n")
    status, out, err = day.words(str(file))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


def test_the_old_contract_must_be_known(day: Day) -> None:
    stored = day.folder.root / CONTRACTS / f"{OLD.version}.json"
    stored.write_bytes(b"{")
    status, found = day.rehearse({})
    assert status == 2
    assert f"{OLD.version}, in force that day; name its file by --old" in found["error"]
    stored.unlink()
    old = day.folder.root / "old.json"
    old.write_bytes(OLD.canonical)
    assert day.rehearse({}, "--old", str(old))[0] == 0
    day.folder.write(LEDGER, [], DAY)
    assert "names no contract in force" in day.rehearse({})[1]["error"]


def test_a_candidate_is_not_what_was_in_force(day: Day) -> None:
    """The contract of few devices decided last."""
    candidate = changed({"routes/more": {"filter": {"exact": {"type": CALL}}, "to": "desk.inbox"}})
    day.folder.put(f"{CONTRACTS}/{candidate.version}.json", candidate.canonical)
    last = decided(sent("3", NOTE, subject="a"), 130_000, contract_version=candidate.version)
    day.folder.write(LEDGER, [decided(ALARM_EVENT), decided(NOTE_EVENT, 120_000), last], DAY)
    assert day.rehearse({})[1]["old"] == OLD.version


def test_a_day_without_rows_of_it(day: Day) -> None:
    """Of another day are rows that were written on this one."""
    day.folder.write(TAP, [line(ALARM_EVENT)], "2026-01-02")
    day.folder.write(LEDGER, [decided(ALARM_EVENT, 86_400_000)], "2026-01-02")
    status, found = day.rehearse({}, "--date", "2026-01-02")
    assert status == 2
    assert "no row of it is of that day" in found["error"]


def test_it_equals_the_audit_afterwards(tmp_path: Path, run: Run) -> None:
    """The audit's routes of the same day, were the new contract in force."""
    document = json.loads(audited_contracts()[0].canonical)
    del document["routes"]["alarms-to-centre"]
    sql = f"type = '{MOTION}' AND subject LIKE '%'"
    document["routes"]["motion"] = {"filter": {"sql": sql}, "to": "care.inbox"}
    new = compile_contract(document, "new")
    generate(tmp_path, Scale(events=400, hours=2, fault_every=0), audited_contracts())
    file = tmp_path / "new.json"
    file.write_bytes(new.canonical)
    archive = tmp_path / "archive"
    words = "--archive", str(archive), "--date", "2026-03-01", "--jobs", "1"
    status, out, _ = run("contract", "rehearse", str(file), *words, "--json")
    found = json.loads(out)
    assert (status, found["alarm_loses_reader"]) == (1, True)
    routes, inboxes = (
        expected_routes(ContractHistory((Use(new, None),))),
        {each.name: each for each in new.routes},
    )
    due = Counter[tuple[str, str]]()
    days = Days(FolderArchive(archive), date(2026, 3, 1), date(2026, 3, 1))
    for row in days.records(TAP, json_object):
        members = json.loads(row["event"])
        (names,), at_home = routes(attributes_of(members, row["client_id"]))
        due.update((inboxes[each].destination, members["type"]) for each in names.split() if each in inboxes)
        due.update((each.split()[1], members["type"]) for each in at_home.splitlines())
    assert {
        (each["inbox"], each["type"]): each["after"] for each in found["deliveries"] if each["after"]
    } == due


def test_the_environment_s_bucket_is_read(plane: Plane, day: Day) -> None:
    plane.archive(TAP, [line(ALARM_EVENT)], date=DAY)
    plane.archive(LEDGER, [decided(ALARM_EVENT)], date=DAY)
    plane.s3.put_object(Bucket=plane.bucket, Key=f"{CONTRACTS}/{OLD.version}.json", Body=OLD.canonical)
    file = day.folder.root / "new.json"
    file.write_bytes(changed({"routes/alarms": None}).canonical)
    status, out, _ = day.run("contract", "rehearse", str(file), "--date", DAY, "--jobs", "1", "--json")
    assert (status, json.loads(out)["events"]) == (1, 1)
