"""The screen changes how much is judged, and nothing about the result."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from eventplane.account import reader_of
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.ledger import LEDGER
from eventplane.reader_receipts import is_asked
from eventplane.reasons import Outcome
from glue_jobs.common.attestation import open_key
from glue_jobs.common.objects import open_archive, open_output
from glue_jobs.delivery_audit.audit import AuditRequest
from glue_jobs.delivery_audit.large import audited
from glue_jobs.delivery_audit.rules import Watermark, Window
from glue_jobs.delivery_audit.screen import RARE, Screened
from glue_jobs.delivery_audit.small import audit_small
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from tests.spark.both_ways import result
from tests.spark.small_archive import ALARM, NOON_MS, SmallArchive, small_contract

AS_OF_MS: Final = 1_775_001_600_000
"""2026-04-01, UTC midnight."""


def give_up(archive: Path) -> None:
    """Let readers make dead letters of ordinary events, which an operator receives."""
    file = min((archive / LEDGER).rglob("*.json.gz"))
    letters = []
    lines = gzip.decompress(file.read_bytes()).splitlines()
    # Some are cut.
    for row in (json.loads(each) for each in lines if each.endswith(b"}")):
        if row["outcome"] == Outcome.DELIVERED and row["id"] and row["type"] != DEAD_LETTER_TYPE:
            reader = reader_of(row["destination"])
            id = letter_id(row["sender"], row["source"], row["id"])
            row |= {"type": DEAD_LETTER_TYPE, "source": "/eventplane/client/x", "id": id, "sender": reader}
            row |= {"entered_by": f"{reader}.outbox", "client_id": None, "dead_letter_reason": "bug"}
            letters.append(json.dumps(row) + "\n")
    (file.parent / "letters.json.gz").write_bytes(gzip.compress("".join(letters[:9]).encode()))


def test_the_screen_changes_no_result(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path, Scale(6_000, fault_every=20), audited_contracts())
    give_up(tmp_path / "archive")
    folders = (open_archive(str(tmp_path / "archive")), *(open_output(str(tmp_path / each)) for each in "ow"))

    said = list[str]()
    asked = AuditRequest(*folders, Window(None), Watermark(AS_OF_MS), open_key(None), progress=said.append)
    expected = result(audit_small(asked))
    assert "bug, by" in str(expected["finding"])
    with audited(spark, asked) as audit:
        assert result(audit) == expected
    # What is not damaged is counted, and not judged one by one.
    assert not any("not ordinary" in each for each in said)
    assert not any((tmp_path / "w").rglob("*.parquet"))
    # All is judged one by one to be listed: each delivery has the same row, and all else is the same.
    asked = replace(asked, is_listed=True)
    listed = result(audit_small(asked))
    with audited(spark, asked) as audit:
        assert result(audit) == listed
    assert len(listed.pop("delivery")) > 4_000, "each event has one"
    assert {**listed, "delivery": expected["delivery"]} == expected


def test_receipts_are_screened(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_again, add = list[list[int]](), Screened.add
    monkeypatch.setattr(Screened, "add", lambda *each: judged_again.append(add(*each)) or judged_again[-1])
    archive = SmallArchive(tmp_path / "archive")
    reader = {"receipts": True, "receipts_percent": 40, "retention_s": 86_400}
    archive.use(small_contract(inboxes={"help": reader}))
    missed = 0
    for number in range(3 * RARE):
        event = archive.send(ALARM, at_ms=NOON_MS + 1_000 * number)
        if is_asked(event.source, event.id, 40):
            # Of the first there are receipts; the others are lost, as soon as the queue has deleted them.
            if number < 2 * RARE:
                times = {
                    "decided_at_ms": NOON_MS + 1_000 * number + 900,
                    "entered_at_ms": NOON_MS + 1_000 * number,
                }
                archive.hand_over(event, status=None, **times)
            else:
                missed += 1
    archive.write()
    objects, *folders = (str(tmp_path / each) for each in ("archive", "o", "w"))
    for as_of_ms in (AS_OF_MS, NOON_MS + 86_400_000 + 1_000 * (2 * RARE + 32)):
        watermark = Watermark(as_of_ms, 0)
        asked = AuditRequest(
            open_archive(objects),
            *map(open_output, folders),
            Window(None),
            watermark,
            open_key(None),
        )
        expected = result(audit_small(asked))
        assert 0 < str(expected["finding"]).count("no record of a handover") <= missed
        with audited(spark, asked) as audit:
            assert result(audit) == expected
    # The samples were enough: else the plain judge would be compared with itself.
    assert judged_again == [[], []]
