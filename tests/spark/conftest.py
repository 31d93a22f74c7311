"""One Spark session for all tests: starting the JVM costs seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main
from tests.spark.small_archive import SmallArchive


def pytest_configure(config: pytest.Config) -> None:
    # PySpark 3.5 reads each result through a socket that it leaves to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = local_session(
        is_short=True,
        spark__sql__shuffle__partitions="1",
        spark__default__parallelism="1",
        # One partition needs no plan B: asking for it would be a job for each stage.
        spark__sql__adaptive__enabled="false",
        spark__sql__warehouse__dir=str(warehouse),
    )
    yield session
    session.stop()


@pytest.fixture
def archive(tmp_path: Path) -> SmallArchive:
    return SmallArchive(tmp_path / "archive")


@pytest.fixture
def audit(spark: SparkSession, archive: SmallArchive, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Writes the archive and runs the whole job over it.

    The output is the folder `audit` the first time, and then another one each time, or `output`: in the same
    one an archive that a test has written anew is an altered one.
    """
    outputs = (f"audit-{number}" if number else "audit" for number in count())

    def run(
        date: str = "all", as_of: str = "2026-04-01T00:00:00Z", output: str | None = None
    ) -> dict[str, Any]:
        archive.write()
        words = ["--INPUT", str(archive.folder), "--OUTPUT", str(tmp_path / (output or next(outputs)))]
        return main([*words, "--DATE", date, "--AS_OF", as_of])

    return run
