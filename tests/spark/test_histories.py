"""Archives of simulated histories, audited by Spark: what it finds is what the small audit finds."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contract import load_contract
from glue_jobs.common.objects import open_output
from lab.histories.history import History
from lab.histories.oracles.audited import ended_ms, request_of
from lab.histories.search import story_of
from tests.spark.both_ways import differences


@pytest.mark.parametrize("seed", [12, 10, 19], ids=["broken disk", "sent again", "heavy"])
def test_spark_and_python_find_the_same_in_a_history(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    history = History(story_of(seed), load_contract()).run()
    request = request_of(history.cloud, ended_ms(history))
    archive, work = (open_output(str(tmp_path / each)) for each in ("archive", "work"))
    for each in request.objects.beneath(""):
        archive.write(each.name, request.objects.read(each.name) or b"")
    assert differences(spark, replace(request, objects=archive, work=work)) == {}
