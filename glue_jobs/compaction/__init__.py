"""The compaction: closed hours of the archive as sorted Parquet, for years of reading."""
