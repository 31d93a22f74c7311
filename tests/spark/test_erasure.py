"""The erasure: a person's rows leave every table, everybody else's stay as they were."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER
from eventplane.fleet import FLEET
from eventplane.ledger import QUARANTINE
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from glue_jobs.erasure.main import LeftOverError, main
from glue_jobs.erasure.person import Person, TooWideError
from glue_jobs.erasure.portions import Portion
from tests.spark.small_archive import DAY, HOUR_MS, NOON_MS, SmallArchive, small_contract
from tests.spark.test_compaction import HOUR, table

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


def test_the_person_is_gone_all_others_are_there_and_the_record_names_nobody(
    peopled: SmallArchive, spark: SparkSession
) -> None:
    lines = {line for text in _raw_texts(peopled) for line in text.splitlines()}
    lines = {line for line in lines if "//home-1/" not in line and '"home-1"' not in line}
    before = digests(peopled)
    receipt = erase(peopled)
    assert receipt["rows"] == {
        "tap": 3,
        "ledger": 2,
        "compacted/tap": 3,
        "compacted/ledger": 2,
        "audit/findings": 1,
        "fleet": 1,
    }
    assert receipt["documents"] == [f"audit/replay/date={DAY}/part-0.json.gz", "audit/report.json"]
    assert naming(peopled.folder, "//home-1/") == []
    assert {line for text in _raw_texts(peopled) for line in text.splitlines()} == lines
    for folder in (TAP_FOLDER, LEDGER_FOLDER):
        rows = table(spark, peopled, folder, HOUR).collect()
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
    assert table(spark, peopled, TAP_FOLDER, HOUR).count() == 2


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
    assert sum(erase(peopled)["rows"].values()) == 12
    again = erase(peopled, now=LATER + timedelta(hours=1))
    assert (again["rows"], again["objects"], again["documents"]) == ({}, [], [])


def test_a_dry_run_counts_and_changes_nothing_but_attests_old_receipts_if_asked(
    peopled: SmallArchive,
) -> None:
    old = peopled.folder / "erasures" / "p" / "receipt-1.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"changes": {}, "erased_at_ms": 1}')
    before = {each: each.read_bytes() for each in peopled.folder.rglob("*") if each.is_file()}
    told = erase(peopled, "--DRY_RUN", "true", "--ATTEST", "true")
    assert told["rows"]["tap"] == 3
    after = {each: each.read_bytes() for each in peopled.folder.rglob("*") if each.is_file()}
    assert b'"attestation"' in after.pop(old)
    assert after == {each: body for each, body in before.items() if each != old}


def test_an_interrupted_erasure_still_says_all_that_it_removed(
    peopled: SmallArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(Exception):
        pass

    rewrite, done = Portion.rewrite, []

    def some(*arguments: Any) -> None:
        if len(done) == 2:
            raise PowerCutError
        rewrite(*arguments)
        done.append(arguments)

    with monkeypatch.context() as broken:
        broken.setattr(Portion, "rewrite", some)
        with pytest.raises(PowerCutError):
            erase(peopled)
    receipt = erase(peopled)
    assert sum(receipt["rows"].values()) == 12
    assert naming(peopled.folder, "//home-1/") == []


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


def test_the_rows_of_others_that_name_the_person_go_too(archive: SmallArchive) -> None:
    """Two homes that the rows of others name: in ids, subjects, senders, dead letters, unread messages."""
    for home in ("home-1", "home-17"):
        notice = archive.event(id=f"{home}.{NOON_MS}.3.disconnected", source="/eventplane/presence-monitor")
        archive.ledger.append(archive.record(notice, None, sender="presence-monitor"))
        relayed = archive.event(id=f"relayed-{len(home)}", source="//relay")
        archive.ledger.append(archive.record(relayed, None, sender=f"{home}/voice"))
        archive.send(home="relay-3", source="//relay", subject=f"/devices/{home}/router")
        original = f'{{"source":"//{home}/bell","id":"1"}}'.encode()
        letter = {"original_base64": base64.b64encode(original).decode()}
        archive.accept(archive.event(home="relay-3", source="//relay", data=letter), "relay-3")
        archive.refuse(b"no event of " + home.encode(), home="relay-3")
    archive.write()
    bodies = [json.dumps({"body": json.dumps({"client_id": home})}) for home in ("home-1", "home-17")]
    add_lines(archive, QUARANTINE, *bodies)
    compact(["--INPUT", str(archive.folder), "--DATE", "all"], LATER)
    assert erase(archive)["rows"] == {
        "tap": 3,
        "ledger": 2,
        "quarantine": 1,
        "compacted/tap": 3,
        "compacted/ledger": 2,
    }
    assert [name for name in map(str, _raw_texts(archive)) if re.search(r"home-1\b(?!7)", name)] == []
    left = "".join(_raw_texts(archive))
    assert left.count("home-17.") == left.count("home-17/voice") == left.count("/devices/home-17/router") == 1


def test_the_search_finds_what_the_removal_overlooks(
    peopled: SmallArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_source(_: Person, columns: list[str]) -> Column:
        is_theirs = sf.col("source").startswith("//home-1/") if "source" in columns else sf.lit(False)
        return sf.coalesce(is_theirs, sf.lit(False))

    monkeypatch.setattr(Person, "is_in", by_source)
    with pytest.raises(LeftOverError, match="objects still name the person") as caught:
        erase(peopled)
    places = {name.partition("/date=")[0] for name in caught.value.names}
    assert places == {"tap", "compacted/tap", "fleet"}


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
