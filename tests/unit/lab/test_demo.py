"""The demo: its input, what should arrive, and the verdict on what did."""

import lzma
from collections import Counter
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from eventplane.account import Fate
from eventplane.contract import Contract, Place
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope, write_event
from eventplane.names import NOTICE
from glue_jobs.delivery_audit.home import HOME
from lab.audits import taken
from lab.consumers import UNREADABLE, Consumers, ReceivedEvent
from lab.demo.faults import LOCAL, PHASES, Forgotten, missing, notices
from lab.demo.report import headline
from lab.demo.summary import FOUND, IRREGULAR, summarise, unproven
from lab.input import open_input, read_bound
from lab.input.datasets import ALARM_TYPE, READING_TYPE, opensmarthome_homes, tihm_homes
from lab.input.model import InputBoundError, InputFileError, InputMissingError, InputRowError
from lab.oracle import Arrived, Key, SentLog, ServiceResult, dead_lettered, expected_by_service, judge
from lab.poison import Poison, cloud_payloads
from lab.services import CALL_SERVICE, LISTENERS, arrived_on_device
from tests.fakes.sqs import FakeSqs


def event(type_: str, *, id_: str = "1", subject: str = "/kitchen") -> Envelope:
    names = {"id": id_, "source": "/homes/h/health-service", "type": f"org.eventplane.{type_}"}
    return write_event({**names, "subject": subject})


def test_a_repeated_event_counts_once(contract: Contract) -> None:
    log, alarm = SentLog(contract), event("alarm.clinical.v1")
    for each in (alarm, event("health.reading.v1", id_="2"), alarm):
        log.event(each, contract.channel("health-service.outbox"))
    assert (log.events_sent, log.urgent_sent, [each.id for each in log.events]) == (2, 1, ["1", "2"])
    for payload in cloud_payloads("/homes/h/health-service"):
        log.cloud_payload(payload)
    assert [each.entered for each in log.events[2:]] == [Place.CLOUD] * 4
    kinds = ["missing_id", "not_json", "truncated_batch", "wrong_payload"]
    assert sorted(each.kind for each in log.malformed) == kinds


def expected(contract: Contract, *events: Envelope, entered: Place = Place.DEVICE) -> dict[str, set[Key]]:
    log = SentLog(contract)
    for each in events:
        log.event(each, contract.channel("health-service.outbox"), entered)
    return expected_by_service(contract, log.events, log.malformed)


@pytest.mark.parametrize(
    ("sent", "entered", "services"),
    [
        (event("alarm.keyword.v1"), Place.DEVICE, {"call-service", "alarm-centre", "family-app"}),
        (event("alarm.keyword.v1"), Place.CLOUD, {"alarm-centre", "family-app"}),
        (event("activity.motion.v1"), Place.DEVICE, {"care-analytics", "family-app"}),
        (event("activity.motion.v1", subject="/bedroom"), Place.DEVICE, {"care-analytics"}),
        (event("home.threshold.v1"), Place.CLOUD, {"health-service"}),
        (event("unknown.v1"), Place.DEVICE, set()),
    ],
)
def test_expected_by_contract(contract: Contract, sent: Envelope, entered: Place, services: set[str]) -> None:
    keys = expected(contract, sent, entered=entered)
    assert {service for service, those in keys.items() if those} == services
    assert keys.keys() >= services | {"voice-service", "operations", "carers"}


def test_letters_and_starts_are_expected(contract: Contract) -> None:
    log = SentLog(contract)
    for payload in (b"no", b"nor this"):
        log.poison(Poison("not_json", "not_json", payload))
    letter, started = ("not_json", sha256(b"no").hexdigest()), (STARTED, "/devices/h1/forwarder")
    keys = expected_by_service(contract, log.events, log.malformed, ["h1"])
    assert {service for service, those in keys.items() if those} == {"operations"}
    assert keys["operations"] == {letter, ("not_json", sha256(b"nor this").hexdigest()), started}
    assert dead_lettered(log.malformed, {"operations": Arrived({letter, started}, 0)}) == 1


