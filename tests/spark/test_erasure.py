"""The erasure: a person's rows leave every table, everybody else's stay as they were."""

import base64
import gzip
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER
from eventplane.device_record import FLEET
from eventplane.limits import MAX_HOPS
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main as audit_main
from glue_jobs.erasure.main import LeftOverError, main
from glue_jobs.erasure.names import NUMBER as NUMBER_REASON
from glue_jobs.erasure.names import Names, mark
from glue_jobs.erasure.person import UNREADABLE, TooWideError
from tests.spark.small_archive import ALARM, DAY, HOUR_MS, NOON_MS, SmallArchive, small_contract
from tests.spark.test_compaction import HOUR, table

NUMBER = 123_456_789_012
"""A client id, and a number that fits `devicesequence`."""

LATER = datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(hours=5)


def erase(archive: SmallArchive, *more: str, now: datetime = LATER) -> dict[str, Any]:
    return main(["--INPUT", str(archive.folder), "--SOURCE", "//home-1/", *more], now)


def naming(folder: Path, word: str) -> list[str]:
    """The raw objects and documents that hold a word."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            body = path.read_bytes()
            text = gzip.decompress(body) if path.name.endswith(".gz") else body
            if word.encode() in text and path.suffix != ".parquet":
                found.append(path.relative_to(folder).as_posix())
    return found


def add_lines(archive: SmallArchive, folder: str, *lines: str) -> None:
    path = archive.folder / HOUR.raw(folder) / "rows.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode()))


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three homes over two hours, compacted, with the fleet's list and findings about two of them."""
    archive = SmallArchive(tmp_path_factory.mktemp("people"))
    for home in ("home-1", "home-2", "home-10"):
        archive.send(home=home)
        archive.send(home=home, at_ms=NOON_MS + HOUR_MS)
    archive.bad_lines = [("tap", '{"event":"//home-1/x')]
    archive.write()
    add_lines(
        archive, FLEET, *(f'{{"thing":"{home}","state":"provisioned"}}' for home in ("home-1", "home-2"))
    )
    compact(["--INPUT", str(archive.folder), "--DATE", "all"], LATER)
    findings = [("lost", f"//{home}/service", home, DAY) for home in ("home-1", "home-2")]
    spark.createDataFrame(
        findings, "kind string, source string, device string, date string"
    ).write.partitionBy("date").parquet(f"{archive.folder}/audit/findings")
    (archive.folder / "audit" / "report.json").write_text(json.dumps({"source": "//home-1/service"}))
    for part, home in enumerate(("home-1", "home-2")):
        replay = archive.folder / "audit" / "replay" / f"date={DAY}" / f"part-{part}.json.gz"
        replay.parent.mkdir(parents=True, exist_ok=True)
        replay.write_bytes(gzip.compress(json.dumps({"source": f"//{home}/service"}).encode()))
    return archive.folder


@pytest.fixture
def peopled(people: Path, archive: SmallArchive) -> SmallArchive:
    """A copy of `people` for a test to change."""
    shutil.copytree(people, archive.folder, dirs_exist_ok=True)
    return archive


def test_only_the_person_is_gone(peopled: SmallArchive, spark: SparkSession) -> None:
    lines = {line for text in _raw_texts(peopled) for line in text.splitlines()}
    lines = {line for line in lines if "//home-1/" not in line and '"home-1"' not in line}
    cut = f'{{"event":"//{mark("home-1")}/x'
    before = digests(peopled)
    receipt = erase(peopled)
    assert receipt["rows"] == {
        "tap": 2,
        "ledger": 2,
        "compacted/tap": 2,
        "compacted/ledger": 2,
        "audit/findings": 1,
        "fleet": 1,
    }
    # A line that was cut does not show whose it is.
    assert receipt["redacted"] == {"tap": 1, "compacted/tap": 1}
    assert {(each["rows"], each["reason"]) for each in receipt["may_remain"]} == {(1, UNREADABLE)}
    assert receipt["documents"] == [f"audit/replay/date={DAY}/part-0.json.gz", "audit/report.json"]
    assert naming(peopled.folder, "//home-1/") == []
    assert {line for text in _raw_texts(peopled) for line in text.splitlines()} == {*lines, cut}
    for folder in (TAP_FOLDER, LEDGER_FOLDER):
        rows = table(spark, peopled, folder, HOUR).where("source is not null").collect()
        assert [row["source"] for row in rows] == ["//home-10/service", "//home-2/service"]
    findings = spark.read.parquet(f"{peopled.folder}/audit/findings").collect()
    assert [row["source"] for row in findings] == ["//home-2/service"]
    # The record has the digests before and after.
    after, changes = digests(peopled), receipt["changes"]
    changed = {name for name in before if before[name] != after.get(name)}
    assert changes == {name: [before[name], after.get(name)] for name in changed}
    (filed,) = (peopled.folder / "erasures").rglob("*.json")
    assert json.loads(filed.read_text()).items() > receipt.items()
    assert receipt["pseudonym"] in filed.as_posix()
    assert "home-1/" not in filed.read_text()
    # The compaction does not bring them back.
    assert compact(["--INPUT", str(peopled.folder), "--DATE", "all"], LATER) == {}
    (peopled.folder / HOUR.receipt("tap")).unlink()
    compact(["--INPUT", str(peopled.folder), "--DATE", "all"], LATER)
    assert table(spark, peopled, TAP_FOLDER, HOUR).count() == 3


