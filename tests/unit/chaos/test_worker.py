"""The cloud's own code over files: what a publish becomes, and a contract that changes under way."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from contract.loader import load_contract
from eventplane.batch import pack
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import write_event
from eventplane.topics import basic_ingest_topic
from local.chaos.arrivals import Arrivals
from local.chaos.faults import changed
from local.chaos.worker import (
    ARCHIVE,
    ARRIVALS,
    CONTRACT,
    ContractFile,
    Functions,
    arrivals_file,
    queue_message,
)

MOTION_TYPE = "org.eventplane.activity.motion.v1"
MOTION = write_event(
    {
        "id": "1",
        "source": "/homes/a/activity-service",
        "type": "org.eventplane.activity.motion.v1",
        "subject": "/x",
    },
    {"state": "moved"},
)
RULE = "ingest"
TOPIC = basic_ingest_topic(RULE, "a")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ARRIVALS).mkdir()
    (tmp_path / CONTRACT).write_bytes(load_contract().canonical)
    return tmp_path


def rows(folder: Path, name: str) -> list[dict[str, object]]:
    files = sorted((folder / ARCHIVE / name).rglob("*.json.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_a_publish_is_archived_routed_and_written_down(folder: Path) -> None:
    message = queue_message(TOPIC, pack([MOTION]))
    functions = Functions(folder, RULE)
    functions.handle([message])
    functions.handle([message])  # a worker that was killed before it acknowledged
    care = Arrivals(arrivals_file(folder / ARRIVALS, RULE, "care-analytics"))
    care.refresh()
    assert list(care.first) == [MOTION.claim]
    assert care.duplicates == 1
    assert [each["client_id"] for each in rows(folder, "tap")] == ["a"]
    assert {each["route"] for each in rows(folder, "ledger")} == {
        "readings-to-care-analytics",
        "daily-life-to-family",
    }
    assert (folder / ARCHIVE / "contracts" / f"{load_contract().version}.json").exists()


def test_a_contract_that_changes_is_followed_and_a_broken_one_is_not(folder: Path) -> None:
    path = folder / CONTRACT
    file = ContractFile(path, [each.address for each in cloud_destinations(load_contract())])
    first = file.engine()
    other = changed(load_contract(), "batching_delay_ms", 100)
    path.write_bytes(other.canonical[:-100])
    assert file.engine() is first
    path.write_bytes(other.canonical)
    assert file.engine().contract.version == other.version != first.contract.version
