"""The archive's tables and jobs, as a cloud takes them."""

from __future__ import annotations

from collections.abc import Mapping

from eventplane.archive_layout import FOLDERS
from local.cloud import CloudEndpoint


def test_tables_and_jobs_are_deployed(emulator: CloudEndpoint, outputs: Mapping[str, str]) -> None:
    glue = emulator.client("glue")
    tables = glue.get_tables(DatabaseName=outputs["CatalogDatabase"])["TableList"]
    assert {each.name for each in FOLDERS if each.compaction} <= {each["Name"] for each in tables}
    jobs = {each["Name"] for each in glue.get_jobs()["Jobs"]}
    assert {outputs[name] for name in ("DeliveryAuditJob", "CompactionJob", "ErasureJob")} <= jobs
