"""`eventplane audit`, and the archive's reader."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from eventplane.archive_layout import AUDIT, verdict_name
from eventplane.envelope import write_event
from eventplane.ledger import LEDGER
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.main import read_arguments
from operations.archive import BucketArchive, Days, json_object
from operations.cloud import Cloud
from tests.fakes.aws import FakeAws
from tests.fakes.client import ScriptedClient
from tests.parts.probe.test_smoke import Glue, refused
from tests.unit.operations.support import ENVIRONMENT, MemoryArchive, Plane, Run, ledger_line

REPORT = {
    "verdict": "broken",
    "reasons": ["6 events are lost"],
    "totals": {"expected": 12_000, "delivered": 11_994, "lost": 6},
    "kinds": [{"kind": "lost", "hop": "router", "count": 6}],
}


def audit(archive: Path, window: str, report: dict[str, object] | None) -> None:
    """File a report as the audit does; None as one that an erasure deleted."""
    folder = archive / AUDIT
    (folder / verdict_name(window)).parent.mkdir(parents=True, exist_ok=True)
    attributes = {"id": window, "source": "/audit", "type": "org.eventplane.audit.verdict.v1"}
    verdict = write_event(attributes, {"report": f"reports/{window}.json"})
    (folder / verdict_name(window)).write_text(verdict.json)
    if report is not None:
        (folder / "reports").mkdir(exist_ok=True)
        (folder / f"reports/{window}.json").write_text(json.dumps(report))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    audit(tmp_path, "2026-03-01", REPORT)
    audit(tmp_path, "2026-03-02", REPORT | {"verdict": "proven", "reasons": []})
    audit(tmp_path, "2026-03-03", None)
    return tmp_path


def test_a_report_is_shown_in_words(run: Run, archive: Path) -> None:
    status, out, err = run("audit", "show", "2026-03-01", "--archive", str(archive))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "2026-03-01: broken",
        "  6 events are lost",
        "expected   12,000",
        "delivered  11,994",
        "lost       6",
        "FINDING  AT      COUNT",
        "lost     router  6",
    ]
    printed = run("audit", "show", "2026-03-01", "--archive", str(archive), "--json")[1]
    assert json.loads(printed) == REPORT


def test_the_verdicts_are_listed(run: Run, archive: Path) -> None:
    status, out, _ = run("audit", "list", "--archive", str(archive), "--json")
    assert status == 0
    assert json.loads(out) == [
        {"window": "2026-03-01", "verdict": "broken"},
        {"window": "2026-03-02", "verdict": "proven"},
    ]


def test_a_day_without_an_audit_is_named(run: Run, archive: Path, tmp_path: Path) -> None:
    status, out, err = run("audit", "show", "2026-03-03", "--archive", str(archive))
    assert (status, out) == (1, "")
    assert "no audit of 2026-03-03 is in the archive; " in err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("audit", "list", "--archive", str(empty))[0] == 1


class AuditJobs(Glue):
    """AWS Glue with the jobs of audits; each run files its report in the archive."""

    def __init__(self, plane: Plane, *states: str, has_today: bool = False) -> None:
        super().__init__(*states)
        self._plane = plane
        self._has_today = has_today

    def get_job(self, JobName: str) -> dict[str, Any]:  # noqa: N803 - as botocore's clients have it
        if not self._has_today:
            raise refused("EntityNotFoundException")
        return {"Job": {"Name": JobName}}

    def start_job_run(self, **call: Any) -> dict[str, str]:
        words = call["Arguments"]
        day = f"{words['--FROM']}..{words['--TO']}" if "--FROM" in words else words["--DATE"]
        verdict = write_event({"id": day, "source": "/audit", "type": "t"}, {"report": f"reports/{day}.json"})
        for name, body in ((verdict_name(day), verdict.json), (f"reports/{day}.json", json.dumps(REPORT))):
            self._plane.s3.put_object(Bucket=self._plane.bucket, Key=f"{AUDIT}/{name}", Body=body)
        return super().start_job_run(**call)


def deployed(glue: AuditJobs, monkeypatch: pytest.MonkeyPatch) -> AuditJobs:
    client, jobs = Cloud.client, ScriptedClient("glue", glue)
    monkeypatch.setattr(Cloud, "client", lambda self, name: jobs if name == "glue" else client(self, name))
    monkeypatch.setattr("operations.audit_command._PAUSE_S", 0.0)
    return glue


@pytest.mark.lost_answers
def test_the_audit_of_yesterday_is_run_and_shown(
    run: Run, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = deployed(AuditJobs(plane, "RUNNING", "SUCCEEDED"), monkeypatch)
    status, out, err = run("audit", "run")
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    job = f"eventplane-{ENVIRONMENT}-delivery-audit"
    assert (status, out.splitlines()[0]) == (0, f"{yesterday}: broken")
    assert "run jr_1 is in progress" in err
    assert glue.started == [{"JobName": job, "Arguments": {"--DATE": yesterday}}]
    assert glue.stopped == []


@pytest.mark.lost_answers
def test_several_days_are_one_window(run: Run, plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    glue = deployed(AuditJobs(plane, "SUCCEEDED"), monkeypatch)
    span = "--from", "2026-03-01", "--to", "2026-03-30"
    assert run("audit", "run", *span)[1].splitlines()[0] == "2026-03-01..2026-03-30: broken"
    words = glue.started[0]["Arguments"]
    assert words == {"--DATE": "all", "--FROM": "2026-03-01", "--TO": "2026-03-30"}
    # The job has parameters by default, which these replace.
    pairs = {"--INPUT": "a", "--OUTPUT": "b", "--DATE": "yesterday", **words}.items()
    assert str(read_arguments([each for pair in pairs for each in pair]).window) == "2026-03-01..2026-03-30"
    assert json.loads(run("audit", "show", *span, "--env", ENVIRONMENT, "--json")[1]) == REPORT


@pytest.mark.lost_answers
@pytest.mark.parametrize(("has_today", "job"), [(True, "audit-today"), (False, "delivery-audit")])
def test_the_day_so_far_has_a_job_of_its_own_where_it_is_audited(
    has_today: bool, job: str, run: Run, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = deployed(AuditJobs(plane, "SUCCEEDED", has_today=has_today), monkeypatch)
    status, out, _ = run("audit", "run", f"{datetime.now(UTC):%Y-%m-%d}", "--json")
    assert (status, json.loads(out)) == (0, REPORT)
    assert glue.started[0]["JobName"] == f"eventplane-{ENVIRONMENT}-{job}"


def test_an_audit_that_fails_or_takes_too_long_is_one_line(
    run: Run, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(AuditJobs(plane, "FAILED"), monkeypatch)
    status, out, err = run("audit", "run", "all")
    assert (status, out) == (1, "")
    assert "FAILED: no such bucket; see /aws-glue/jobs/" in err.splitlines()[-1]
    glue = deployed(AuditJobs(plane, "RUNNING"), monkeypatch)
    status, out, err = run("audit", "run", "all", "--timeout", "0.001")
    assert (status, out) == (1, "")
    assert "was not seen within" in err.splitlines()[-1]
    assert glue.stopped == []


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["2999-01-01"], "2999-01-01 is still to come; name a day up to "),
        (["--from", "2026-03-01", "--to", "2999-01-01"], "is still to come"),
        (["--from", "2026-03-01"], "--from and --to are two days"),
        (["--from", "2026-03-02", "--to", "2026-03-01"], "the first before the last"),
        (["all", "--from", "2026-03-01", "--to", "2026-03-02"], "without DAY"),
    ],
)
def test_a_wrong_window_is_refused_before_anything_is_started(
    run: Run, words: list[str], remedy: str
) -> None:
    status, out, err = run("audit", "run", *words)
    assert (status, out) == (2, "")
    assert remedy in err


DAY = date(2026, 1, 1)


@pytest.mark.parametrize("line", ['{"id":"1"}', '{"decided_at_ms":"late"}', "[]", "no json"])
def test_a_row_that_is_no_record_is_named_and_hides_no_other(line: str) -> None:
    archive = MemoryArchive()
    archive.write(f"ledger/date={DAY}/1.json.gz", line, ledger_line(None, Outcome.UNROUTED, reason="r"))
    days = Days(archive, DAY, DAY)
    assert [each["reason"] for each in days.records(LEDGER, json_object)] == ["r"]
    assert bool(days.damaged) == (line != "[]")


class Endless:
    """An archive whose day has more objects than anybody reads; counts what it was asked for."""

    def __init__(self) -> None:
        self.named = 0

    def names(self, prefix: str) -> Iterator[str]:
        for _ in range(10_000):
            self.named += 1
            yield f"{prefix}{self.named}.json.gz"

    def open(self, name: str) -> IO[bytes]:
        return BytesIO(gzip.compress(f'"{name}"\n'.encode()))


def test_objects_are_not_read_far_ahead_of_whoever_takes_their_rows() -> None:
    archive = Endless()
    rows = Days(archive, DAY, DAY).rows("tap", bytes)
    assert next(rows) == b'"tap/date=2026-01-01/1.json.gz"\n'
    assert archive.named < 20
    rows.close()  # type: ignore[attr-defined]


@pytest.mark.lost_answers
def test_a_bucket_gives_one_contract_by_its_name_and_names_an_object_that_left_meanwhile(
    fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = fake_aws.s3
    s3.create_bucket(Bucket="archive")
    s3.put_object(Bucket="archive", Key="contracts/v1.json", Body=b"{}")
    archive = BucketArchive(s3, "archive")
    monkeypatch.setattr(archive, "names", pytest.fail)
    days = Days(archive, DAY, DAY)
    assert (days.contract("v1"), days.contract("v2")) == (b"{}", None)
    monkeypatch.setattr(archive, "names", lambda prefix: iter([f"{prefix}1.json.gz"]))
    assert list(days.rows("tap", bytes)) == []
    assert list(days.damaged) == ["tap/date=2026-01-01/1.json.gz"]
