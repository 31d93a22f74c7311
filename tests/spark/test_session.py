"""Sessions on one machine: the archive of Spark's classes, and tables of this process's rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from glue_jobs.common.session import ClassArchive, local_rows
from glue_jobs.delivery_audit.findings import Kind

RUN = """
import sys
sys.prefix = sys.argv[1]
from pathlib import Path
from glue_jobs.common.session import local_run
with local_run(is_short=True) as spark:
    java = spark.sparkContext._jvm.ProcessHandle.current().pid()
    print("mapped:", ".jsa" in Path(f"/proc/{java}/maps").read_text().replace("/classes.jsa", ""))
"""


def test_the_first_run_leaves_its_classes_for_the_next(tmp_path: Path) -> None:
    for expected in ("mapped: False\n", "mapped: True\n"):
        command = [sys.executable, "-c", RUN, str(tmp_path)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == expected
        (made,) = tmp_path.iterdir()
        assert made.stat().st_size > 0


class FakeJava:
    """Java as PySpark holds it; it ends with `status`, and has archived its classes as `unfinished`."""

    def __init__(self, unfinished: Path, status: int) -> None:
        self.was_killed = False
        unfinished.touch()
        self.proc = SimpleNamespace(
            stdin=SimpleNamespace(close=lambda: None), kill=self._kill, wait=lambda _: status
        )

    def shutdown(self) -> None:
        pass

    def _kill(self) -> None:
        self.was_killed = True


@pytest.mark.parametrize(("is_good", "status"), [(True, 0), (True, 1), (False, -9)])
def test_only_a_run_that_ends_well_leaves_its_classes_and_no_older_ones(
    is_good: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, new = (tmp_path / f"spark-classes-{name}.jsa" for name in ("0123456789abcdef", "f" * 16))
    older.touch()
    archive = ClassArchive(new)
    java = FakeJava(Path(archive.making.partition("AtExit=")[2].partition('"')[0]), status)
    monkeypatch.setattr(SparkContext, "_gateway", java)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    archive.take(is_good=is_good)
    assert java.was_killed is not is_good
    assert list(tmp_path.iterdir()) == [new if status == 0 else older]
    assert archive.is_made is (status == 0)


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
    schema = StructType().add("text", StringType()).add("number", LongType()).add("truth", BooleanType())
    rows = [(Kind.LOST, 2**53 + 1, True), ("\u00e9\n\U0001f600", -1, False), (None, None, None)] * 1_000
    assert [tuple(each) for each in local_rows(spark, rows, schema).collect()] == rows
    assert local_rows(spark, [], schema).collect() == []
