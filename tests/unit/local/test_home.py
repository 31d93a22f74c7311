"""What a home of a local run consists of: a spool that may be unreadable."""

from pathlib import Path
from typing import Any

import pytest

from local.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    nothing: Any = None
    return Home("home-1", nothing, nothing, nothing, tmp_path / "spool.db", tmp_path / "c.json", None, None)


def test_a_spool_that_is_not_made_yet_has_nothing(home: Home) -> None:
    assert (home.backlog, home.unreported) == (0, 0)


def test_a_spool_that_cannot_be_read_is_not_taken_for_an_empty_one(home: Home) -> None:
    home.spool.write_bytes(b"no database at all" * 1_000)
    assert home.backlog > 0
    assert home.unreported > 0
