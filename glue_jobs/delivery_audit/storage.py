"""Files and tables on whatever file system a URI names (S3, a local folder), through Hadoop as Spark does."""

from __future__ import annotations

from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

Form = Literal["parquet", "json"]


def join(folder: str, *names: str) -> str:
    """The URI of something beneath `folder`."""
    return "/".join([folder.rstrip("/") or "/", *names])


class Storage:
    """Reads and writes by URI with the credentials of the Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        # PySpark offers Hadoop's file systems through its gateway to the JVM only.
        context: Any = spark.sparkContext
        self._hadoop = context._jvm.org.apache.hadoop  # noqa: SLF001
        self._io = context._jvm.org.apache.commons.io  # noqa: SLF001
        self._settings = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def exists(self, uri: str) -> bool:
        """Whether there is a file or folder at `uri`."""
        system, path = self._locate(uri)
        return bool(system.exists(path))

    def read_folder(self, uri: str) -> list[tuple[str, str]]:
        """Name and UTF-8 text of each file in the folder `uri`, the oldest first; none when there is none."""
        system, path = self._locate(uri)
        if not system.exists(path):
            return []
        files = [each for each in system.listStatus(path) if each.isFile()]
        files.sort(key=lambda each: (each.getModificationTime(), each.getPath().getName()))
        found = ((each.getPath().getName(), self.read_text(each.getPath().toString())) for each in files)
        return [(name, text) for name, text in found if text is not None]

    def read_text(self, uri: str) -> str | None:
        """The UTF-8 text at `uri`; None when there is none."""
        system, path = self._locate(uri)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return str(self._io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, uri: str, text: str) -> None:
        """Put `text` at `uri` as UTF-8, in place of what was there."""
        system, path = self._locate(uri)
        system.setWriteChecksum(False)
        stream = system.create(path, True)
        try:
            stream.write(text.encode("utf-8"))
        finally:
            stream.close()

    def write_table(
        self,
        table: DataFrame | None,
        uri: str,
        day: str | None,
        form: Form = "parquet",
    ) -> None:
        """Put `table` (None: no row) at `uri` by its column `date`: one `day` of it, or (None) all anew.

        JSON is one row a line, with gzip.

        Repeating it changes nothing. A dynamic overwrite replaces only partitions for which there are rows,
        so a day that has none left is deleted.
        """
        if table is None or (day is not None and table.isEmpty()):
            self.delete(uri if day is None else join(uri, f"date={day}"))
            return
        mode = "static" if day is None else "dynamic"
        writer = table.coalesce(1).write.mode("overwrite").partitionBy("date")
        if form == "json":
            writer = writer.option("compression", "gzip")
        writer.option("partitionOverwriteMode", mode).format(form).save(uri)

    def settled(self, table: DataFrame, uri: str) -> DataFrame:
        """`table` as Parquet at `uri`: computed once, without its plan, whatever becomes of an executor."""
        # Few values come again; looking for those costs more than writing them.
        table.write.mode("overwrite").option("parquet.enable.dictionary", "false").parquet(uri)
        return table.sparkSession.read.schema(table.schema).parquet(uri)

    def delete(self, uri: str) -> None:
        """Remove what is at `uri`, if there is something."""
        system, path = self._locate(uri)
        system.delete(path, True)

    def _locate(self, uri: str) -> tuple[Any, Any]:
        path = self._hadoop.fs.Path(uri)
        return path.getFileSystem(self._settings), path
