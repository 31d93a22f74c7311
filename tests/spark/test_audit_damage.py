"""Archives without a fault, damaged by hand: the audit reports each damage and accuses nobody else."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main, read_arguments, request_of
from glue_jobs.delivery_audit.small import file_small
from glue_jobs.erasure.main import main as erase
from glue_jobs.erasure.portions import Portion
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from tests.spark.both_ways import differences
from tests.spark.damage.archive import DAY
from tests.spark.damage.expected import problems
from tests.spark.damage.kinds import MEANINGS, TAMPERING, damage

PLAN: Final = Scale(events=6_000, hours=24, fault_every=0, trouble_every=0, rows=60)
"""Several objects an hour."""
SMALL: Final = Scale(events=240, hours=6, events_an_hour=20, fault_every=0, trouble_every=0)
LATER: Final = datetime(2026, 4, 1, tzinfo=UTC)
"""When all hours of the archive are closed, and its raw objects are old."""
ARGUMENTS: Final = ("--DATE", DAY, "--AS_OF", "2026-04-01T00:00:00Z")
ALL_DAYS: Final = ("--DATE", "all")
"""In the audit of a day a device that stops before its end is partly attested."""

TOGETHER: Final = (
    "clock_ahead lost_on_a_route lost_behind_the_inbox forged_decision forged_handover ghost_queue "
    "ghost_route early_decision early_handover other_type other_sender unknown_type unknown_contract "
    "unknown_outcome attempt_as_text attempt_as_fraction time_as_text cut_line unknown_handover "
    "rolling_upgrade",
    "truncated_ledger not_gzip_ledger zeroed_ledger without_bytes_ledger hour_gone_ledger "
    "truncated_handovers not_gzip_handovers without_bytes_handovers hour_gone_handovers object_twice_ledger "
    "object_twice_handovers object_twice_tap rows_twice midnight_skew lost_on_a_route no_fleet",
    "truncated_tap not_gzip_tap zeroed_tap without_bytes_tap hour_gone_tap hour_gone_ledger tap_rows_gone "
    "stray_files stray_contract wrong_folder hour_moved forged_decision unknown_outcome fleet_unreadable",
    "entered_two_days_later entered_an_hour_earlier entered_a_year_later accepted_an_hour_later "
    "accepted_a_year_earlier impossible_entry impossible_answer fast_router expired_in_another_form "
    "expiry_unreadable",
    "reused_id_on_the_next_day copy_on_the_next_day",
    "no_manifests manifests_stop missing_manifest reused_id acknowledged_lost cold_router",
    "manifests_swapped manifest_digest id_altered foreign_client hour_gone_ledger",
    "silent_device unregistered_device only_manifests manifest_rows_swapped new_member",
    "altered_tap altered_ledger altered_handovers added_tap added_ledger removed_tap removed_ledger "
    "removed_handovers erased_tap erased_ledger compacted_ledger compacted_handovers published_tap stray_tap "
    "lost_on_a_route",
    "unknown_rule altered_alike altered_in_the_tap altered_in_the_ledger",
    "older_digests",
    "object_gone_tap object_gone_ledger object_gone_handovers objects_gone_tap objects_gone_ledger "
    "objects_gone_handovers last_object_gone_tap last_object_gone_ledger last_object_gone_handovers "
    "object_gone_twice late_object_gone list_gone list_and_object_gone replaced_tap replaced_ledger "
    "replaced_handovers hidden_ledger",
    "more_lost_than_gone",
    "newer_manifests counts_more manifests_overlap acknowledged_back epoch_imitated",
    "names_a_finding birth_as_object many_ranges numbers_unread range_reversed one_number_twice",
    "new_client_id",
    "stops_and_goes_on",
    "nobody_at_home",
    "late_at_home",
    "clean lateness_0",
    "empty",
    "one_event",
    "hour_gone_everywhere",
    "contract_gone",
    "nameless_decision nameless_arrival",
)
"""Damages of one archive: those of different events and objects are reported as if each were alone."""
COMPARED: Final = (
    *(
        (0, 1),
        (2,),
        (3, 4),
        (5, 19, 23),
        (6, 7),
        (8, 9, 11, 12),
        (10, 22, 24),
        (13, 14, 15, 16, 17),
        (18,),
        (20,),
        (21,),
    ),
)
"""Which of them damage one archive that is audited twice: there they may touch the same events."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    generate(folder, PLAN, audited_contracts())
    return folder / "archive"


def test_every_kind_is_tried() -> None:
    assert {name for names in TOGETHER for name in names.split()} == {*MEANINGS}
    assert sorted(at for each in COMPARED for at in each) == [*range(len(TOGETHER))]


@pytest.mark.parametrize("kinds", TOGETHER, ids=lambda kinds: kinds.partition(" ")[0])
def test_damage_is_reported_and_nobody_else_is_accused(clean: Path, tmp_path: Path, kinds: str) -> None:
    """Audited without Spark; the next test compares the audit with Spark."""
    names = kinds.split()
    archive = tmp_path / "archive"
    shutil.copytree(clean, archive)
    expected = damage(archive, (name for name in names if name not in TAMPERING))
    if not TAMPERING.isdisjoint(names):
        file_small(request_of(read_arguments(_words(archive, tmp_path / "audit"))))
        expected = expected.and_(damage(archive, (name for name in names if name in TAMPERING)))
    request = request_of(read_arguments(_words(archive, tmp_path / "audit", *expected.arguments)))
    assert problems(expected, file_small(request)) == []


