"""The archive's rows as they lie there: nothing filtered but by day, every line that does not fit kept."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from eventplane.handover import HANDOVERS
from eventplane.ledger import LEDGER, TAP
from glue_jobs.delivery_audit.errors import NoArchiveError
from glue_jobs.delivery_audit.schema import HANDOVER_ROW, LEDGER_ROW, TAP_ROW, in_folders
from glue_jobs.delivery_audit.storage import Storage, join
from glue_jobs.delivery_audit.window import Window

ROW_FILES = "*.json.gz"


class Archive:
    """The archive at `uri`. Raises `NoArchiveError` when there is neither tap nor ledger.

    Its tables have the columns of their records, `date` (of the folder) and `file` (within the archive).
    """

    def __init__(self, spark: SparkSession, storage: Storage, uri: str) -> None:
        self._spark = spark
        self._storage = storage
        self.uri = uri
        if not (storage.exists(join(uri, TAP)) or storage.exists(join(uri, LEDGER))):
            raise NoArchiveError(uri)

    def tap(self, window: Window) -> DataFrame:
        """What IoT Core accepted, also on the day before: a device may state it within the window."""
        return self._rows(TAP, TAP_ROW, window.around())

    def ledger(self, window: Window) -> DataFrame:
        """What the routers decided."""
        return self._rows(LEDGER, LEDGER_ROW, window.folders())

    def handovers(self, window: Window) -> DataFrame:
        """What became of events at webhooks."""
        return self._rows(HANDOVERS, HANDOVER_ROW, window.folders())

    def _rows(self, folder: str, row: StructType, days: Column) -> DataFrame:
        columns = [*row.names, "date"]
        if not self._storage.exists(join(self.uri, folder)):
            # The other half may be there: an audit of half an archive says what is missing.
            empty = self._spark.createDataFrame([], in_folders(row))
            return empty.select(*columns, sf.lit("").alias("file"))
        rows = (
            self._spark.read.schema(in_folders(row))
            .option("mode", "PERMISSIVE")
            .option("pathGlobFilter", ROW_FILES)
            .json(join(self.uri, folder))
        )
        # Folder, date, hour, name.
        file = sf.substring_index("_metadata.file_path", "/", -4)
        return rows.where(days).select(*columns, file.alias("file"))
