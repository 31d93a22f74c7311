-- The rows of the archive's raw lines.

-- ledger_rows
CREATE VIEW ledger_rows AS
SELECT *
FROM read_json('$archive/ledger/*/*/*.json.gz', format = 'newline_delimited', ignore_errors = true, filename = true,
    columns = {decided_at_ms: 'BIGINT', entered_at_ms: 'BIGINT', entered_by: 'VARCHAR',
        contract_version: 'VARCHAR', source: 'VARCHAR', id: 'VARCHAR', type: 'VARCHAR', priority: 'VARCHAR',
        client_id: 'VARCHAR', route: 'VARCHAR', destination: 'VARCHAR', outcome: 'VARCHAR', reason: 'VARCHAR',
        attempt: 'BIGINT', message_id: 'VARCHAR', sender: 'VARCHAR'});

-- tap_rows
CREATE VIEW tap_rows AS
SELECT * EXCLUDE (event), event IS NOT NULL AS has_event, event->>'$$.source' AS source, event->>'$$.id' AS id,
    event->>'$$.type' AS type, event->>'$$.subject' AS subject, event->>'$$.recordedtime' AS recordedtime,
    event->>'$$.expirytime' AS expirytime, event->>'$$.deviceepoch' AS epoch,
    event->>'$$.devicesequence' AS devicesequence, event->>'$$.senderservice' AS senderservice,
    CASE WHEN contains(event, 'org.eventplane.device.manifest.v1') THEN event->'$$.data.statements' END AS stated
FROM read_json('$archive/tap/*/*/*.json.gz', format = 'newline_delimited', ignore_errors = true, filename = true,
    columns = {accepted_at_ms: 'BIGINT', archived_at_ms: 'BIGINT', client_id: 'VARCHAR', topic: 'VARCHAR',
        message_id: 'VARCHAR', "index": 'BIGINT', event: 'VARCHAR', original_base64: 'VARCHAR', refusal: 'VARCHAR'});

-- handover_rows
CREATE VIEW handover_rows AS
SELECT *
FROM read_json('$archive/handovers/*/*/*.json.gz', format = 'newline_delimited', ignore_errors = true,
    columns = {channel: 'VARCHAR', sender: 'VARCHAR', source: 'VARCHAR', id: 'VARCHAR', outcome: 'VARCHAR'});
