"""What a session is checked for, and how its shuffles are sized."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from glue_jobs.common.session import (
    MAX_PARTITIONS,
    PARTITION_BYTES,
    VersionError,
    check_version,
    local_session,
    shuffle_partitions,
)
from glue_jobs.compaction.main import main as compaction
from glue_jobs.delivery_audit.main import main as audit
from glue_jobs.erasure.main import main as erasure


@pytest.mark.parametrize(
    ("what", "found", "is_enough"),
    [
        ("boto3", "1.34.131", False),  # Glue 5.0
        ("boto3", "1.35.1", False),
        ("boto3", "1.35.2", True),
        ("boto3", "1.43.106", True),
        ("Spark", "3.3.0-amzn-1", False),  # Glue 4.0
        ("Spark", "3.5.6-amzn-0", True),
        ("Spark", "4.1.1", True),
        ("Java", "1.8.0_392", False),
        ("Java", "11.0.21", False),
        ("Java", "17", True),
        ("Java", "21.0.2", True),
    ],
)
def test_a_version_that_is_too_old_is_named_with_what_to_do(what: str, found: str, is_enough: bool) -> None:
    with (
        nullcontext() if is_enough else pytest.raises(VersionError, match=rf"^{what} is {found}.*Glue choose")
    ):
        check_version(what, found)


@pytest.mark.parametrize("main", [audit, compaction, erasure])
def test_old_boto3(main: Callable[[list[str]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3, "__version__", "1.34.131")
    (tmp_path / "archive").mkdir()
    with pytest.raises(VersionError, match=r"boto3 is 1\.34\.131"):
        main(
            [
                *("--INPUT", f"{tmp_path}/archive"),
                *("--OUTPUT", f"{tmp_path}/out"),
                *("--SOURCE", "//home-1/"),
            ]
        )
    assert not (tmp_path / "out").exists()


def test_a_java_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: SparkSession.Builder) -> SparkSession:
        raise PySparkRuntimeError(error_class="JAVA_GATEWAY_EXITED", message_parameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(VersionError, match=r"Java is not found, or does not start.*install Java 17"):
        local_session()


@pytest.mark.parametrize(
    ("size", "least", "partitions"),
    [
        (0, 1, 1),
        (0, 8, 8),
        (8 * PARTITION_BYTES, 8, 8),
        (8 * PARTITION_BYTES + 1, 8, 9),
        (550 * 10**6, 8, 132),  # five million events
        (10**15, 200, MAX_PARTITIONS),
    ],
)
def test_a_shuffle_has_partitions_by_the_size_of_the_archive(size: int, least: int, partitions: int) -> None:
    assert shuffle_partitions(size, least) == partitions
