"""An archive of a few events."""

from pathlib import Path

import pytest

from tests.spark.small_archive import SmallArchive


@pytest.fixture
def archive(tmp_path: Path) -> SmallArchive:
    return SmallArchive(tmp_path / "archive")
