"""The Spark session: what every run needs, and what a run on one machine needs besides."""

from __future__ import annotations

import re
import sys
from math import ceil
from pathlib import Path
from typing import Final

import boto3
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from eventplane.errors import EventPlaneError

LEAST: Final = {"boto3": "1.35.2", "Spark": "3.5", "Java": "17"}
"""The oldest versions that the jobs run on: boto3 knows S3's conditional writes since then, Glue 5.1 has the
others."""

PARTITION_BYTES: Final = 4 * 2**20
"""How much of an archive, as it is stored, a partition of a shuffle is made of: some 40,000 events, 100 MB in
memory. Ours."""

MAX_PARTITIONS: Final = 10_000
"""Most partitions of a shuffle: what a driver can plan. Ours."""

APP_NAME = "eventplane"

_HERE = Path(__file__).resolve()
_LOGGING = _HERE.with_name("log4j2.properties").as_uri()

_COMPILER: Final = (
    # It waits three times as long as by default, and inlines less.
    "-XX:Tier4InvocationThreshold=15000 -XX:Tier4MinInvocationThreshold=2000 -XX:Tier4CompileThreshold=40000 "
    "-XX:Tier4BackEdgeThreshold=120000 -XX:DesiredMethodLimit=3000 "
    # It optimizes what handles rows, not what plans, starts and compiles, which a run needs once.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    f'"-XX:CompilerDirectivesFile={_HERE.with_name("compiler.directives")}"'
)
"""Java's optimizing compiler, which takes a quarter of an audit of a million events by default."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A wrong value becomes null and then a quarantined row; it must not end the audit.
    "spark.sql.ansi.enabled": "false",
    # Lists by device and hour fit into memory; by default Spark sorts all rows behind the first 128 lists.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
    # The archive has an object a minute and writer. Spark counts 4 MiB for opening one, so that 23,000
    # objects of a row became 720 tasks; S3 gives the first byte in the time that reading 1 MiB takes.
    "spark.sql.files.openCostInBytes": "1048576",
}
"""What all runs need; set on whichever session Glue hands us."""

_FIRST_PARTITIONS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"

LOCAL_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Each partition is a task of some 10 ms; two cores have nothing to win from the default of 200.
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    # A line that shows how far a long stage is, for a person only.
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    # The serial collector needs half of G1's memory and less of two cores. As each line is read by 8 KiB of
    # its own, it collects half as often where it need not choose the size for new objects.
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Xmn512m {_COMPILER} "
    f"-Dlog4j2.configurationFile={_LOGGING}",
    # Every run makes the same classes; Spark keeps a hundred, one audit has more.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
"""A run on one machine. Needs Java 17: `java` on PATH, or JAVA_HOME."""


class VersionError(EventPlaneError):
    """The jobs cannot run where `what` has the version `found`."""

    what: str
    found: str
    message = (
        "{what} is {found}, and the jobs need boto3 {least[boto3]}, Spark {least[Spark]} and Java "
        "{least[Java]} or newer; on Glue choose version 5.1 (for boto3: --additional-python-modules boto3), "
        "elsewhere install Java 17 and the project's locked packages"
    )
    least = LEAST


def check_version(what: str, found: str) -> None:
    """Raise `VersionError` if the version `found` is older than `LEAST`, or is none."""
    if _numbers(found) < _numbers(LEAST[what]):
        raise VersionError(what, found)


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def shuffle_partitions(size: int, least: int = 1) -> int:
    """Return into how many partitions Spark should shuffle the rows of an archive of `size` bytes."""
    return min(max(least, ceil(size / PARTITION_BYTES)), MAX_PARTITIONS)


def size_shuffles(spark: SparkSession, size: int) -> None:
    """Let Spark begin with enough partitions for an archive of `size` bytes; it puts together small ones."""
    least = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    spark.conf.set(_FIRST_PARTITIONS, shuffle_partitions(size, least))


def job_session() -> SparkSession:
    """Return the running session, or a new one as the environment (Glue, spark-submit) configures it.

    Raises `VersionError` before any work where a version is too old.
    """
    check_version("boto3", boto3.__version__)
    spark = SparkSession.builder.appName(APP_NAME).getOrCreate()
    check_version("Spark", spark.version)
    (java,) = spark.sql("SELECT reflect('java.lang.System', 'getProperty', 'java.version')").collect()
    check_version("Java", java[0])
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    return spark


def local_session(**settings: str) -> SparkSession:
    """A session on this machine, which a `with` block ends.

    `settings` (dots as `__`) replace those of `LOCAL_SETTINGS`.
    """
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    builder = SparkSession.builder.appName(APP_NAME)
    for name, value in {**LOCAL_SETTINGS, **SETTINGS, **chosen}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise VersionError("Java", "not found, or does not start") from error
