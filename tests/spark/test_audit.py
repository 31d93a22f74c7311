"""The job as Glue runs it: what Spark reads is judged as what the core reads, and filed; what it refuses.

The rules themselves are tested without Spark (tests/unit/glue_jobs), and their whole by planted faults
(test_audit_proof.py, test_audit_damage.py).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eventplane.contract import compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import router_source
from eventplane.guarantee import FAILED
from eventplane.ingest import OPERATOR
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ledger import Basis, to_line
from eventplane.limits import MAX_DEPTH, MAX_HOPS, MAX_NUMBER_CHARACTERS, MAX_SENT_EVENT_BYTES
from eventplane.names import REPLY_TYPE
from eventplane.reasons import REDRIVE, Outcome, Reason
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.chain import Past
from glue_jobs.delivery_audit.main import main, read_arguments, request_of
from lab.audits import read_report
from tests.spark.both_ways import differences
from tests.spark.small_archive import ALARM, DAY, DIARY, HOUR_MS, NOON_MS, READING, SmallArchive
from tests.unit.glue_jobs.judging import AS_OF, FILES

Audit = Callable[..., dict[str, Any]]
TABLES = {"routes", "devices", "consumers", "findings", "quarantine", "replay"}
ROUTES = {
    "alarms": {"filter": {"exact": {"type": ALARM}}, "to": "help.inbox"},
    "readings": {"filter": {"suffix": {"type": ".reading.v1"}}, "to": "care.inbox"},
    "severe": {"filter": {"sql": "severity >= 17 OR UPPER(room) IN ('CELLAR', 'ATTIC')"}, "to": "care.inbox"},
    "chosen": {
        "filter": {"all": [{"exact": {"senderdevice": "home-1"}}, {"exact": {"senderservice": "siren"}}]},
        "to": "help.inbox",
    },
    "five": {"filter": {"sql": "room = 5"}, "to": "help.inbox"},
    "true": {"filter": {"any": [{"sql": "room = TRUE"}, {"exact": {"room": "05"}}]}, "to": "help.inbox"},
    "letters": {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "help.inbox"},
}


@pytest.fixture(params=["spark", "python"])
def audit(
    spark: SparkSession, archive: SmallArchive, tmp_path: Path, request: pytest.FixtureRequest
) -> Audit:
    """Writes the archive and runs the whole job over it, into a folder of its own or into `output`."""
    outputs = (f"audit-{number}" for number in count())

    def run(
        date: str = "all", as_of: str = "2026-04-01T00:00:00Z", output: str | None = None, *more: str
    ) -> dict[str, Any]:
        archive.write()
        words = ["--INPUT", str(archive.folder), "--OUTPUT", str(tmp_path / (output or next(outputs)))]
        return main([*words, "--DATE", date, "--AS_OF", as_of, "--ENGINE", request.param, *more])

    return run


def contract_of_everything() -> Any:
    """Routes by content, sender and expression, `sends`, a webhook, order, announced interest."""
    kinds = {"device": "device", "voice": "device_service", "siren": "device_service"}
    kinds |= dict.fromkeys(("help", "care"), "cloud_service")
    participants: dict[str, Any] = {name: {"kind": kind, "description": name} for name, kind in kinds.items()}
    participants["siren"]["sends"] = [DIARY]
    participants["help"]["inbox"] = {"webhook": {"timeout_s": 5, "give_up_after_s": 600}, "expiry_s": 60}
    participants["care"]["inbox"] = {"transport": "sqs_fifo", "ordering": "source"}
    document = {"format": 5, "name": "everything", "participants": participants, "routes": ROUTES}
    announced = [new_announcement("care", [{"exact": {"room": "kitchen"}}])]
    contract, refused = with_interest(compile_contract(document, "test"), announced)
    assert refused == {}
    return contract


def plant_refusals(archive: SmallArchive) -> None:
    """Refusals that hold, and the same where they do not."""
    for event, reason in (
        (archive.event(routerhops=MAX_HOPS), Reason.HOP_LIMIT),
        (archive.event(routerhops=MAX_HOPS - 1), Reason.HOP_LIMIT),
        (archive.event(senderdevice="home-2"), Reason.RESERVED_ATTRIBUTE),
        (archive.event(), Reason.RESERVED_ATTRIBUTE),
        (archive.event(data="x" * (MAX_SENT_EVENT_BYTES - 100)), Reason.TOO_LARGE),
        (archive.event(data="x"), Reason.TOO_LARGE),
        (archive.event(ALARM, senderservice="siren"), Reason.SENDER_NOT_ALLOWED),
        (archive.event(ALARM, senderservice="voice"), Reason.SENDER_NOT_ALLOWED),
    ):
        archive.refuse_event(event, reason)
    archive.refuse(b"garbage")
    archive.refuse(b"more garbage", "home-2")
    del archive.ledger[-2:]


THEN = "1970-01-01T00:00:00Z"


def plant_ends(archive: SmallArchive) -> None:
    """Ends by expiry, guarantee and interest that hold, and the same where they do not."""
    for outcome, reason, attributes in (
        (Outcome.EXPIRED, None, {"expirytime": "2026-03-01T12:00:00.040Z"}),
        (Outcome.EXPIRED, None, {"expirytime": "2026-03-01T12:00:00.041Z"}),
        (Outcome.EXPIRED, None, {"expirytime": "2026-02-28t23:59:60z"}),
        (Outcome.EXPIRED, None, {"time": THEN, "expirytime": "1970-01-01T00:00:00.040Z"}),
        (Outcome.EXPIRED, None, {"time": THEN, "expirytime": "1970-01-01T00:00:00.041Z"}),
        (Outcome.DROPPED, FAILED, {"deliveryguarantee": "best_effort"}),
        (Outcome.DROPPED, FAILED, {}),
        (Outcome.NO_INTEREST, Reason.NO_INTEREST, {"room": "bath"}),
        (Outcome.NO_INTEREST, Reason.NO_INTEREST, {}),
        (Outcome.NO_INTEREST, Reason.NO_INTEREST, {"room": "bath", "severitynumber": 17}),
    ):
        archive.send(READING, **{"room": "kitchen", **attributes})
        archive.alter(outcome=outcome, reason=reason)


def plant_contradictions(archive: SmallArchive) -> None:
    """Copies, records that contradict each other, and rows that nobody understands."""
    copied = archive.send(READING, room="kitchen")
    archive.accept(copied)
    reused = archive.event(id=copied.id, data="another", room="kitchen")
    archive.accept(reused)
    archive.route(reused)
    archive.accept(archive.event(ALARM, home="home-2", id=copied.id), "home-2")
    for members in (
        {"type": ALARM},
        {"client_id": "home-9"},
        {"outcome": "postponed"},
        {"decided_at_ms": NOON_MS - HOUR_MS},
        {"basis": Basis.BUNDLED},
        {"put_back_by": OPERATOR, "id": "of another day"},
    ):
        archive.send(READING, room="kitchen")
        archive.alter(**members)
    # A pattern must neither stop at a quotation mark in a name nor need a stack as deep as a name is long.
    for id, change in (
        ('"\\' * 5_000, lambda line: line[:-30]),
        ('"\\', lambda line: line.replace('"attempt":1', '"attempt":"1"')),
    ):
        archive.send(READING, room="kitchen", id=id)
        archive.bad_lines.append(("ledger", change(to_line(archive.ledger.pop()))))
    archive.tap.append(replace(archive.tap[0], archived_at_ms=NOON_MS + 3 * HOUR_MS, message_id="late"))
    archive.accept(archive.event(READING, room="kitchen"))
    unnumbered = archive.event(DIARY)
    archive.accept(replace(unnumbered, json=unnumbered.json.replace('"deviceepoch":"e1",', "")))


def plant_handovers(archive: SmallArchive) -> None:
    """Handovers right, too often, refused, forged, absent, and without the ledger's record."""
    archive.send(ALARM, severity=21)
    archive.hand_over()
    archive.send(ALARM, severity="3", room="attic")
    archive.hand_over()
    archive.hand_over()
    for more in ({"outcome": Outcome.DEAD_LETTERED}, {"id": "forged"}, {"outcome": "postponed"}):
        archive.send(ALARM)
        archive.hand_over(**more)
    archive.send(ALARM)
    archive.hand_over()
    archive.ledger.pop()


