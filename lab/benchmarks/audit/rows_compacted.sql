-- The rows of the archive's compacted hours: of an event the columns that the compaction has made of it.

-- ledger_rows
CREATE VIEW ledger_rows AS
SELECT *, archive_file AS filename FROM read_parquet('$archive/compacted/ledger/*/*/*/*.parquet');

-- tap_rows
CREATE VIEW tap_rows AS
SELECT accepted_at_ms, archived_at_ms, client_id, message_id, "index", refusal, archive_file AS filename,
    event IS NOT NULL AS has_event, source, id, type, subject, recordedtime, expirytime, deviceepoch AS epoch,
    devicesequence, senderservice,
    CASE WHEN type = 'org.eventplane.device.manifest.v1' THEN report->'$$.data.statements' END AS stated
FROM read_parquet('$archive/compacted/tap/*/*/*/*.parquet');

-- handover_rows
CREATE VIEW handover_rows AS
SELECT channel, sender, source, id, outcome FROM read_parquet('$archive/compacted/handovers/*/*/*/*.parquet');