def _raw_texts(archive: SmallArchive) -> list[str]:
    return [gzip.decompress(each.read_bytes()).decode() for each in archive.folder.rglob("*.json.gz")]


def digests(archive: SmallArchive) -> dict[str, str]:
    objects = FolderObjects(archive.folder)
    listed = (each for each in objects.beneath("") if not each.name.startswith("erasures/"))
    return {each.name: objects.digest(each) for each in listed}


def test_a_damaged_object_holds_up_only_itself_and_is_named(peopled: SmallArchive) -> None:
    damaged = [f"{HOUR.raw('tap')}/cut.json.gz", f"{HOUR.raw('ledger')}/zeros.json.gz"]
    whole = gzip.compress(b'{"event":"//home-1/x"}\n')
    for name, content in zip(damaged, (whole[:-9], bytes(100)), strict=True):
        (peopled.folder / name).write_bytes(content)
    with pytest.raises(LeftOverError, match="damaged and cannot be searched") as caught:
        erase(peopled)
    assert (sorted(caught.value.damaged), caught.value.names) == (sorted(damaged), ())
    for name in damaged:
        (peopled.folder / name).unlink()
    assert naming(peopled.folder, "//home-1/") == []
    # The damaged objects are gone, and the receipt is of both runs. Repeating it finds nothing.
    assert sum(erase(peopled)["rows"].values()) == 10
    again = erase(peopled, now=LATER + timedelta(hours=1))
    assert [again[name] for name in ("rows", "redacted", "objects", "documents")] == [{}, {}, [], []]


def test_a_dry_run_changes_nothing(peopled: SmallArchive) -> None:
    old = peopled.folder / "erasures" / "p" / "receipt-1.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"changes": {}, "erased_at_ms": 1}')
    before = {each: each.read_bytes() for each in peopled.folder.rglob("*") if each.is_file()}
    told = erase(peopled, "--DRY_RUN", "true", "--ATTEST", "true")
    assert (told["rows"]["tap"], told["redacted"]["tap"], len(told["may_remain"])) == (2, 1, 2)
    after = {each: each.read_bytes() for each in peopled.folder.rglob("*") if each.is_file()}
    assert b'"attestation"' in after.pop(old)
    assert after == {each: body for each, body in before.items() if each != old}


def test_what_is_still_written_to_waits(peopled: SmallArchive) -> None:
    erase(peopled, now=datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(minutes=95))
    next_hour = HOUR.partition.replace("hour=12", "hour=13")
    assert naming(peopled.folder / "tap", "//home-1/") == [f"{next_hour}/rows.json.gz"]


def test_the_device_leads_to_what_bears_no_source(archive: SmallArchive) -> None:
    archive.refuse(b"no event")
    archive.refuse(b"no event", home="home-2")
    archive.write()
    assert erase(archive, "--CLIENT", "home-1")["rows"] == {"tap": 1, "ledger": 2}
    assert naming(archive.folder, '"home-1"') == []
    assert naming(archive.folder, '"home-2"')


def audit(archive: SmallArchive, output: Path) -> dict[str, Any]:
    arguments = ["--INPUT", str(archive.folder), "--OUTPUT", str(output), "--AS_OF", "2026-04-01T00:00:00Z"]
    return audit_main([*arguments, "--DATE", "all"])


def of_others(report: dict[str, Any]) -> list[str]:
    """The findings that are not about the person's device, as they are without the person's names."""
    theirs = [each for each in report["findings"] if (each["device"] or "") not in ("home-1", mark("home-1"))]
    texts = (json.dumps({**each, "archive_file": None}, sort_keys=True) for each in theirs)
    return sorted(Names(("home-1",)).redact(each).text for each in texts)


