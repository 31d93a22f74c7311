"""Sessions on one machine: the archive of Spark's classes, and tables of this process's rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from glue_jobs.common.session import ClassArchive, local_rows
from glue_jobs.delivery_audit.findings import Kind

RUN = """
import sys
sys.prefix = sys.argv[1]
from pathlib import Path
from glue_jobs.common.session import local_run
with local_run(is_short=True) as spark:
    assert spark.range(3).count() == 3
    java = spark.sparkContext._jvm.ProcessHandle.current().pid()
    print("mapped:", ".jsa" in Path(f"/proc/{java}/maps").read_text().replace("/classes.jsa", ""))
    if len(sys.argv) > 2:
        raise SystemExit(sys.argv[2])
print("done")
"""


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-c", RUN, str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_the_first_run_that_ends_well_leaves_it_for_the_next(tmp_path: Path) -> None:
    assert run(tmp_path, "it failed") == "mapped: False\n"
    assert list(tmp_path.iterdir()) == []
    tmp_path.joinpath("spark-classes-0123456789abcdef.jsa").touch()  # of another Java
    assert run(tmp_path) == "mapped: False\ndone\n"
    (made,) = tmp_path.iterdir()
    assert made.stat().st_size > 0
    assert run(tmp_path) == "mapped: True\ndone\n"


def test_another_java_and_other_jars_have_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    files = [tmp_path / "java/bin/java", tmp_path / "java/release", tmp_path / "spark/jars/a.jar"]
    paths = set()
    for size in range(3):
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x" * size)
            found = ClassArchive.here()
            assert found is not None
            paths.add(found.reading)
    assert len(paths) == 3 * len(files)


def test_there_is_none_without_java_or_a_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert ClassArchive.here() is None
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert ClassArchive.here() is None


def test_rows_of_this_process_become_a_table(spark: SparkSession) -> None:
    schema = StructType(
        [
            StructField("text", StringType()),
            StructField("number", LongType()),
            StructField("truth", BooleanType()),
        ]
    )
    rows = [(Kind.LOST, 2**53 + 1, True), ("\u00e9\n\U0001f600", -1, False), (None, None, None)] * 1_000
    assert [tuple(each) for each in local_rows(spark, rows, schema).collect()] == rows
    assert local_rows(spark, [], schema).collect() == []
