"""The Spark session: what every run needs, and what a run on one machine needs besides."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

APP_NAME = "eventplane"

_LOGGING = Path(__file__).resolve().with_name("log4j2.properties").as_uri()

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # A wrong value becomes null and then a quarantined row; it must not end the audit.
    "spark.sql.ansi.enabled": "false",
}
"""What the results depend on; set on whichever session Glue hands us."""

LOCAL_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Each partition is a task of some 10 ms; two cores have nothing to win from the default of 200.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The serial collector needs half of G1's memory and less of two cores.
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_LOGGING}",
}
"""A run on one machine. Needs Java 17: `java` on PATH, or JAVA_HOME."""


def job_session() -> SparkSession:
    """The running session, or a new one as the environment (Glue, spark-submit) configures it."""
    spark = SparkSession.builder.appName(APP_NAME).getOrCreate()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    return spark


def local_session(**settings: str) -> SparkSession:
    """A session on this machine; `settings` (dots as `__`) replace those of `LOCAL_SETTINGS`."""
    builder = SparkSession.builder.appName(APP_NAME)
    for name, value in {**LOCAL_SETTINGS, **SETTINGS}.items():
        builder = builder.config(name, value)
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()
