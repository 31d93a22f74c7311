"""Files and tables on whatever file system a URI names (S3, a local folder), through Hadoop as Spark does."""

from __future__ import annotations

from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession


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
        self, table: DataFrame, uri: str, day: str | None, form: Literal["parquet", "json"] = "parquet"
    ) -> None:
        """Put `table` at `uri` by its column `date`: one `day` of it, or (None) all of it anew.

        JSON is one row a line, with gzip.

        Repeating it changes nothing. A dynamic overwrite replaces only partitions for which there are rows,
        so a day that has none left is deleted.
        """
        if day is not None and table.isEmpty():
            system, path = self._locate(join(uri, f"date={day}"))
            system.delete(path, True)
            return
        mode = "static" if day is None else "dynamic"
        writer = table.coalesce(1).write.mode("overwrite").partitionBy("date")
        if form == "json":
            writer = writer.option("compression", "gzip")
        writer.option("partitionOverwriteMode", mode).format(form).save(uri)

    def _locate(self, uri: str) -> tuple[Any, Any]:
        path = self._hadoop.fs.Path(uri)
        return path.getFileSystem(self._settings), path