def with_faults(archive: SmallArchive) -> None:
    """Faults of all kinds at home-2, and at services, half of which name home-1."""
    archive.send(data={"pulse": 80})
    own = archive.send(data={"pulse": 81})
    # A device with a number as its name, and equal numbers in rows of others, which stay what they are.
    for home, client, number in (("home-3", str(NUMBER), 1), ("home-2", "home-2", NUMBER)):
        counted = archive.event(ALARM, home, data={"n": number, "l": [number]}, sequence=str(number))
        counted = counted.without(("devicesequence",)).stamped(devicesequence=f"{number:012d}")
        archive.accept(counted, client)
        archive.route(counted, client)
        archive.alter(attempt=number)
    for text in (
        "nobody",
        "ask home-1.",
        base64.b64encode(b'{"who":"HOME-1"}').decode(),
        "home-10",
        "a:home-1",
    ):
        named = {"home": "home-2", "data": {"note": text}, "subject": f"/rooms/{text}"}
        archive.send(**named)
        archive.accept(archive.event(ALARM, **named), "home-2")
        archive.ledger.append(archive.record(archive.event(**named), "home-2"))
        refused = archive.event(**named, id=f"refused.{text}.1")
        archive.refuse_event(refused, "hop_limit", "home-2")
        backed = archive.event(**named, id=f"backed.{text}.1", routerhops=MAX_HOPS)
        archive.refuse_event(backed, "hop_limit", "home-2")
        archive.refuse(f"no event of {text}".encode(), home="home-2")
        archive.send(**named, id=f"visit.{text}.{NOON_MS}.1")
        twice = [archive.event(**{**named, "data": each}, id=f"twice.{text}") for each in (text, "other")]
        for each in twice:
            archive.accept(each, "home-2")
            archive.route(each, "home-2")
        notice = archive.event(id=f"{text}.{NOON_MS}.3.disconnected", source="/eventplane/presence-monitor")
        archive.ledger.append(archive.record(notice, None, sender="presence-monitor"))
        archive.accept(archive.event(**named, source=f"//{quote(text)}/service"), "home-2")
    # Under the person's names: one that the plane delivered, and records that name another client.
    for home, other in (("home-2", "home-2"), ("home-1", "home-2"), ("home-2", "home-1")):
        claimed = archive.event(home="home-1", id=own.id if home == other else f"mismatch-{home}.home-1.1")
        archive.accept(claimed, home)
        archive.route(claimed, other)


@pytest.mark.parametrize("is_compacted_before", [False, True])
def test_audits_agree_on_others(archive: SmallArchive, tmp_path: Path, *, is_compacted_before: bool) -> None:
    with_faults(archive)
    archive.write()
    before = audit(archive, tmp_path / "before")
    if is_compacted_before:
        compact(["--INPUT", str(archive.folder), "--DATE", "all"], LATER)
    receipt = erase(archive)
    numbered = main(["--INPUT", str(archive.folder), "--SOURCE", "//home-3/", "--CLIENT", str(NUMBER)], LATER)
    assert (numbered["rows"]["tap"], numbered["redacted"]) == (1, {})
    assert {each["reason"] for each in numbered["may_remain"]} >= {NUMBER_REASON}
    texts = "".join(_raw_texts(archive))
    assert re.search(r"(?<![\w:-])home-[13](?![\w:-])|pulse", texts) is None
    assert "home-10" in texts
    # Then only the compacted rows are left.
    compact(["--INPUT", str(archive.folder), "--DATE", "all", "--RAW_DAYS", "16"], LATER + timedelta(days=60))
    assert _raw_texts(archive) == []
    after = audit(archive, tmp_path / "after")
    assert of_others(after) == of_others(before)
    assert after["verdict"] == before["verdict"]
    assert (receipt["rows"]["tap"], receipt["redacted"]["tap"] > 20) == (1, True)


def test_the_search_finds_what_the_removal_does_not_know(peopled: SmallArchive) -> None:
    hour = peopled.folder / "other" / HOUR.partition
    hour.mkdir(parents=True)
    (hour / "rows.json.gz").write_bytes(gzip.compress(b'{"of":"' + base64.b64encode(b"home-1") + b'"}'))
    (hour / "note.txt").write_text("home-10, and so on")
    with pytest.raises(LeftOverError, match="objects still name the person") as caught:
        erase(peopled)
    assert caught.value.names == (f"other/{HOUR.partition}/rows.json.gz",)


def test_erasures_of_different_persons_commute(peopled: SmallArchive, tmp_path: Path) -> None:
    other = SmallArchive(tmp_path / "other")
    shutil.copytree(peopled.folder, other.folder)
    for archive, persons in ((peopled, ("home-1", "home-2")), (other, ("home-2", "home-1"))):
        for home in persons:
            main(["--INPUT", str(archive.folder), "--SOURCE", f"//{home}/"], LATER)
    raw, others = ({n: d for n, d in digests(each).items() if n.endswith(".gz")} for each in (peopled, other))
    assert raw == others


def test_a_contract_that_names_the_person_is_told(archive: SmallArchive) -> None:
    theirs = {"filter": {"prefix": {"source": "//home-1/"}}, "to": "care.inbox"}
    archive.contract = small_contract(subscribed=theirs)
    archive.contracts.append(archive.contract)
    archive.send()
    archive.write()
    receipt = erase(archive)
    assert receipt["contracts"] == [f"contracts/{archive.contract.version}.json"]
    assert receipt["rows"] == {"tap": 1, "ledger": 2}


def test_a_name_of_the_contract_is_nobody_s(archive: SmallArchive) -> None:
    archive.send()
    archive.write()
    for client in ("help", "care", "readings"):
        with pytest.raises(TooWideError, match="--CLIENT"):
            erase(archive, "--CLIENT", client)
