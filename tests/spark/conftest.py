"""One Spark session for all tests: starting the JVM costs seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from glue_jobs.common.session import LOCAL_SETTINGS, local_session
from tests.spark.small_archive import SmallArchive


def pytest_configure(config: pytest.Config) -> None:
    # PySpark 3.5 reads each result through a socket that it leaves to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    java = f"{LOCAL_SETTINGS['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1"
    with local_session(
        # Java's optimizing compiler would take half of the time, and not earn it.
        spark__driver__extraJavaOptions=java,
        spark__sql__shuffle__partitions="1",
        spark__default__parallelism="1",
        # One partition needs no plan B: asking for it would be a job for each stage.
        spark__sql__adaptive__enabled="false",
        spark__sql__warehouse__dir=str(warehouse),
    ) as session:
        yield session


@pytest.fixture
def archive(tmp_path: Path) -> SmallArchive:
    return SmallArchive(tmp_path / "archive")