@pytest.mark.parametrize("which", COMPARED, ids=str)
def test_spark_and_python_agree(
    spark: SparkSession, clean: Path, tmp_path: Path, which: tuple[int, ...]
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(clean, archive)
    expected = damage(archive, " ".join(TOGETHER[at] for at in which).split())
    words = _words(archive, tmp_path / "audit", *expected.arguments)
    assert differences(spark, request_of(read_arguments(words))) == {}


def test_jobs_do_not_tamper(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(tmp_path, SMALL, audited_contracts())
    archive, output = tmp_path / "archive", tmp_path / "audit"
    first = _audit(archive, output, *ALL_DAYS)
    assert first["verdict"] == "proven"
    compact(["--INPUT", str(archive), "--DATE", "all", "--RAW_DAYS", "16"], LATER)
    assert not any((archive / "tap").rglob("*.gz"))
    compacted = _audit(archive, output, *ALL_DAYS)
    assert _differences(spark, archive, output) == {}
    assert (compacted["verdict"], compacted["findings"]) == ("proven", [])
    assert compacted["totals"] == first["totals"]
    assert compacted["archive"]["folders"][0]["compacted"] > 0
    person = "--SOURCE", "//home-000001.example.org/", "--CLIENT", "home-000001"
    rewrite = Portion.rewrite

    def cut(*arguments: Any) -> None:
        rewrite(*arguments)
        raise InterruptedError

    with monkeypatch.context() as broken:
        broken.setattr(Portion, "rewrite", cut)
        with pytest.raises(InterruptedError):
            erase(["--INPUT", str(archive), *person], LATER)
    changed = {each["kind"] for each in _audit(archive, output, *ALL_DAYS)["findings"]}
    assert ("unattested_object" in changed, "altered_object" in changed) == (True, False)
    assert _differences(spark, archive, output) == {}
    for hours in (1, 2):
        erase(["--INPUT", str(archive), *person], LATER + timedelta(hours=hours))
    compact(["--INPUT", str(archive), "--DATE", "all", "--RAW_DAYS", "16"], LATER)
    erased = _audit(archive, output, *ALL_DAYS)
    assert _differences(spark, archive, output) == {}
    assert {each["kind"] for each in erased["findings"]}.isdisjoint(("altered_object", "unattested_object"))
    assert erased["chain"]["begins"] == f"{ARGUMENTS[-1][:-1]}.000Z"
    # A hand that comes behind both is seen. In the first hour no number before it shows what is missing.
    (file,) = (archive / "compacted" / "tap" / f"date={DAY}" / "hour=00").rglob("*.parquet")
    spark.read.parquet(str(file)).limit(1).coalesce(1).write.parquet(str(tmp_path / "other"))
    (other,) = (tmp_path / "other").glob("*.parquet")
    other.replace(file)
    report = _audit(archive, output, *ALL_DAYS)
    altered = [each["archive_file"] for each in report["findings"] if each["kind"] == "altered_object"]
    assert altered == [file.relative_to(archive).as_posix()]
    assert report["lost_by_hop"] == erased["lost_by_hop"]
    assert "forged" not in {each["kind"] for each in report["kinds"]}
    file.write_bytes(file.read_bytes()[:-1])
    assert _differences(spark, archive, output) == {}


def test_a_wrong_key_makes_no_verdict_better_and_accuses_no_hop(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path, SMALL, audited_contracts())
    archive, other = tmp_path / "archive", ("--ATTESTATION_KEY", str(tmp_path / "other.key"))
    expected = damage(archive, ["lost_on_a_route"])
    compact(["--INPUT", str(archive), "--DATE", "all", "--RAW_DAYS", "16"], LATER)
    right, wrong = (_audit(archive, tmp_path / str(len(key)), *ALL_DAYS, *key) for key in ((), other))
    assert (right["verdict"], wrong["verdict"]) == ("broken", "broken")
    assert right["totals"]["lost"] == expected.totals["lost"] > 0
    same = "lost", "to_replay", "unrecorded", "pending", "misrouted", "unexplained"
    assert {name: wrong["totals"][name] for name in same} == {name: right["totals"][name] for name in same}
    assert (right["totals"]["refused_receipts"], wrong["totals"]["refused_receipts"] > 0) == (0, True)
    assert any("--ATTESTATION_KEY" in each for each in wrong["reasons"])
    others = [each for each in wrong["findings"] if each not in right["findings"]]
    assert {each["kind"] for each in others} == {"unattested_object", "missing_records"}
    assert {each["hop"] for each in others} == {"archive"}
    assert _differences(spark, archive, tmp_path / "another", *other) == {}


def _differences(spark: SparkSession, archive: Path, output: Path, *more: str) -> dict[str, Any]:
    words = _words(archive, output, *ALL_DAYS, *more)
    return differences(spark, request_of(read_arguments(words)))


def _audit(archive: Path, output: Path, *more: str) -> dict[str, Any]:
    return main(_words(archive, output, *more))


def _words(archive: Path, output: Path, *more: str) -> list[str]:
    return ["--INPUT", str(archive), "--OUTPUT", str(output), *ARGUMENTS, *more]
