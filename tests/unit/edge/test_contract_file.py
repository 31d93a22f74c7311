"""The contract that was in force last, beside the spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import durable
from edge.contract_file import keep_contract, last_contract
from tests.unit.edge.fakes import contract


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


def test_it_is_known_as_it_was_kept(spool: Path) -> None:
    assert last_contract(spool) is None
    for each in (contract(), contract(uplink_prefix="org.eventplane.alarm.")):
        keep_contract(each, spool)
        assert last_contract(spool) == each


def test_what_is_kept_already_is_not_written_again(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_contract(contract(), spool)
    monkeypatch.setattr(durable, "write", lambda *_: pytest.fail("flash wears out"))
    keep_contract(contract(), spool)


def test_what_is_damaged_is_unknown_and_written_anew(spool: Path) -> None:
    keep_contract(contract(), spool)
    (file,) = spool.parent.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert last_contract(spool) is None
    keep_contract(contract(), spool)
    assert last_contract(spool) == contract()


def test_a_disk_without_room_is_no_reason_to_stop(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write", full)
    keep_contract(contract(), spool)
    assert "spool.db.contract: No space left on device" in caplog.text