def plant_given_up(archive: SmallArchive) -> None:
    """What readers gave up: of their inbox and another's, once more, and what was redriven since."""
    for by, reason in (("care", None), ("help", None), ("care", REDRIVE)):
        event = archive.send(READING, room="kitchen", senderservice="voice")
        archive.give_up(event, by, decided_at_ms=NOON_MS + 100)
        archive.give_up(event, by, decided_at_ms=NOON_MS + 200, dead_letter_reason="another")
        if reason:
            row = next(each for each in archive.ledger if each.id == event.id)
            archive.ledger.append(replace(row, decided_at_ms=NOON_MS + 300, reason=reason))


def plant_oddities(archive: SmallArchive) -> None:
    """Malformed lines and events, and values in other types than their own."""
    archive.send(REPLY_TYPE, severity=17)
    good = archive.tap[0]
    more = (
        "severitynumber",
        "routerhops",
        "expirytime",
        "recordedtime",
        "devicesequence",
        "deliveryguarantee",
    )
    values = (
        '"17"',
        "17",
        "-1",
        "1.5",
        "true",
        "null",
        '""',
        "[1]",
        '"\\ud800"',
        str(2**40),
        '{"a": [1, null]}',
    )
    for number, (name, value) in enumerate(product((*more, "room", "partitionkey", "type"), values)):
        json = f'{{"id":"odd-{number}","source":"/odd","type":"{READING}","{name}":{value},"data":{value}}}'
        archive.tap.append(replace(good, event=json, message_id=f"odd-{number}"))
    for number, event in enumerate(
        ("[]", "", "{", '{"id":1,"source":2,"type":3}', f"{{}} {good.event}", " {}")
    ):
        archive.tap.append(replace(good, event=event, message_id=f"event-{number}"))
    line = to_line(archive.ledger[0])
    for change in (
        ('"attempt":1', '"attempt":1,"attempt":1'),
        ('"attempt":1', '"attempt":1.0'),
        ('"attempt":1', '"attempt":99999999999999999999'),
        ('"attempt":1', '"attempt":true'),
        ('"reason":null', '"reason":7'),
        ('"reason":null', '"reason":{"a": true}'),
        ('"reason":null', '"reason":"\\ud800x"'),
        ('"reason":null', "'reason':null"),
        ('"reason":null', '"reason":NaN'),
        ('"reason":null', '"reason":"\x01"'),
        ('"id":"', '"id":"\\u00e9'),
        ("}", "} and more"),
        ("{", "[{"),
        ("{", '\t{"more":{"a":1,"a":2},'),
    ):
        archive.bad_lines.append(("ledger", line.replace(*change)))
    archive.bad_lines += [
        ("tap", to_line(good)[:-1] + each) for each in (',"digest":"' + "a" * 16 + '"}', "")
    ]


