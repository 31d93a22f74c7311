"""What a home of a local run consists of: a spool that may be unreadable."""

from pathlib import Path
from typing import Any

from lab.home import Home


def test_a_spool_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    nothing: Any = None
    spool = tmp_path / "spool.db"
    home = Home("home-1", nothing, nothing, nothing, spool, tmp_path / "c.json", None, None)
    assert (home.backlog, home.unreported) == (0, 0)
    spool.write_bytes(b"no database at all" * 1_000)
    assert home.backlog > 0
    assert home.unreported > 0