def test_a_run_in_which_everything_arrived_is_good(contract: Contract) -> None:
    keys = expected(contract, *(each.event for each in open_input(homes=2, events=200)))
    arrived = {service: Arrived(those, duplicates=3) for service, those in keys.items()}

    verdicts = judge(keys, arrived)

    assert all(verdict.good for verdict in verdicts)
    assert sum(verdict.delivered for verdict in verdicts) == sum(len(those) for those in keys.values()) > 200
    assert [verdict.duplicates for verdict in verdicts] == [3] * len(keys)


def test_a_removed_event_is_found_as_lost_and_named(contract: Contract) -> None:
    keys = expected(contract, *(each.event for each in open_input(homes=2, events=200)))
    arrived = {service: Arrived(set(those), duplicates=0) for service, those in keys.items()}
    removed = max(keys["care-analytics"])
    arrived["care-analytics"] = Arrived(keys["care-analytics"] - {removed}, duplicates=0)

    bad = [verdict for verdict in judge(keys, arrived) if not verdict.good]

    assert [(verdict.service, verdict.lost, verdict.unexpected) for verdict in bad] == [
        ("care-analytics", (removed,), ())
    ]
    assert bad[0].delivered == bad[0].expected - 1


def test_an_event_that_nobody_expects_is_found(contract: Contract) -> None:
    keys = expected(contract, event("activity.motion.v1", subject="/bedroom"))
    stray = ("/homes/h/health-service", "1")
    arrived = {"care-analytics": Arrived({stray}, 0), "family-app": Arrived({stray}, 0)}

    bad = [verdict for verdict in judge(keys, arrived) if not verdict.good]

    assert [(verdict.service, verdict.unexpected) for verdict in bad] == [("family-app", (stray,))]


def test_a_silent_service_has_lost_everything(contract: Contract) -> None:
    verdicts = judge(expected(contract, event("health.reading.v1")), {})

    assert [verdict.service for verdict in verdicts if verdict.lost] == ["care-analytics"]


@pytest.mark.parametrize("text", ["", "0", "1.5", "٣"])
def test_another_bound_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InputBoundError, match=r"EVENTS=.*give a number from 1, or all"):
        read_bound("EVENTS", text)


PHYSIOLOGY = """patient_id,date,device_type,value,unit
aaaaa,2019-04-02 08:00:00,Heart rate,70,beats/min
bbbbb,2019-04-01 09:00:00,Body Temperature,36.072,Cel
aaaaa,2019-04-01 08:00:00,Systolic blood pressure,131.5,mm[Hg]
"""
LABELS = """patient_id,date,type
aaaaa,2019-04-01 12:00:00,Blood pressure
ccccc,2019-04-03 12:00:00,Agitation
"""


