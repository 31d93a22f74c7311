"""The way of one alarm through the plane: that the trace is whole, and that the way does not get longer."""

import pytest

from eventplane.account import Fate
from lab.benchmarks.walk import READER, REPLACED, ROOT, Walk, lines, walk

pytestmark = pytest.mark.long

STAGES = {
    "edge/dispatch.py",
    "edge/spool/store.py",
    "edge/uplink.py",
    "eventplane/ingest.py",
    "lambdas/router/planner.py",
    "lambdas/router/dispatch.py",
    "eventplane_client/reader.py",
}
EVIDENCE = {
    "lambdas/archive/tap.py",
    "lambdas/archive/ledger.py",
    "lambdas/archive/receipts.py",
    "glue_jobs/delivery_audit/judge.py",
}

MOST_FILES, MOST_LINES = 87, 19_000
"""To the reader. They may become fewer."""

MOST_FILES_AUDITED = 129


@pytest.fixture(scope="module")
def found() -> Walk:
    return walk()


def test_the_trace_reaches_the_reader(found: Walk) -> None:
    assert len(found.handled_s) == 1
    assert found.to_reader >= STAGES


def test_the_trace_reaches_the_audit(found: Walk) -> None:
    assert found.audit is not None
    (account,) = (each for each in found.audit.figures.accounts if each["inbox"] == f"{READER}.inbox")
    assert account[Fate.HANDLED] == 2
    assert found.evidence >= EVIDENCE


def test_replaced_files_exist(found: Walk) -> None:
    assert all((ROOT / each).is_file() for each in REPLACED)


def test_the_way_gets_no_longer(found: Walk) -> None:
    assert len(found.to_reader) <= MOST_FILES
    assert lines(found.to_reader) <= MOST_LINES
    assert len(found.files) <= MOST_FILES_AUDITED