KIN = (
    "5",
    '"5"',
    '"05"',
    "5.0",
    "5e0",
    '"+5"',
    "true",
    '"true"',
    '"TRUE"',
    str(2**31 - 1),
    str(2**31),
    "-0",
    "水",
)
"""Values that are each other in another type, and what Spark and Python have each their own mind about."""
DATA = (
    *("9" * MAX_NUMBER_CHARACTERS, f"0.{'1' * 99}", "1e308", "1e-99999999999", "-0", '{"":1,"type":"x"}'),
    *("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), "{" + f'"{"k" * 60_000}":1' + "}", f'"{"y" * 90_000}"'),
    *('"\\u0000"', '"\x7f\u2028\ufffe\U0001ffff"', '"\\ud83d\\ude00"', '{"a":"\u212a"}'),
)


def plant_values(archive: SmallArchive) -> None:
    """Values by which routes are chosen, and data that the routers accept and that hides none of them."""
    start = f'{{"source":"/odd","t\\u0079pe":"{READING}"'
    events = [f'{start},"id":"kin-{at}","room":{value}}}' for at, value in enumerate(KIN)]
    events += [f'{start},"id":"data-{at}","data":{data},"room":5}}' for at, data in enumerate(DATA)]
    for at, event in enumerate(events):
        archive.tap.append(replace(archive.tap[0], event=event, message_id=f"value-{at}"))


def test_what_spark_reads_is_what_the_core_reads(
    archive: SmallArchive, spark: SparkSession, tmp_path: Path
) -> None:
    archive.send(DIARY, at_ms=NOON_MS - 1)  # by the contract before, rightly unrouted
    archive.use(contract_of_everything(), archive.contract)
    archive.begin_epoch("home-2", "e2")
    archive.send(DIARY, senderservice="siren")
    archive.send(DIARY, home="home-2", senderservice="siren")
    archive.send(DIARY, room="Cellar")
    archive.send(
        DEAD_LETTER_TYPE, source=router_source("home-1"), deadletterreason="not_utf8", partitionkey="p"
    )
    plant_refusals(archive)
    plant_ends(archive)
    plant_contradictions(archive)
    plant_handovers(archive)
    plant_given_up(archive)
    plant_oddities(archive)
    plant_values(archive)
    archive.write()
    words = ["--INPUT", str(archive.folder), "--OUTPUT", str(tmp_path / "audit"), "--AS_OF", AS_OF]
    for window in (("--DATE", "all"), ("--DATE", DAY), ("--FROM", DAY, "--TO", "2026-03-02")):
        assert differences(spark, request_of(read_arguments([*words, *window]))) == {}
    compact(
        ["--INPUT", str(archive.folder), "--DATE", "all", "--RAW_DAYS", "16"],
        datetime(2026, 4, 1, tzinfo=UTC),
    )
    assert not any((archive.folder / "tap").rglob("*.gz"))
    assert differences(spark, request_of(read_arguments(words))) == {}
    one, other = (written(spark, tmp_path / each, *words, "--ENGINE", each) for each in ("spark", "python"))
    assert one == other


def written(spark: SparkSession, output: Path, *words: str) -> dict[str, Any]:
    """Audit into `output`, and return the report, and what each table has by Spark."""
    report = main([*words, "--OUTPUT", str(output)])
    assert report.pop("engine") == output.name
    assert {each.parent.name for each in output.rglob("date=*")} == TABLES
    read = {each: spark.read.json if each == "replay" else spark.read.parquet for each in TABLES}
    tables = {name: each(str(output / name)) for name, each in read.items()}
    return report | {name: (each.schema, sorted(each.collect(), key=str)) for name, each in tables.items()}


def test_repeating_a_day_replaces_its_tables_and_keeps_its_reports(
    archive: SmallArchive, audit: Audit, spark: SparkSession, tmp_path: Path
) -> None:
    archive.send()  # an hour without any decision would be a hole of the archive
    accepted_ms = NOON_MS + 30 * 60_000
    late = archive.event(at_ms=accepted_ms)
    archive.accept(late, at_ms=accepted_ms)
    # The hour that the record will be written in is not over.
    assert audit(DAY, "2026-03-01T13:40:00Z", "audit")["totals"]["findings"] == 1
    output = tmp_path / "audit"
    (owed,) = replay_manifest(output)
    assert owed == {
        "sender": "home-1/",
        "source": late.source,
        "id": late.id,
        "type": READING,
        "device": "home-1",
        "route": "readings",
        "destination": "care.inbox",
        "contract_version": archive.contract.version,
        "entered_at_ms": accepted_ms,
        "archive_file": FILES["tap"],
    }
    # The record comes in the next hour, into another object.
    archive.route(late, at_ms=accepted_ms)
    archive.move(late, decided_at_ms=accepted_ms + 50 * 60_000)
    again = audit(DAY, output="audit")
    assert (again["totals"]["findings"], again["findings"], replay_manifest(output)) == (0, [], [])
    assert (again["revision"]["number"], again["revision"]["changed"]["lost"]) == (1, [1, 0])
    assert not (output / "findings" / f"date={DAY}").exists()
    assert spark.read.parquet(str(output / "routes")).count() == 1
    assert read_report(output, DAY) == again
    first = json.loads((output / "reports" / DAY / "0.json").read_text("utf-8"))
    assert first["totals"]["lost"] == 1


def replay_manifest(output: Path) -> list[dict[str, object]]:
    files = sorted((output / "replay").rglob("*.json.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_two_audits_of_a_window_at_once_are_two_revisions(
    spark: SparkSession, archive: SmallArchive, tmp_path: Path
) -> None:
    archive.send()
    archive.write()
    output = tmp_path / "audit"
    words = ["--INPUT", str(archive.folder), "--OUTPUT", str(output), "--DATE", DAY]
    with ThreadPoolExecutor(2) as together:
        reports = list(together.map(main, [words, words]))
    assert sorted(each["revision"]["number"] for each in reports) == [0, 1]
    assert reports[0]["totals"] == reports[1]["totals"]
    assert read_report(output, DAY)["revision"]["number"] == 1
    assert spark.read.parquet(str(output / "devices")).count() == 1
    last = Past(FolderObjects(output), DAY).last()
    assert last is not None
    assert last.data()["revision"]["number"] == 1