def tihm(folder: Path, physiology: str = PHYSIOLOGY, labels: str = LABELS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    crlf = physiology.replace("\n", "\r\n").encode()
    (folder / "Physiology.csv.xz").write_bytes(lzma.compress(crlf))
    (folder / "Labels.csv").write_bytes(labels.replace("\n", "\r\n").encode())
    return folder


def test_every_patient_is_a_home(tmp_path: Path) -> None:
    homes = tihm_homes(tihm(tmp_path))
    assert [(each.name, each.size, each.urgent) for each in homes] == [
        ("tihm-aaaaa", 3, 1),
        ("tihm-ccccc", 1, 1),  # with an alert only
        ("tihm-bbbbb", 1, 0),
    ]
    assert [(each.event.attributes["time"], each.event.type) for each in homes[0].events()] == [
        ("2019-04-01T08:00:00Z", READING_TYPE),
        ("2019-04-01T12:00:00Z", ALARM_TYPE),
        ("2019-04-02T08:00:00Z", READING_TYPE),
    ]
    (reading,) = homes[2].events()
    assert reading.event.claim == ("/homes/tihm-bbbbb/health-service", "physiology-3")
    assert reading.event.attributes["subject"] == "/body/temperature"
    assert reading.event.data() == {"quantity": "body-temperature", "value": 36.072, "unit": "Cel"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("aaaaa,2019-04-01 08:00:00,Heart rate,70", "4 fields instead of 5"),
        ("aaaaa,2019-04-31 08:00:00,Heart rate,70,beats/min", "'2019-04-31 08:00:00' is not a time"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,,beats/min", "'' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,1e999,beats/min", "'1e999' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Crystal ball,70,beats/min", "device type 'Crystal ball' is not known"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path: Path, row: str, problem: str) -> None:
    folder = tihm(tmp_path, physiology=PHYSIOLOGY + row + "\n")

    with pytest.raises(InputRowError) as raised:
        tihm_homes(folder)

    assert raised.value.path == folder / "Physiology.csv.xz"
    assert raised.value.line == 5
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("files", "error", "problem"),
    [
        ({}, InputMissingError, "is missing"),
        ({"Kitchen_Humidity": b"not xz"}, InputFileError, "cannot be decoded"),
        ({"Kitchen_Smell": lzma.compress(b"1489023159\t47\n")}, InputFileError, "Kitchen_Smell"),
        (
            {"Kitchen_Humidity": lzma.compress(b"1489023159\t47\nnoon\t46\n")},
            InputRowError,
            r"Kitchen_Humidity\.csv\.xz, line 2: 'noon' is not a time",
        ),
    ],
    ids=["no file", "damaged", "unknown quantity", "wrong time"],
)
def test_a_flat_that_cannot_be_played_is_refused_by_file(
    tmp_path: Path, files: dict[str, bytes], error: type[Exception], problem: str
) -> None:
    for name, content in files.items():
        (tmp_path / f"{name}.csv.xz").write_bytes(content)
    with pytest.raises(error, match=problem):
        opensmarthome_homes(tmp_path)


def test_data_sets_that_are_incomplete_are_refused_by_file(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="DATA must name the folder of tihm-physiology or"):
        open_input(tmp_path)
    folder = tihm(tmp_path, labels="who,when,what\n")
    with pytest.raises(InputRowError, match=r"Labels\.csv, line 1: the header is not 'patient_id,date,type'"):
        tihm_homes(folder)
    (folder / "Labels.csv").unlink()
    with pytest.raises(InputMissingError, match=r"Labels\.csv is missing"):
        tihm_homes(folder)


A: Key = ("/homes/a/voice-service", "1")
B: Key = ("/homes/b/voice-service", "1")
MESSAGE: Key = ("/carers", "1")
FOREIGN: Key = ("/carers", "3")
VOICE = "voice-service"


class Home:
    """The services of a home, with what they received."""

    def __init__(self, home: str, **received: dict[Key, int]) -> None:
        self.home = home
        self.received = {name: Counter(received.get(name)) for name in (CALL_SERVICE, *LISTENERS)}


def arrived(service: str, *homes: dict[Key, int]) -> Arrived:
    made: list[Any] = [Home(name, **{service: each}) for name, each in zip("ab", homes, strict=False)]
    return arrived_on_device(made)[service]


def test_another_homes_answer_is_unexpected() -> None:
    [verdict] = judge({CALL_SERVICE: {A, B}}, {CALL_SERVICE: arrived(CALL_SERVICE, {B: 2}, {B: 3})})
    assert (verdict.lost, verdict.duplicates) == ((A,), 3)
    assert verdict.unexpected == (("/homes/b/voice-service at a", "1"),)


def test_several_homes_receive_duplicates() -> None:
    received = arrived(VOICE, {MESSAGE: 1, FOREIGN: 2}, {MESSAGE: 1})
    [verdict] = judge({VOICE: {MESSAGE, ("/carers", "2")}}, {VOICE: received})
    assert (verdict.lost, verdict.duplicates) == ((("/carers", "2"),), 2)
    assert verdict.unexpected == (FOREIGN,)


def test_malformed_bodies_stop_nothing() -> None:
    names = {"id": "1", "source": "/homes/h/health-service", "type": "org.eventplane.health.reading.v1"}
    good = write_event(names, {"value": 1})
    letter = write_event({**names, "type": "org.eventplane.deadletter.v1"}, {"value": 1})
    no_time = '{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"never"}'
    bad = [no_time, "no JSON", "{}", '{"specversion":"1.0"}', letter.json.replace('"value"', '"nothing"')]
    sqs = FakeSqs()
    url = str(sqs.create_queue(QueueName="care")["QueueUrl"])
    for body in (*bad, good.json):
        sqs.send_message(QueueUrl=url, MessageBody=body)

    with Consumers({"care-analytics": url}, lambda: sqs) as consumers:
        assert consumers.wait_until(lambda: consumers.received_total == len(bad) + 1, 20.0)

    (verdict,) = judge({"care-analytics": {good.claim}}, consumers.arrived)
    assert verdict.delivered == 1
    assert set(verdict.unexpected) == {(UNREADABLE, sha256(each.encode()).hexdigest()) for each in bad}


LOST_MS = 1_767_225_600_000


def kept(service: str, phase: str = "opened", device: str = "home-1", after_ms: int = 0) -> ReceivedEvent:
    data = {"phase": phase, "title": "t", "check": ["c"], "since": "2026-01-01T00:00:00.000Z"}
    return ReceivedEvent(service, {"type": NOTICE, "subject": device, "data": data}, LOST_MS + after_ms)


@pytest.mark.source("P9")
def test_a_notice_is_late_beyond_its_time() -> None:
    waits_ms = 1_000 * LOCAL.presence.disconnected_after_s
    found = notices(
        [kept("carers", after_ms=waits_ms + 800), kept("carers", "over", after_ms=99_000)], "home-1"
    )
    assert [each.late_s for each in found] == [0.8, None]
    assert notices([kept("carers")], "home-2") == []


@pytest.mark.source("P9")
def test_each_service_has_to_be_told_of_begin_and_end() -> None:
    services = ["carers", "family-app"]
    all_told = [kept(service, phase) for service in services for phase in PHASES]
    assert missing(notices(all_told, "home-1"), services) == 0
    assert [missing(notices(all_told[:number], "home-1"), services) for number in range(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("verdict", "lost", "noticed"),
    [
        ("broken", [("/a", "1"), ("/a", "1")], True),
        ("broken", [("/a", "1"), ("/b", "9")], False),
        ("broken", [], False),
        ("proven", [], False),
    ],
)
def test_only_its_events_are_evidence(verdict: str, lost: list[tuple[str, str]], noticed: bool) -> None:
    findings = [{"kind": "lost", "source": source, "id": id, "route": "r"} for source, id in lost]
    findings.append({"kind": "duplicate", "source": "/b", "id": "9", "route": "r"})
    report = {"verdict": verdict, "totals": {"lost": len(lost)}, "findings": findings}
    seen = Forgotten("ledger/a", frozenset({("/a", "1"), ("/a", "2")})).seen_by(report)
    assert (seen["noticed"], seen["lost"], seen["events"]) == (noticed, len(lost), 2)
    assert seen["evidence"] == sorted({(*key, "r") for key in lost})


def verdict(service: str, delivered: int = 10, **changes: Any) -> ServiceResult:
    known: dict[str, Any] = {"expected": delivered, "lost": (), "unexpected": (), "duplicates": 0}
    return ServiceResult(service=service, delivered=delivered, **{**known, **changes})


DEVICE = {"client_id": "h", "epoch": "e", "first": 1, "last": 3, "events": 3, "tap_copies": 0}


def audit(lost: int = 0, irregular: str = "", gaps: int = 0, **delivered: int) -> dict[str, Any]:
    return {
        "totals": {"lost": lost, **{name: int(name == irregular) for name in IRREGULAR}},
        "kinds": [{"kind": irregular, "hop": "router", "count": 1}] if irregular in FOUND else [],
        "by_destination": {
            f"{service}.inbox": {"delivered_unique": count, "delivered_total": count}
            for service, count in delivered.items()
        },
        "latency": [],
        "accounts": [{"inbox": "desk.inbox", **dict.fromkeys(map(str, Fate), 10)}],
        "findings": [
            {"kind": "expired", "source": "/a", "id": id, "destination": f"{service}.inbox"}
            for id, service in (("expired", "desk"), ("1", "others"))
        ],
        "devices": [
            {**DEVICE, "client_id": "<home>", **dict.fromkeys(("epoch", "first", "last", "gaps"))},
            {**DEVICE, "gaps": gaps},
        ],
    }


NOTICED = {
    "object": "ledger/a.json.gz",
    "events": 2,
    "verdict": "broken",
    "lost": 3,
    "noticed": True,
    "evidence": [("/a", "1", "to-desk")],
}


def summary_of(
    verdicts: list[ServiceResult],
    report: dict[str, Any],
    deletion: dict[str, Any] = NOTICED,
    *,
    told: int = 0,
    allowed: Collection[str] = (),
) -> dict[str, Any]:
    return summarise(
        run={"homes": 1, "input": "test", "seed": 1, "contract_version": "v"},
        sent={"events_sent": 10, "urgent_sent": 1, "malformed_sent": 2, "told": told},
        verdicts=verdicts,
        dead_lettered=2,
        faults=[{"kind": "network cut", "home": "home-1", "after_events": 5, "seconds": 3.0}],
        audit=report,
        deletion=deletion,
        wall_seconds=1.23,
        gave_up_waiting_for=["homes drain"],
        allowed=allowed,
    )


def test_a_run_passes_when_nothing_is_lost_and_the_audit_agrees() -> None:
    summary = summary_of(
        [verdict("desk", duplicates=3), verdict("operations", 2, reports=4)], audit(desk=10, operations=6)
    )
    assert summary["verdict"] == "passed"
    assert summary["audit_agrees"]
    # What happens inside a home is not asked of the cloud.
    assert summary_of([verdict("call-service", 5)], audit())["verdict"] == "passed"


@pytest.mark.parametrize(
    ("verdicts", "report", "agrees"),
    [
        ([verdict("desk", 9, expected=10, lost=(("/a", "1"),))], audit(desk=9), True),
        ([verdict("desk", 9, expected=10, lost=(("/a", "expired"),))], audit(desk=9), True),
        ([verdict("desk", unexpected=(("/a", "1"),))], audit(desk=11), True),
        ([verdict("desk")], audit(lost=1, desk=10), True),
        *(([verdict("desk")], audit(irregular=name, desk=10), True) for name in (*IRREGULAR, *FOUND)),
        ([verdict("desk")], audit(gaps=1, desk=10), True),
        ([verdict("desk")], audit(desk=9), False),
        ([verdict("desk", reports=1)], audit(desk=10), False),
        ([verdict("desk")], audit(), False),
    ],
)
def test_each_reason_fails_alone(verdicts: list[ServiceResult], report: dict[str, Any], agrees: bool) -> None:
    summary = summary_of(verdicts, report)
    assert summary["verdict"] == "failed"
    assert summary["audit_agrees"] is agrees
    # What has another end is not lost.
    missing = {key for each in verdicts for key in each.lost}
    assert (summary["lost"], summary["ended_otherwise"]) == (
        ("/a", "1") in missing,
        ("/a", "expired") in missing,
    )


def test_what_rang_and_was_taken_is_by_receipts() -> None:
    alarmed = [verdict("call-service", 3), verdict("alarm-centre", 10)]
    fates = {**dict.fromkeys(map(str, Fate), 0), Fate.HANDLED: 8, Fate.IN_INBOX: 2}
    home = {**dict.fromkeys(HOME, 0), "inbox": "call-service.inbox", "stated": 4, "receipt": 3, "lost": 1}
    report = {**audit(), "homes": [home], "accounts": [{"inbox": "alarm-centre.inbox", **fates}]}
    summary = summary_of(alarmed, report)
    assert [taken(summary[each]) for each in ("rang", "taken")] == ["3 of 4, 1 lost", "8 of 10, 2 not known"]
    assert unproven(alarmed, report) == 2
    assert taken(summary_of([], audit())["rang"]) == "none was due"


def test_what_a_run_allows_is_reported_and_does_not_fail_it() -> None:
    document = summary_of([verdict("desk")], audit(irregular="reordered", desk=10), allowed=["reordered"])
    assert document["verdict"] == "passed"
    assert document["audit_irregular"]["reordered"] == 1


def test_a_run_fails_when_the_audit_does_not_notice_a_deletion() -> None:
    summary = summary_of(
        [verdict("desk")], audit(desk=10), {**NOTICED, "verdict": "proven", "noticed": False}
    )
    assert summary["verdict"] == "failed"
    assert "did not notice that an object of the archive was deleted" in headline(summary)


def test_downlinks_have_numbers_of_the_home() -> None:
    assert summary_of([verdict("voice-service", 2)], audit(gaps=2), told=2)["verdict"] == "passed"
    assert summary_of([verdict("voice-service", 2)], audit(gaps=3), told=2)["verdict"] == "failed"
