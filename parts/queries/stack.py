"""The archive's tables in the Glue catalog, so that Athena reads them, and a workgroup to ask from.

Partitions are projected from the dates that can be: nobody has to add them, and none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.archive_layout import AUDIT_DELIVERIES_FOLDER, FOLDERS, PUBLISHED, Column, Folder, Form
from stacks.application import PlaneStacks
from stacks.constructs.archive import ATHENA
from stacks.environment import Environment
from stacks.plane_stack import environment_of

_PARTITIONS: Final = {
    "date": {"type": "date", "format": "yyyy-MM-dd", "interval": "1", "interval.unit": "DAYS"},
    "hour": {"type": "integer", "range": "0,23", "digits": "2"},
}


@dataclass(frozen=True, slots=True)
class _Storage:
    """How the bytes of a table are read."""

    input: str
    serde: str
    serde_parameters: dict[str, str]


_PARQUET_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_LINES: Final = _Storage(
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.openx.data.jsonserde.JsonSerDe",
    # A line that cannot be read is a row of nulls, as it is quarantined elsewhere, and stops no query.
    {"ignore.malformed.json": "true"},
)
_PARQUET: Final = _Storage(
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat", _PARQUET_SERDE, {}
)
# The folder holds the list of an hour's files: an hour appears at once, and never twice.
_PUBLISHED: Final = _Storage("org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat", _PARQUET_SERDE, {})
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"


def add(plane: PlaneStacks) -> None:
    """Add the tables to the stack of the jobs."""
    catalog = ArchiveCatalog(plane.audit, "Catalog", plane.audit.archive)
    CfnOutput(plane.audit, "CatalogDatabase", value=catalog.database_name)


class ArchiveCatalog(Construct):
    """The database `eventplane_<env>`: compacted tables, `<folder>_raw` of the lines, the audit's tables."""

    def __init__(self, scope: Construct, id: str, archive: s3.IBucket) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self.database_name = environment.resource_name("").strip("-").replace("-", "_")
        self._environment = environment
        self._archive = archive
        self._database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.database_name, description="The archive of the event plane"
            ),
        )
        for folder in FOLDERS:
            if folder is AUDIT_DELIVERIES_FOLDER and not environment.audit_deliveries:
                continue
            name = folder.name.replace("/", "_")
            if folder.form is Form.LINES:
                self._table(f"{name}_raw", folder, folder.columns, folder.name, _LINES)
            if folder.form is Form.PARQUET:
                self._table(name, folder, folder.columns, folder.name, _PARQUET)
            if folder.compaction:
                place = f"{PUBLISHED}/{folder.name}"
                self._table(name, folder, folder.compacted_columns, place, _PUBLISHED)
        self._workgroup(environment)

    def _table(
        self, name: str, folder: Folder, columns: Iterable[Column], place: str, storage: _Storage
    ) -> None:
        location = f"s3://{self._archive.bucket_name}/{place}/"
        template = "/".join(f"{each}=${{{each}}}" for each in folder.partitions)
        table = glue.CfnTable(
            self,
            "".join(word.title() for word in name.split("_")),
            catalog_id=Aws.ACCOUNT_ID,
            database_name=self.database_name,
            table_input=glue.CfnTable.TableInputProperty(
                name=name,
                description=f"One row is {folder.row}",
                table_type="EXTERNAL_TABLE",
                parameters={
                    "EXTERNAL": "TRUE",
                    "schema_version": f"{folder.version}",
                    "storage.location.template": f"{location}{template}/",
                    **self._projection(folder.partitions),
                },
                partition_keys=[
                    glue.CfnTable.ColumnProperty(name=each, type="string") for each in folder.partitions
                ],
                storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                    location=location,
                    input_format=storage.input,
                    output_format=_OUTPUT,
                    serde_info=glue.CfnTable.SerdeInfoProperty(
                        serialization_library=storage.serde, parameters=storage.serde_parameters
                    ),
                    columns=[
                        glue.CfnTable.ColumnProperty(name=each.name, type=each.type, comment=each.meaning)
                        for each in columns
                    ],
                ),
            ),
        )
        table.add_resource_dependency(self._database)

    def _projection(self, partitions: Iterable[str]) -> dict[str, str]:
        # No day before the retention can have rows.
        days = f"NOW-{self._environment.retention.compacted_days + 1}DAYS,NOW"
        known = {"projection.enabled": "true", "projection.date.range": days}
        for name in partitions:
            known |= {f"projection.{name}.{key}": value for key, value in _PARTITIONS[name].items()}
        return known

    def _workgroup(self, environment: Environment) -> None:
        key = environment.customer_key
        athena.CfnWorkGroup(
            self,
            "Workgroup",
            name=environment.resource_name("archive"),
            description="Questions to the archive; answers are kept for a week",
            recursive_delete_option=not environment.keeps_data,
            work_group_configuration=athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                publish_cloud_watch_metrics_enabled=True,
                result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=f"s3://{self._archive.bucket_name}/{ATHENA}/",
                    encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                        encryption_option="SSE_KMS" if key else "SSE_S3", kms_key=key
                    ),
                ),
            ),
        )
