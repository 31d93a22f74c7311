"""The audit on a cluster: driver and executors are processes of their own, which have the job's package only.

`spark-submit` starts the script as Glue does, with the package that is deployed; nothing else of this
checkout is on a path of theirs.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from glue_jobs.delivery_audit import main as job
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from lab.audits import read_report
from lab.benchmarks.audit.proof import table_rows
from stacks.bundling import copy_packages

AS_OF = ("--DATE", "all", "--AS_OF", "2026-04-01T00:00:00Z")

PLAN = Scale(600, hours=6, events_an_hour=20, fault_every=12)

SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def spark_home(folder: Path) -> Path:
    """Spark in a folder of the test: its executors work beneath their home."""
    folder.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (folder / each.name).symlink_to(each)
    return folder


def submit(folder: Path, *words: str) -> None:
    """Run the audit in `folder` as Glue does, by two executors."""
    copy_packages(folder / "packages", "eventplane", "glue_jobs")
    packages = shutil.make_archive(str(folder / "packages"), "zip", folder / "packages")
    script, log = shutil.copy(job.__file__, folder), folder / "log"
    log.mkdir()
    home = spark_home(folder / "spark")
    settings = {**SETTINGS, "spark.eventLog.dir": log.as_uri()}
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(home / "bin" / "spark-submit"), *options, "--py-files", packages, script, *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]


def executors(log: Path) -> set[str]:
    """The executors that ran tasks, by the record in the folder `log`."""
    (record,) = log.iterdir()
    events = map(json.loads, record.read_text().splitlines())
    return {each["Task Info"]["Executor ID"] for each in events if each["Event"] == "SparkListenerTaskEnd"}


def tables(output: Path) -> dict[str, list[str]]:
    """The rows of each table beneath `output`, in order."""
    names = "findings", "routes", "devices", "consumers", "quarantine"
    return {name: sorted(map(repr, table_rows(output / name))) for name in names}


@pytest.mark.usefixtures("spark")
def test_two_executors_find_what_one_process_finds(tmp_path: Path) -> None:
    generate(tmp_path, PLAN, audited_contracts())
    archive = str(tmp_path / "archive")
    alone, together = tmp_path / "alone", tmp_path / "together"
    job.main(["--INPUT", archive, "--OUTPUT", str(alone), *AS_OF])
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    submit(cluster, "--INPUT", archive, "--OUTPUT", str(together), "--WORK", str(tmp_path / "work"), *AS_OF)
    assert executors(cluster / "log") == {"0", "1"}
    assert read_report(together) == read_report(alone)
    assert tables(together) == tables(alone)
    # What was kept while it ran is gone, and nothing of it was ever beneath the output.
    assert not [each for each in (tmp_path / "work").rglob("*") if each.is_file()]
    assert not (together / "work").exists()
